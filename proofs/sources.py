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
    kinds = r"(?:Theorem|Lemma|Definition|Record|Notation)"
    pattern = rf"{comment}({kinds} {re.escape(name)}\b.*?)(?=\nProof\.|\n\n|\n{kinds} )"
    return re.search(pattern, text, flags=re.S)


def assumed(text: str, name: str) -> str:
    """Return what the sections around `name` declare before it.

    Of their abbreviations (`Let`), only those that its statement needs.
    """
    found = statement(text, name)
    before = without_comments(text[: found.start(2)] if found else "")
    shown = found[2] if found else ""
    words = r"Section|End|Variables?|Hypothes[ie]s|Context|Let"
    open_sections: list[list[str]] = []
    for declared in re.findall(rf"^(?:{words})\s.*?\.(?=\s)", before, re.M | re.S):
        if declared.startswith("Section"):
            open_sections.append([])
        elif declared.startswith("End"):
            open_sections.pop()
        else:
            open_sections[-1].append(declared)
    kept: list[str] = []
    for declared in reversed([line for section in open_sections for line in section]):
        if not declared.startswith("Let") or re.search(rf"(?:\b|_){declared.split()[1]}\b", shown):
            kept.insert(0, declared)
            shown += declared
    return "\n".join(kept)


def describe(
    theorems: Sequence[str],
    sources: dict[str, str],
    build: Path,
    axioms: dict[str, list[str]],
    types: dict[str, str],
) -> dict[str, dict[str, object]]:
    """Return for each theorem what the page shows of it.

    This is its file, title, comment, statement, what its section declares, full type, axioms, and
    what statement and proof rest on, directly or not: other theorems of the list, and definitions.
    """
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
            "section": assumed(sources[file], theorem),
            "type": types[theorem],
            "axioms": axioms[theorem],
            "theorems": sorted(reached & set(theorems)),
            "definitions": sorted(reached & definitions),
        }
    return records
