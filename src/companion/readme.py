"""The parts of the README that are made from the run records, and its picture."""

import re
from pathlib import Path

from .display import Table, png_of
from .figures import claim as draw_claim
from .runs.select import Records
from .specs import TABLE_4
from .store import REPOSITORY, write_file
from .tables import summary

README = REPOSITORY / "README.md"
PICTURE = REPOSITORY / "book" / "claim.png"
MARKS = "<!-- results: written by `python -m attnconv readme` -->", "<!-- end of results -->"

README_CAPTION = (
    "Test accuracy on CIFAR-10 after the last epoch (mean ± standard deviation over n seeds) and as"
    " published (one seed). The small tier has narrower networks, coarser tokens and another"
    " recipe; compare its accuracies only with each other."
)


def readme_part(records: Records) -> str:
    """Return the results part of the README, including the two `MARKS` that enclose it."""
    table, state = summary(records), README_CAPTION
    for tier in ("small", "paper"):
        mine = records.at(tier)
        count = sum(bool(mine.of(model)) for model in TABLE_4)
        state += f" {mine.name}: {count} of {len(TABLE_4)} models run."
    # only these columns, so that the README fits on two screens
    shown = ("model", "published", "paper tier", "small tier")
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    short = Table.of("readme", state, [{name: row[name] for name in shown} for row in rows])
    return f"{MARKS[0]}\n\n{short.markdown()}\n{MARKS[1]}"


def update_readme(records: Records, path: Path | None = None) -> bool:
    """Rewrite the results in the README and return whether they changed.

    Raises ValueError if the README lacks the markers that enclose the results.
    """
    path = path or README
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1]), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(
            f"{path} lacks the marks {MARKS[0]} and {MARKS[1]} between which its table is written;"
            " restore it from git"
        )
    new = pattern.sub(lambda match: readme_part(records), text)
    if new != text:
        write_file(path, new.encode())
    return new != text


def update_picture(path: Path | None = None) -> None:
    """Redraw the README's picture, which illustrates Theorem 1 with a photograph."""
    write_file(path or PICTURE, png_of(draw_claim()))
