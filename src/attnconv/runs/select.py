"""What the pages show of the run records: those of a model, the command that repeats one, and a
note where there is none."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..models import TIERS, tiers_of
from ..store import DamagedFile
from .parameters import FREE_IN_A_TIER, Place, RunParameters
from .record import RunRecord, find_runs

ON_AMD = "mkl-on-amd.so"  # book/train.md makes it; other libraries are found by their names


@dataclass(frozen=True)
class Note:
    """Sentences, each with a command to copy or none, in place of a figure or beside a table. HTML
    in a page, else text."""

    lines: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str, command: str = "") -> "Note":
        return cls(((text, command),))

    def _repr_html_(self) -> str:
        return f'<div class="note">{"".join(self._line(*line) for line in self.lines)}</div>'

    def _line(self, text: str, command: str) -> str:
        # a page breaks lines between them
        words = " ".join(f"<span>{html.escape(word)}</span>" for word in command.split())
        copied = f'<div class="highlight"><pre>{words}</pre></div>' if command else ""
        return f"<p>{html.escape(text)}</p>{copied}"

    def __repr__(self) -> str:
        return "\n".join(f"{text} {command}".strip() for text, command in self.lines)


def commands_of(runs: Sequence[RunRecord]) -> Note:
    """For each run the command that repeats it."""
    return Note(tuple((record.name, command_of(record)) for record in runs))


def other_than_the_recipe(record: RunRecord) -> dict[str, Any]:
    """The parameters of a run that are not the recipe's for its model, data and tier, by name."""
    given = {
        name: value for name, value in record.info.parameters.items() if name not in Place.names()
    }
    usual = RunParameters.check(
        {name: given[name] for name in ("model", "dataset", "tier")}
    ).identity()
    return {name: value for name, value in given.items() if value != usual.get(name)}


def command_of(record: RunRecord) -> str:
    """The command that repeats a run: its model, data and tier, and each parameter that is not the
    recipe's.

    On a CPU with as many threads and the libraries that were preloaded, so that the numbers are
    the same; a run on digits goes to a folder of its own.
    """
    parameters, other = record.info.parameters, other_than_the_recipe(record)
    named = {name: parameters[name] for name in ("model", "dataset")}
    if parameters["tier"] != tiers_of(parameters["dataset"])[0]:
        named |= {"tier": parameters["tier"]} | (
            {"override": True} if other.keys() - FREE_IN_A_TIER else {}
        )
    named |= other
    if parameters["dataset"] == "digits":
        named |= {"runs": "repeated"}
    hardware, environment = record.info.hardware, ""
    if parameters["device"] == "cpu":
        environment = f"OMP_NUM_THREADS={hardware['threads']} "
        if "preloaded" in hardware:
            preloaded = hardware["preloaded"].replace(ON_AMD, f"data/cache/{ON_AMD}")
            environment += f"LD_PRELOAD={preloaded} "
    return environment + command(**named)


def command(**parameters: Any) -> str:
    """The command that trains with these parameters."""
    return " ".join(
        [
            ".venv/bin/python -m attnconv train",
            *(f"--{name} {value}" for name, value in parameters.items()),
        ]
    )


