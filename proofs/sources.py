"""Facts from the Coq sources, and what a page says about each theorem."""

import re
from collections.abc import Sequence
from pathlib import Path


def without_comments(text: str) -> str:
    while (shorter := re.sub(r"\(\*(?:(?!\(\*|\*\)).)*\*\)", "", text, flags=re.S)) != text:
        text = shorter
    return text


def needs(text: str) -> list[str]:
    return re.findall(r"\w+", " ".join(re.findall(r"From AttnConv Require Import ([^.]*)\.", text)))


def statement(text: str, name: str) -> re.Match[str] | None:
    """From its comment, if one stands before it, to the proof."""
    comment = r"(?:\(\*\*((?:(?!\*\)).)*)\*\)\n)?"
    kinds = r"(?:Theorem|Lemma|Definition|Record)"
    pattern = rf"{comment}({kinds} {re.escape(name)}\b.*?)(?=\nProof\.|\n\n)"
    return re.search(pattern, text, flags=re.S)


def describe(
    theorems: Sequence[str],
    sources: dict[str, str],
    build: Path,
    axioms: dict[str, list[str]],
    types: dict[str, str],
) -> dict[str, dict[str, object]]:
    """For each theorem its file, title, comment, statement, full type, axioms, and what statement
    and proof rest on, directly or not: other theorems of the list, and definitions."""
    uses: dict[str, set[str]] = {}
    definitions: set[str] = set()
    for name in sources:
        owner = ""
        for line in (build / f"{name}.glob").read_text().splitlines():
            if made := re.match(r"(prf|def|rec) \d+:\d+ \S+ (\S+)$", line):
                owner = made[2]
                definitions |= {owner} if made[1] != "prf" else set()
            elif used := re.match(r"R\S+ AttnConv\.\w+ \S+ (\S+) (?:thm|def|rec)$", line):
                uses.setdefault(owner, set()).add(used[1])
    records: dict[str, dict[str, object]] = {}
    for theorem in theorems:
        reached, todo = set(), [theorem]
        while todo:
            new = uses.get(todo.pop(), set()) - reached - {theorem}
            reached |= new
            todo += new
        file, found = next((n, m) for n, t in sources.items() if (m := statement(t, theorem)))
        title, _, text = (found[1] or "").strip().rpartition("\n\n")
        records[theorem] = {
            "file": f"proofs/{file}.v",
            "title": title.removeprefix("** "),
            "comment": " ".join(text.split()),
            "statement": found[2].strip(),
            "type": types[theorem],
            "axioms": axioms[theorem],
            "theorems": sorted(reached & set(theorems)),
            "definitions": sorted(reached & definitions),
        }
    return records
