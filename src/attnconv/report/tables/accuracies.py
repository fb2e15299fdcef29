"""Tables 1 and 4, and their counterparts: accuracy and cost of each model."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ...models import MODELS, build_model, cost_of
from ...models.cost import Cost
from ...models.specs import TABLE_1, TABLE_4
from ...runs.parameters import RunParameters, build_network
from ...runs.record import RunRecord
from ...runs.select import Records
from .table import Table


@dataclass(frozen=True)
class Accuracy:
    """Of a model's runs: mean test accuracy after the last epoch, its sample standard deviation,
    mean of the best epochs'."""

    last: float
    spread: float | None
    best: float
    seeds: int
    epochs: str

    @classmethod
    def of(cls, runs: Sequence[RunRecord]) -> "Accuracy":
        """Of at least one run."""
        last = [record.accuracy for record in runs]
        best = [record.best_accuracy for record in runs]
        epochs = sorted({record.info.epochs_done for record in runs})
        spread = statistics.stdev(last) if len(runs) > 1 else None
        return cls(
            statistics.mean(last),
            spread,
            statistics.mean(best),
            len(runs),
            " or ".join(map(str, epochs)),
        )

    @property
    def conditions(self) -> str:
        return f"{self.seeds} seed{'s' * (self.seeds > 1)}, {self.epochs} epochs"

    def __str__(self) -> str:
        return f"{self.last:.4f}" + (f" ± {self.spread:.4f}" if self.spread is not None else "")


@cache
def cost_in_table(model: str, heads: tuple[int, ...] | None = None) -> Cost:
    """The cost of a model of Table 4, for 32 x 32 images; `heads` per layer where a run pruned
    other heads than the paper."""
    return cost_of(build_model(model, **({"num_heads": heads} if heads else {})))


def table_1(records: Records) -> Table:
    """Table 1: test accuracy on CIFAR-10 and model sizes."""
    return _accuracies("Table 1", "Test accuracy on CIFAR-10 and model sizes", TABLE_1, records)


def table_4(records: Records) -> Table:
    """Table 4: accuracy, parameters and FLOPs of all models; and of the one of appendix F, for
    which the paper prints none."""
    return _accuracies("Table 4", "Accuracy, parameters and FLOPs per model", TABLE_4, records)


def _accuracies(name: str, what: str, models: Sequence[str], records: Records) -> Table:
    rows = [_accuracy_row(model, records) for model in models]
    what += "; in brackets as printed, all FLOPs with every product"
    what += (
        "; measured: after the last epoch, mean over the seeds ± standard deviation; best: of all"
        " epochs"
    )
    source = "Source: the paper; the run records in data/runs"
    source += "; the replication of Varma and Prabhu (2020), one seed; cost_of"
    return Table.of(name.lower().replace(" ", "-"), f"{name}. {what}. {source}.", rows)


def _accuracy_row(model: str, records: Records) -> dict[str, str]:
    spec, runs = MODELS[model], records.of(model)
    published = spec.published
    ours, state = Accuracy.of(runs) if runs else None, records.state(model)
    cost = cost_in_table(model, runs[0].heads_left if runs and spec.parent else None)
    size, flops = (f" ({text})" if text else "" for text in (published.parameters, published.flops))
    difference = ours.last - published.accuracy if ours and published.accuracy else None
    return {
        "model": spec.label,
        "published": f"{published.accuracy:.3f}" if published.accuracy else "-",
        "replication": f"{published.replicated:.4f}" if published.replicated else "-",
        "measured": (f"{ours} ({state})" if state else str(ours)) if ours else state,
        "difference": "-" if difference is None else f"{difference:+.4f}",
        "best": f"{ours.best:.4f}" if ours else "-",
        "conditions": ours.conditions if ours else "-",
        "parameters": f"{cost.parameters:,}{size}",
        "FLOPs, G": f"{cost.flops_paper / 1e9:.3f}{flops}",
        "all FLOPs, G": f"{cost.flops / 1e9:.3f}",
    }


