"""The runs that the Snakefile plans: the chosen models and seeds, in one tier.

A sweep is described by Snakemake's `config`: `models` and `seeds` (lists), `results` (the folder of
records, checkpoints and executed notebooks; by default data) and any parameter of
`companion.runs.parameters.RunParameters`. Names and folders come from that class, so each record is
expected where training writes it.
"""

from collections.abc import Mapping
from typing import Any

from companion.runs.parameters import RunParameters
from companion.specs import MODELS, SPECS
from companion.tiers import TIERS

SETTINGS = {"models", "seeds", "results"}


class Sweep:
    """The runs of a sweep and where they leave their files.

    `runs` maps the names of the runs asked for to their parameters, as far as these determine the
    name and the recipe; training itself checks the others. Raises ValueError for a model, tier or
    data set that does not exist or does not fit the others.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.results = config.get("results", "data")
        tier = config.get("tier")
        self.dataset = config.get("dataset", TIERS[tier].dataset if tier in TIERS else "cifar10")
        asked = [
            self._run(model, seed)
            for model in config.get("models", models_of(tier))
            for seed in config.get("seeds", [0])
        ]
        self.runs = {run.name: run for run in asked}
        parents = [self._parent(run) for run in asked if needs_parent(run)]
        self._all = {run.name: run for run in parents if run} | self.runs

    @property
    def report(self) -> str:
        """The file with the table of all runs."""
        condition = next(iter(self.runs)).split("--")[1]
        return f"{self.results}/cache/report-{condition}.md"

    def record(self, name: str) -> str:
        """Return the file of a record that only a finished run has."""
        return f"{self.results}/runs/{name}/attention.safetensors"

    def parent(self, name: str) -> str | None:
        """Return the name of the run that a run waits for because it starts from its model.

        A model trained further makes its parent itself, unless the sweep asks for the parent too.
        """
        run = self._all[name]
        parent = self._parent(run)
        if parent and (needs_parent(run) or parent.name in self.runs):
            return parent.name
        return None

    def needs_gpu(self, name: str) -> bool:
        """Return whether a run is meant for a GPU; the others take one core each."""
        return TIERS[self._all[name].tier].needs_gpu

    def parameters(self, name: str) -> dict[str, Any]:
        """Return the parameters that the notebook of a run is given.

        Each run keeps a checkpoint, from which other runs may start, at the latest when it ends.
        """
        run = self._all[name]
        given = {each: self.config[each] for each in self.config if each not in SETTINGS}
        return {
            "model": run.model,
            "seed": run.seed,
            "dataset": self.dataset,
            "resume": True,
            "checkpoint_every": run.checkpoint_every or run.epochs,
            "runs": f"{self.results}/runs",
            "checkpoints": f"{self.results}/cache/checkpoints",
            **given,
        }

    def _run(self, model: str, seed: int | str) -> RunParameters:
        texts = {"model": model, "dataset": self.dataset, "seed": str(seed)}
        if "tier" in self.config:
            texts["tier"] = self.config["tier"]
        return RunParameters.from_texts(texts)

    def _parent(self, run: RunParameters) -> RunParameters | None:
        parent = SPECS[run.model].parent
        return self._run(parent, run.seed) if parent else None


def models_of(tier: str | None) -> list[str]:
    """Return the models that a sweep trains unless it names others."""
    return list((tier in TIERS and TIERS[tier].models) or MODELS)


def needs_parent(run: RunParameters) -> bool:
    """Return whether a run needs the record of its parent: it does not train the parent itself."""
    warm_start = SPECS[run.model].warm_start
    return warm_start is not None and warm_start.share is not None
