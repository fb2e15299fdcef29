"""The numbers that chapter 17 quotes."""

from collections.abc import Iterable, Sequence
from statistics import mean

import torch
from torch import Tensor

from ...contrasts import Accuracies
from ...display import Numbers
from ...heads import heads_of
from ...runs.record import RunRecord
from ...runs.select import Records
from ...runs.weights import TrainedModel
from ...tiers import VIT_RECIPE
from .measures import SHIFTS, VIT_TIERS, accuracies_of, compare_starts

OURS, DEFAULT = "vit-convolution", "vit-default"


def numbers(records: Records, trained: TrainedModel) -> Numbers:
    """Return the numbers that chapter 17 quotes, by name; the book's runs must be complete.

    `trained` is the network whose attention on photographs the chapter shows.
    """
    accuracies = accuracies_of(records)
    return {
        "starts-width": VIT_RECIPE["hidden"],
        "starts-check": trained.check["accuracy"],
        "starts-checked": trained.check["first_test_images"],
        **_accuracy_numbers(accuracies),
        **_gain_numbers(accuracies),
        **_seed_numbers(accuracies),
        **_mass_numbers(records),
        **_bias_numbers(records),
        **_content_numbers(records),
        **_long_run_numbers(records),
    }


def mean_accuracies(accuracies: Accuracies) -> dict[str, float]:
    """Return each model's accuracy on 10,000 images after 20 epochs, averaged over seeds."""
    return {model: mean(by_tier["vit-10k"]) for model, by_tier in accuracies.items()}


def gain(accuracies: Accuracies, tier: str) -> float:
    """Return the mean accuracy of the convolution start minus that of timm's start in a tier."""
    return compare_starts(accuracies, OURS, DEFAULT, tier).value


def position_biases(run: RunRecord) -> Tensor:
    """Return a run's position biases after the saved epochs, `(L, n, N_h, 15 * 15)`."""
    return torch.stack([table.flatten(2).float() for table in run.history.layers("table")])


def lead_of_largest_bias(biases: Tensor) -> Tensor:
    """Return by how much the largest bias `(..., offsets)` of each head exceeds all others."""
    best = biases.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]


def largest_change(runs: Sequence[RunRecord]) -> float:
    """Return the largest change of any position bias from the start to the end of training."""
    tables = map(position_biases, runs)
    return max(float((table[:, -1] - table[:, 0]).abs().max()) for table in tables)


def moved_by_content(run: RunRecord) -> Tensor:
    """Return whether each head's best offset, content included, is not the initial one, `(L, N_h)`.

    The mean attention on each offset is measured on test images after training.
    """
    after = run.attention[SHIFTS].float().flatten(2).argmax(dim=-1)
    return after != position_biases(run)[:, 0].argmax(dim=-1)


def metrics_of_long_runs(records: Records) -> dict[str, list[dict]]:
    """Return the metrics by epoch of the runs of 100 epochs, by the name of their start."""
    tier = records.at("vit-10k-long")
    return {start: tier.of(f"vit-{start}")[0].metrics for start in ("convolution", "default")}


def _accuracy_numbers(accuracies: Accuracies) -> Numbers:
    found: Numbers = {
        model.replace("vit", "starts"): accuracy
        for model, accuracy in mean_accuracies(accuracies).items()
    }
    for name in ("5k", "50k", "10k-long"):
        for start in ("convolution", "default"):
            found[f"starts-{start}-{name}"] = mean(accuracies[f"vit-{start}"][f"vit-{name}"])
    return found


def _gain_numbers(accuracies: Accuracies) -> Numbers:
    means = mean_accuracies(accuracies)
    return {
        "starts-gain": 100 * gain(accuracies, "vit-10k"),
        "starts-gain-long": 100 * gain(accuracies, "vit-10k-long"),
        "starts-gain-random": 100 * (means["vit-random"] - means[DEFAULT]),
    }


def _seed_numbers(accuracies: Accuracies) -> Numbers:
    seeds = {
        model: {tier: len(values) for tier, values in by_tier.items()}
        for model, by_tier in accuracies.items()
    }
    found: Numbers = {
        f"starts-n-{name}": _either(seeds[model][f"vit-{name}"] for model in (OURS, DEFAULT))
        for name in ("5k", "50k", "10k-long")
    }
    four = (OURS, DEFAULT, "vit-random", "vit-center")
    return found | {
        "starts-n-main": _either(seeds[model]["vit-10k"] for model in four),
        "starts-n-frozen": seeds["vit-frozen"]["vit-10k"],
        "starts-n-mimetic": seeds["vit-mimetic"]["vit-10k"],
        "starts-seeds": seeds[OURS]["vit-10k"],
        "starts-seeds-random": seeds["vit-random"]["vit-10k"],
    }


def _either(counts: Iterable[int]) -> str:
    """Return several starts' numbers of seeds as text, such as "2" or "2 or 3"."""
    return " or ".join(map(str, sorted(set(counts))))


def _mass_numbers(records: Records) -> Numbers:
    found: Numbers = {}
    for start in ("convolution", "random"):
        runs = records.at("vit-10k").of(f"vit-{start}")
        layers = [layer for run in runs for layer in heads_of(run, 0)]
        found[f"starts-mass-{start}"] = mean(layer.mass.mean().item() for layer in layers)
    return found


def _bias_numbers(records: Records) -> Numbers:
    found: Numbers = {}
    for name in ("10k", "10k-long"):
        runs = records.at(f"vit-{name}").of(OURS)
        leads = [lead_of_largest_bias(position_biases(run)[:, -1]).min().item() for run in runs]
        found[f"starts-change-{name}"] = largest_change(runs)
        found[f"starts-lead-{name}"] = min(leads)
    return found


def _content_numbers(records: Records) -> Numbers:
    moved = [moved_by_content(run) for tier in VIT_TIERS for run in records.at(tier).of(OURS)]
    return {
        "starts-other": sum(int(heads.sum()) for heads in moved),
        "starts-heads": sum(heads.numel() for heads in moved),
    }


def _long_run_numbers(records: Records) -> Numbers:
    metrics = metrics_of_long_runs(records)
    found: Numbers = {
        f"starts-train-{start}": epochs[-1]["train_accuracy"] for start, epochs in metrics.items()
    }
    losses = [epoch["test_loss"] for epoch in metrics["default"]]
    return found | {"starts-overfit": 1 + losses.index(min(losses))}
