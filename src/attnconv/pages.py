"""What the pages show of the run records: those of a model, the command that repeats one, and a note where there is none."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import PLACE, RunParameters
from .runs import RunRecord, find_runs
from .store import DamagedFile


@dataclass(frozen=True)
class Note:
    """Sentences, each with a command to copy or none, in place of a figure or beside a table. HTML in a page, else text."""

    lines: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str, command: str = "") -> "Note":
        return cls(((text, command),))

    def _repr_html_(self) -> str:
        return f'<div class="note">{"".join(self._line(*line) for line in self.lines)}</div>'

    def _line(self, text: str, command: str) -> str:
        copied = f'<div class="highlight"><pre>{html.escape(command)}</pre></div>' if command else ""
        return f"<p>{html.escape(text)}</p>{copied}"

    def __repr__(self) -> str:
        return "\n".join(f"{text} {command}".strip() for text, command in self.lines)


def commands_of(runs: Sequence[RunRecord]) -> Note:
    """For each run the command that repeats it."""
    return Note(tuple((record.name, command_of(record)) for record in runs))


def other_than_the_recipe(record: RunRecord) -> dict[str, Any]:
    """The parameters of a run that are not the recipe's for its model and data, by name."""
    given = {name: value for name, value in record.info.parameters.items() if name not in PLACE}
    usual = RunParameters.check({"model": given["model"], "dataset": given["dataset"]}).identity()
    return {name: value for name, value in given.items() if value != usual.get(name)}


def command_of(record: RunRecord) -> str:
    """The command that repeats a run: its model and data, and each parameter that is not the recipe's.

    On a CPU with as many threads, so that the numbers are the same; a run on digits goes to a folder of its own.
    """
    parameters = record.info.parameters
    named = {name: parameters[name] for name in ("model", "dataset")} | other_than_the_recipe(record)
    if parameters["dataset"] == "digits":
        named |= {"runs": "repeated"}
    threads = f"OMP_NUM_THREADS={record.info.hardware['threads']} " if parameters["device"] == "cpu" else ""
    return threads + command(**named)


def command(**parameters: Any) -> str:
    """The command that trains with these parameters."""
    return " ".join([".venv/bin/python -m attnconv train", *(f"--{name} {value}" for name, value in parameters.items())])


MAY_DIFFER = {"seed", "epochs", "precision", "parent_epochs"}  # from the recipe: what each page prints beside the number


@dataclass(frozen=True)
class Records:
    """The paper tier's run records: finished ones of the recipe on the whole of CIFAR-10. What else there is, `state` tells."""

    found: list[RunRecord]
    problems: dict[str, str]

    @classmethod
    def read(cls, folder: str | Path = "") -> "Records":
        """The records of a folder; by default the repository's `data/runs`."""
        return cls(*find_runs(folder or None))

    def of(self, *models: str) -> list[RunRecord]:
        """The runs of some models, in their order and by seed."""
        runs = sorted(self.found, key=lambda record: record.info.parameters["seed"])
        return [record for model in models for record in runs if record.name.startswith(f"{model}--") and not left_out(record)]

    def state(self, model: str) -> str:
        """Why a model has no record to show, or which of its records are left out: "not run", "damaged: ..."; "" if none is."""
        prefix = f"{model}--cifar10--"
        reasons = [f"damaged: {text}" for name, text in self.problems.items() if name.startswith(prefix)]
        reasons += [left_out(record) for record in self.found if record.name.startswith(prefix)]
        return "; ".join(reason for reason in reasons if reason) or ("" if self.of(model) else "not run")

    def show(self, draw: Callable[[RunRecord], Any], model: str) -> Any:
        """A figure or table of a model's first run; a note when there is none, or none that can be read."""
        if runs := self.of(model):
            try:
                return draw(runs[0])
            except DamagedFile as error:  # between reading and drawing
                return Note.of(f"{runs[0].name} is damaged: {error}")
        return Note.of(
            f"Paper tier, {model} on CIFAR-10: {self.state(model)}. With a GPU this command makes the record:",
            command(model=model, dataset="cifar10"),
        )


def left_out(record: RunRecord) -> str:
    """Why a record does not belong to the paper tier; "" if it does."""
    info = record.info
    if info.parameters["dataset"] != "cifar10":
        return "other data"
    if record.tier != "paper":
        return f"left out: {info.dataset['train_images']:,} + {info.dataset['test_images']:,} images, not the whole of CIFAR-10"
    if info.status != "finished":
        return f"unfinished: {info.epochs_done} of {info.parameters['epochs']} epochs"
    if other := {name: value for name, value in other_than_the_recipe(record).items() if name not in MAY_DIFFER}:
        return "left out: another recipe, " + ", ".join(f"{name} = {value}" for name, value in other.items())
    return ""