def summary(records: Records) -> Table:
    """The README's table: published accuracy, and measured in the paper and the small tier;
    size."""
    paper, small, rows = records.at("paper"), records.at("small"), []
    for model in TABLE_4:
        published = MODELS[model].published.accuracy
        sizes = [f"{_parameter_count(tier, model):,}" for tier in (paper, small)]
        row = {
            "model": MODELS[model].label,
            "name": model,
            "published": f"{published:.3f}" if published else "-",
            "paper tier": _measured(paper, model),
            "small tier": _measured(small, model),
            "parameters, paper / small": " / ".join(sizes),
        }
        rows.append(row)
    caption = (
        "Test accuracy on CIFAR-10: as published (one seed), and measured here after the last"
        " epoch, mean ± standard deviation over n seeds. Paper tier: the paper's sizes and recipe."
        " Small tier: the same networks made narrower and trained on two cores; compare its"
        " accuracies with each other, not with the published ones. Source: the run records in"
        " data/runs."
    )
    return Table.of("summary", caption, rows)


def _measured(records: Records, model: str) -> str:
    runs = records.of(model)
    ours = Accuracy.of(runs) if runs else None
    return f"{ours} (n = {ours.seeds}, {ours.epochs} epochs)" if ours else records.state(model)


def _parameter_count(records: Records, model: str) -> int:
    """Of a model's first run, or else as it would be."""
    if runs := records.of(model):
        return runs[0].info.parameter_count
    parameters = RunParameters.check({"model": model, "dataset": "cifar10", "tier": records.tier})
    return sum(
        parameter.numel() for parameter in build_network(parameters.model_dump()).parameters()
    )


def small_table(records: Records) -> Table:
    """The small tier's counterpart of Table 4: accuracy over seeds, size, cost, time."""
    rows = []
    for model in TABLE_4:
        for tier in ("small", "small-long"):
            if tier == "small" or records.at(tier).of(model):
                rows.append(_small_row(records.at(tier), model))
    caption = (
        "Small tier: test accuracy on all of CIFAR-10 after the last epoch, mean over the seeds ±"
        " standard deviation; FLOPs of one image, as the paper counts them and with every product;"
        " minutes of one run. Source: the run records in data/runs."
    )
    return Table.of("table-4-small", caption, rows)


def _small_row(records: Records, model: str) -> dict[str, str]:
    runs, row = records.of(model), {"model": MODELS[model].label}
    if not runs:
        return row | {"test accuracy": records.state(model)}
    ours = Accuracy.of(runs)
    cost = cost_of(build_network(runs[0].info.parameters, runs[0].heads_left))
    minutes = statistics.mean(record.info.wall_seconds for record in runs) / 60
    on = sorted(
        {
            f"{record.info.hardware['device']}, {threads} thread{'s' if threads > 1 else ''}"
            for record in runs
            for threads in [record.info.hardware["threads"]]
        }
    )
    return row | {
        "test accuracy": str(ours),
        "seeds": str(ours.seeds),
        "epochs": ours.epochs,
        "parameters": f"{cost.parameters:,}",
        "FLOPs, M": f"{cost.flops_paper / 1e6:.1f}",
        "all FLOPs, M": f"{cost.flops / 1e6:.1f}",
        "minutes": f"{minutes:.0f}",
        "on": "; ".join(on),
    }


def quick_results(runs: Sequence[RunRecord]) -> Table:
    """The quick tier's counterpart of Table 4: what was trained on digits while the book was
    built."""
    rows = [
        {
            "model": MODELS[record.info.parameters["model"]].label,
            "test accuracy": f"{record.accuracy:.3f}",
            "epochs": str(record.info.epochs_done),
            "parameters": f"{record.info.parameter_count:,}",
            "training": f"{record.info.wall_seconds:.0f} s",
        }
        for record in runs
    ]
    settings = runs[0].info
    caption = (
        "Quick tier: test accuracy on scikit-learn's digits after a few epochs, one seed. It says"
        " that the seven models run and learn, nothing about the paper's numbers. Source: trained"
        f" here, on {settings.hardware['device']}."
    )
    return Table.of("quick-results", caption, rows)
