"""The README's part that is written from the run records, and its picture."""

import re
from pathlib import Path

from ..figures import claim
from ..models.specs import TABLE_4
from ..runs.select import Records
from ..store import REPOSITORY, write_file
from .display import png_of
from .tables import summary

README, PICTURE = REPOSITORY / "README.md", REPOSITORY / "book" / "claim.png"
MARKS = "<!-- results: written by `python -m attnconv readme` -->", "<!-- end of results -->"


def readme_part(records: Records) -> str:
    """Return the text of the README between the marks."""
    state, commands = "", []
    for tier in ("small", "paper"):
        mine = records.at(tier)
        count = sum(bool(mine.of(model)) for model in TABLE_4)
        state += f"{mine.name}: {count} of {len(TABLE_4)} rows run. "
        commands.append(mine.command("sa-quadratic"))
    state += f"A row is repeated by `{commands[0]}`, or with a GPU by `{commands[1]}`."
    return f"{MARKS[0]}\n\n{summary(records).markdown()}\n{state}\n\n{MARKS[1]}"


def update_readme(records: Records, path: Path | None = None) -> bool:
    """Write the part anew and return whether it changed; ValueError when the marks are missing."""
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
    """Draw the README's picture anew: Theorem 1 on a photograph."""
    write_file(path or PICTURE, png_of(claim()))
