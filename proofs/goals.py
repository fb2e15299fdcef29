"""Records the goals left after each sentence of the proofs that the book steps through."""

import re
from collections.abc import Callable

from sources import without_comments

STEPPED = """
    lemma_1_outputs lemma_1 lemma_2 lemma_2_limit nearly_hard_heads theorem_1_gap theorem_1_alpha
    theorem_1_any_kernel theorem_1 sufficient necessary lemma_3
""".split()  # noqa: SIM905
WIDTH = 50  # characters in a line of a goal
MARK = "I\n     : True"  # what Coq answers between two goals, to `Check I`


def proof_of(text: str, name: str) -> re.Match[str]:
    """Return the proof of `name`, from `Proof.` to the sentence before `Qed.`."""
    found = re.search(rf"^(?:Theorem|Lemma) {name}\b.*?^(Proof\..*?)\s*\bQed\.", text, re.M | re.S)
    if not found:
        raise ValueError(f"the file has no theorem or lemma {name} with a proof")
    return found


def sentences(text: str, name: str) -> list[str]:
    """Return the sentences of the proof of `name`, without comments."""
    proof = proof_of(without_comments(text), name)[1]
    return [part.strip() for part in re.split(r"(?<=[^.]\.)\s", proof) if part.strip()]


def replayed(text: str, names: list[str]) -> str:
    """Return the file with a question for the goals after each sentence of these proofs."""
    text = without_comments(text)
    for name in names:
        asked = "".join(f"{s}\nCheck I.\nShow.\n" for s in sentences(text, name))
        start, end = proof_of(text, name).span(1)
        text = text[:start] + asked + text[end:]
    return f"Set Printing Width {WIDTH}.\n{text}"


def record_goals(
    sources: dict[str, str], replay: Callable[[str, str], str]
) -> dict[str, list[dict[str, str]]]:
    """Return the sentences of each proof of `STEPPED`, with the goals that each leaves.

    `replay` runs a text, given the name of its file, and returns what Coq answers.
    """
    records = {}
    for file, text in sources.items():
        stated = re.findall(r"^(?:Theorem|Lemma) (\w+)", text, re.M)
        names = [name for name in stated if name in STEPPED]
        if not names:
            continue
        answers = replay(file, replayed(text, names)).split(MARK)[1:]
        asked = [(name, sentence) for name in names for sentence in sentences(text, name)]
        for (name, sentence), answer in zip(asked, answers, strict=True):
            goals = answer.partition("\n")[2].strip()
            records.setdefault(name, []).append({"sentence": sentence, "goals": goals})
    return records
