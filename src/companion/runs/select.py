"""Select the run records that a page shows, and build the commands that repeat runs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..tiers import TIERS, tiers_of
from .parameters import FREE_IN_A_TIER, Place, RunParameters
from .record import RunRecord, find_runs

ON_AMD = "mkl-on-amd.so"  # built as described in book/train.md; other libraries are found by name


def other_than_the_recipe(record: RunRecord) -> dict[str, Any]:
    """Return the parameters of a run that differ from the recipe for its model, data and tier."""
    given = record.info.parameters
    chosen = {name: given[name] for name in ("model", "dataset", "tier")}
    usual = RunParameters.check(chosen).identity()
    return {
        name: value
        for name, value in given.items()
        if name not in Place.names() and value != usual.get(name)
    }


def command_of(record: RunRecord) -> str:
    """Return the command that repeats a run.

    The command contains the model, data and tier, and each parameter that differs from the recipe.
    For a run on a CPU, it also sets the number of threads and the preloaded libraries, so that the
    results agree. For a run on digits, it sets a separate folder for the new record.
    """
    parameters = record.info.parameters
    other = other_than_the_recipe(record)
    named = {name: parameters[name] for name in ("model", "dataset")}
    if parameters["tier"] != tiers_of(parameters["dataset"])[0]:
        named |= {"tier": parameters["tier"]}
        if other.keys() - FREE_IN_A_TIER:
            named |= {"override": True}
    named |= other
    if parameters["dataset"] == "digits":
        named |= {"runs": "repeated"}
    environment = ""
    if parameters["device"] == "cpu":
        hardware = record.info.hardware
        environment = f"OMP_NUM_THREADS={hardware['threads']} "
        if "preloaded" in hardware:
            preloaded = hardware["preloaded"].replace(ON_AMD, f"data/cache/{ON_AMD}")
            environment += f"LD_PRELOAD={preloaded} "
    return environment + command(**named)


def command(**parameters: Any) -> str:
    """Return the shell command that trains a model with the given parameters."""
    options = [f"--{name} {value}" for name, value in parameters.items()]
    return " ".join([".venv/bin/python -m attnconv train", *options])


@dataclass(frozen=True)
class Records:
    """The run records of one tier: finished runs on CIFAR-10 that follow the tier's recipe.

    `found` holds the records of all tiers, and `left_out` maps the name of each excluded record to
    the reason for its exclusion. `tier` is the tier to which the methods apply.
    """

    found: list[RunRecord]
    left_out: dict[str, str]
    tier: str = "paper"

    @classmethod
    def read(cls, folder: str | Path = "", tier: str = "paper") -> "Records":
        """Read the records in a folder, by default the repository's `data/runs`."""
        records, damaged = find_runs(folder or None)
        left_out = {name: f"damaged: {text}" for name, text in damaged.items()}
        left_out |= {record.name: why for record in records if (why := _why_left_out(record))}
        return cls([record for record in records if record.name not in left_out], left_out, tier)

    def at(self, tier: str) -> "Records":
        """Return the records of the given tier from the same folder."""
        return replace(self, tier=tier)

    def choose_tier(self, tier: str, *models: str) -> "Records":
        """Return the records of the tier that a page requests.

        For "auto", this is the paper tier if all `models` have runs in that tier, else the small
        tier.
        """
        if tier == "auto":
            tier = "paper" if all(self.at("paper").of(model) for model in models) else "small"
        return self.at(tier)

    def of(self, *models: str) -> list[RunRecord]:
        """Return the runs of the given models, ordered by model and then by seed."""
        by_seed = sorted(self.found, key=lambda record: record.info.parameters["seed"])
        return [
            record
            for model in models
            for record in by_seed
            if record.tier == self.tier and record.info.parameters["model"] == model
        ]

    def state(self, model: str) -> str:
        """Return why a model's records are excluded, "not run" if it has no records, or else ""."""
        data = "cifar10" if self.tier == "paper" else f"cifar10-{self.tier}"
        mine = f"{model}--{data}--"
        reasons = [why for name, why in self.left_out.items() if name.startswith(mine)]
        return "; ".join(reasons) or ("" if self.of(model) else "not run")

    @property
    def name(self) -> str:
        """The name of the tier, capitalised for the start of a sentence."""
        return f"{self.tier.capitalize()} tier"

    def command(self, model: str) -> str:
        """Return the command that trains a model in this tier and writes its record."""
        tier = {} if self.tier == "paper" else {"tier": self.tier}
        return command(model=model, dataset="cifar10", **tier)


def _why_left_out(record: RunRecord) -> str:
    """Return why a record does not belong to its tier, or "" if it does."""
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
    try:
        other = other_than_the_recipe(record)
    except ValueError as error:  # its model or tier does not exist here
        return f"left out: {error}"
    for name in TIERS[record.tier].may_differ:
        other.pop(name, None)
    listed = ", ".join(f"{name} = {value}" for name, value in other.items())
    return f"left out: another recipe, {listed}" if listed else ""