@dataclass(frozen=True)
class Records:
    """One tier's run records: finished ones of its recipe on the whole of CIFAR-10. What else there
    is, `state` tells."""

    found: list[RunRecord]
    problems: dict[str, str]
    tier: str = "paper"

    @classmethod
    def read(cls, folder: str | Path = "", tier: str = "paper") -> "Records":
        """The records of a folder; by default the repository's `data/runs`."""
        return cls(*find_runs(folder or None), tier)

    def at(self, tier: str) -> "Records":
        """The same folder's records of another tier."""
        return replace(self, tier=tier)

    def shown(self, tier: str, *models: str) -> "Records":
        """Those of a tier; for "auto" the paper's where it has been run for all these models, else
        the small one's."""
        if tier == "auto":
            tier = "paper" if all(self.at("paper").of(model) for model in models) else "small"
        return self.at(tier)

    def of(self, *models: str) -> list[RunRecord]:
        """The runs of some models, in their order and by seed."""
        runs = sorted(self._all(), key=lambda record: record.info.parameters["seed"])
        return [
            r
            for model in models
            for r in runs
            if r.info.parameters["model"] == model and not left_out(r)
        ]

    def _all(self) -> list[RunRecord]:
        """Of this tier, left out or not."""
        return [
            record
            for record in self.found
            if record.tier == self.tier and record.info.parameters["dataset"] == "cifar10"
        ]

    def state(self, model: str) -> str:
        """Why a model has no record to show, or which of its records are left out: "not run",
        "damaged: ..."; "" if none is."""
        data = "cifar10" if self.tier == "paper" else f"cifar10-{self.tier}"
        reasons = [
            f"damaged: {text}"
            for name, text in self.problems.items()
            if name.startswith(f"{model}--{data}--")
        ]
        reasons += [
            left_out(record) for record in self._all() if record.info.parameters["model"] == model
        ]
        return "; ".join(reason for reason in reasons if reason) or (
            "" if self.of(model) else "not run"
        )

    def show(self, draw: Callable[[RunRecord], Any], model: str) -> Any:
        """A figure or table of a model's first run; a note when there is none, or none that can be
        read."""
        if runs := self.of(model):
            try:
                return draw(runs[0])
            except DamagedFile as error:  # between reading and drawing
                return Note.of(f"{runs[0].name} is damaged: {error}")
        text = (
            f"{self.name}, {model} on CIFAR-10: {self.state(model)}. This command makes the record"
        )
        return Note.of(
            text + (", with a GPU:" if self.tier == "paper" else ":"), self.command(model)
        )

    @property
    def name(self) -> str:
        return f"{self.tier.capitalize()} tier"

    def command(self, model: str) -> str:
        """The command that makes a model's record."""
        return command(
            model=model, dataset="cifar10", **({} if self.tier == "paper" else {"tier": self.tier})
        )

    def shown_here(self, *models: str) -> Note:
        """One line for a chapter: what `best_run` gives for these models, and with what the paper
        tier would be run."""
        text = (
            f"Figures and tables show the {self.tier if any(map(self.of, models)) else 'quick'}"
            " tier"
        )
        text += "".join(
            f"; {model} on digits ({self.name}: {self.state(model)})"
            for model in models
            if not self.of(model)
        )
        text += (
            "".join(
                f"; {model}: {self.state(model)}"
                for model in models
                if self.of(model) and self.state(model)
            )
            + "."
        )
        missing, command = self._missing_on_paper(models)
        return Note.of(f"{text} {missing}".strip(), command)

    def missing_on_paper(self, *models: str) -> Note | None:
        """Which of these models the paper tier has not run, and with what it would be; None if it
        has run all."""
        missing, command = self._missing_on_paper(models)
        return Note.of(missing, command) if missing else None

    def _missing_on_paper(self, models: Sequence[str]) -> tuple[str, str]:
        paper = self.at("paper")
        if missing := [model for model in models if not paper.of(model)]:
            text = (
                "The paper tier (its sizes, 300 epochs, a GPU) is not run for"
                f" {', '.join(missing)}; the command for one:"
            )
            return text, paper.command(missing[0])
        return "", ""


def left_out(record: RunRecord) -> str:
    """Why a record does not belong to its tier; "" if it does."""
    info = record.info
    if info.parameters["dataset"] != "cifar10":
        return "other data"
    if not record.is_whole:
        return (
            f"left out: {info.dataset['train_images']:,} + {info.dataset['test_images']:,} images,"
            " not the whole of CIFAR-10"
        )
    if info.status != "finished":
        return f"unfinished: {info.epochs_done} of {info.parameters['epochs']} epochs"
    free = set(TIERS[record.tier].may_differ)
    if other := {
        name: value for name, value in other_than_the_recipe(record).items() if name not in free
    }:
        return "left out: another recipe, " + ", ".join(
            f"{name} = {value}" for name, value in other.items()
        )
    return ""
