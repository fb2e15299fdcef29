"""Notes in a page: sentences and commands beside a table, or in place of a missing figure."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..runs.record import RunRecord
from ..runs.select import Records, command_of


@dataclass(frozen=True)
class Note:
    """Sentences, each with a command to copy or none: HTML in a page, text elsewhere."""

    lines: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str, command: str = "") -> "Note":
        """Make a note of one sentence."""
        return cls(((text, command),))

    def _repr_html_(self) -> str:
        return f'<div class="note">{"".join(self._line(*line) for line in self.lines)}</div>'

    def _line(self, text: str, command: str) -> str:
        # a page breaks a long command between the spans
        words = " ".join(f"<span>{html.escape(word)}</span>" for word in command.split())
        copied = f'<div class="highlight"><pre>{words}</pre></div>' if command else ""
        return f"<p>{html.escape(text)}</p>{copied}"

    def __repr__(self) -> str:
        return "\n".join(f"{text} {command}".strip() for text, command in self.lines)


def commands_of(runs: Sequence[RunRecord]) -> Note:
    """Note the command that repeats each run."""
    return Note(tuple((record.name, command_of(record)) for record in runs))


def figure_or_note(records: Records, draw: Callable[[RunRecord], Any], model: str) -> Any:
    """Draw a figure or table of a model's first run, or note how to make the missing record."""
    if runs := records.of(model):
        return draw(runs[0])
    text = f"{records.name}, {model} on CIFAR-10: {records.state(model)}. This command makes the"
    text += " record, with a GPU:" if records.tier == "paper" else " record:"
    return Note.of(text, records.command(model))


def tier_note(records: Records, *models: str) -> Note:
    """Note which tier a chapter shows for these models, and how the paper tier would be run."""
    tier = records.tier if any(map(records.of, models)) else "quick"
    text = f"Figures and tables show the {tier} tier"
    text += "".join(
        f"; {model} on digits ({records.name}: {records.state(model)})"
        for model in models
        if not records.of(model)
    )
    text += "".join(
        f"; {model}: {records.state(model)}"
        for model in models
        if records.of(model) and records.state(model)
    )
    missing = missing_on_paper(records, *models)
    more, command = missing.lines[0] if missing else ("", "")
    return Note.of(f"{text}. {more}".strip(), command)


def missing_on_paper(records: Records, *models: str) -> Note | None:
    """Note which models the paper tier has not been run for, and the command; None if it has."""
    paper = records.at("paper")
    if not (missing := [model for model in models if not paper.of(model)]):
        return None
    text = (
        "The paper tier (its sizes, 300 epochs, a GPU) is not run for"
        f" {', '.join(missing)}; the command for one:"
    )
    return Note.of(text, paper.command(missing[0]))
