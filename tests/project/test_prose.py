"""The text of pages, notebooks and code avoids words that readers found hard to understand.

Spelling is checked by codespell (`make quick`).
"""

import re

import nbformat
import pytest
from helpers import ROOT

# A pattern that is rejected, and what to write instead.
REPLACED = {
    r"how sure": "evidence",
    r"on how much": "sample",
    r"a second route|two routes": "an independent check, two computations",
    r"own pixels?": "nearest pixel",
    r"the house": "code structure",
    r"set(s|ting)? free": "freed, allowed to move",
    r"is found out": "is determined",
    r"are? said below|it is said": "we report",
    r"as far as there (is|are) any": "where available",
    r"which see\b|see there": "a link",
}
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("book/**/*.md"), *ROOT.glob("notebooks/*.ipynb")]
CODE = [*ROOT.glob("src/attnconv/**/*.py"), *ROOT.glob("benchmarks/*.py")]
EXEMPT = {"CHANGELOG.md"}


def prose(path):
    """Return what a reader reads of a file, on one line."""
    if path.suffix != ".ipynb":
        return " ".join(path.read_text(encoding="utf-8").split())
    parts = []
    for cell in nbformat.read(path, 4).cells:
        parts += [cell.source, str(cell.metadata.get("mystnb", ""))]
    return " ".join(" ".join(parts).split())


@pytest.mark.parametrize(
    "path", [path for path in PAGES + CODE if path.name not in EXEMPT], ids=lambda path: path.name
)
def test_words_that_readers_stumbled_over_do_not_return(path):
    text = prose(path)
    found = [
        f"...{text[max(0, match.start() - 40) : match.end() + 20]}...: write {better}"
        for pattern, better in REPLACED.items()
        for match in re.finditer(rf"\b({pattern})\b", text, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)
