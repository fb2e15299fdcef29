"""The README's part that is written from the run records, and its picture."""

import io
import re
from pathlib import Path

from ..figures import claim
from ..models.specs import TABLE_4
from ..runs.select import Records
from ..store import REPOSITORY, write_file
from .tables import summary

README, PICTURE = REPOSITORY / "README.md", REPOSITORY / "book" / "claim.png"
MARKS = "<!-- results: written by `python -m attnconv readme` -->", "<!-- end of results -->"


def readme_part(records: Records) -> str:
    """What stands in the README between the marks."""
    done = {
        tier: sum(bool(records.at(tier).of(model)) for model in TABLE_4)
        for tier in ("small", "paper")
    }
    state = " ".join(
        f"{tier.capitalize()} tier: {count} of {len(TABLE_4)} rows run."
        for tier, count in done.items()
    )
    small, paper = (records.at(tier).command("sa-quadratic") for tier in ("small", "paper"))
    state += f" A row is repeated by `{small}`, or with a GPU by `{paper}`."
    return f"{MARKS[0]}\n\n{summary(records).markdown()}\n{state}\n\n{MARKS[1]}"


def update_readme(records: Records, path: Path | None = None) -> bool:
    """Write the part anew; whether it had to change. ValueError when the marks are not there."""
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
    """Draw the README's picture anew: the theorem on a photograph."""
    content = io.BytesIO()
    claim().savefig(content, format="png", metadata={"Software": None})
    write_file(path or PICTURE, content.getvalue())
