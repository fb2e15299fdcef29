"""The numbers that chapters 17 and 18 quote."""

from collections.abc import Sequence
from statistics import mean

import torch
from torch import Tensor

from attnconv import inspect_attention

from ...contrasts import Accuracies
from ...display import Numbers
from ...heads import heads_of
from ...runs.record import RunRecord
from ...runs.select import Records
from ...runs.weights import TrainedModel
from ...tiers import VIT_RECIPE
from .factorial import ROTARY
from .factorial import TIER as ROTARY_TIER
from .measures import DEFAULT, OURS, SHIFTS, VIT_TIERS, accuracies_of, compare_starts
from .network import vision_transformer


def numbers(records: Records, trained: TrainedModel) -> Numbers:
    """Return the numbers that chapter 17 quotes, by name; the book's runs must be complete.

    `trained` is the network whose attention on photographs the chapter shows.
    """
    moved = [moved_by_content(run) for tier in VIT_TIERS for run in records.at(tier).of(OURS)]
    return {
        "starts-width": VIT_RECIPE["hidden"],
        "starts-check": trained.check["accuracy"],
        "starts-checked": trained.check["first_test_images"],
        "starts-other": sum(int(heads.sum()) for heads in moved),
        "starts-heads": sum(heads.numel() for heads in moved),
        **_accuracy_numbers(accuracies_of(records)),
        **_bias_numbers(records),
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
    means = mean_accuracies(accuracies)
    found: Numbers = {
        "starts-gain": 100 * gain(accuracies, "vit-10k"),
        "starts-gain-long": 100 * gain(accuracies, "vit-10k-long"),
        "starts-gain-random": 100 * (means["vit-random"] - means[DEFAULT]),
        "starts-n-main": _seeds(accuracies, "vit-10k", OURS, DEFAULT, "vit-random", "vit-center"),
        "starts-n-frozen": _seeds(accuracies, "vit-10k", "vit-frozen"),
        "starts-n-mimetic": _seeds(accuracies, "vit-10k", "vit-mimetic"),
        "starts-seeds": len(accuracies[OURS]["vit-10k"]),
        "starts-seeds-random": len(accuracies["vit-random"]["vit-10k"]),
    }
    found |= {model.replace("vit", "starts"): accuracy for model, accuracy in means.items()}
    for name in ("5k", "50k", "10k-long"):
        found[f"starts-n-{name}"] = _seeds(accuracies, f"vit-{name}", OURS, DEFAULT)
        for start in ("convolution", "default"):
            found[f"starts-{start}-{name}"] = mean(accuracies[f"vit-{start}"][f"vit-{name}"])
    return found


def _seeds(accuracies: Accuracies, tier: str, *models: str) -> str:
    """Return the numbers of seeds of some models in a tier as text, such as "2" or "2 or 3"."""
    counts = {len(accuracies[model][tier]) for model in models}
    return " or ".join(map(str, sorted(counts)))


def _bias_numbers(records: Records) -> Numbers:
    found: Numbers = {}
    for start in ("convolution", "random"):
        runs = records.at("vit-10k").of(f"vit-{start}")
        masses = [layer.mass.mean().item() for run in runs for layer in heads_of(run, 0)]
        found[f"starts-mass-{start}"] = mean(masses)
    for name in ("10k", "10k-long"):
        runs = records.at(f"vit-{name}").of(OURS)
        leads = [lead_of_largest_bias(position_biases(run)[:, -1]).min().item() for run in runs]
        found[f"starts-change-{name}"] = largest_change(runs)
        found[f"starts-lead-{name}"] = min(leads)
    return found


def _long_run_numbers(records: Records) -> Numbers:
    metrics = metrics_of_long_runs(records)
    losses = [epoch["test_loss"] for epoch in metrics["default"]]
    return {
        "starts-train-convolution": metrics["convolution"][-1]["train_accuracy"],
        "starts-train-default": metrics["default"][-1]["train_accuracy"],
        "starts-overfit": 1 + losses.index(min(losses)),
    }


def largest_mass_by_offset(runs: Sequence[RunRecord]) -> float:
    """Return the largest mean attention of a head on an offset, averaged over heads and runs.

    The mean attention on each offset is measured on test images after training.
    """
    return mean(run.attention[SHIFTS].float().flatten(2).amax(dim=2).mean().item() for run in runs)


def rotary_numbers(records: Records) -> Numbers:
    """Return the numbers that chapter 18 quotes, by name; the book's runs must be complete."""
    records = records.at(ROTARY_TIER)
    found: Numbers = {
        name.removeprefix("vit-"): mean(run.accuracy for run in records.of(name)) for name in ROTARY
    }
    for start, name in (("rotary-convolution", "before"), ("convolution", "before-biased")):
        started = vision_transformer(start)
        inside = inspect_attention(started, torch.zeros(1, 3, 32, 32))  # no content yet
        masses = [layer.heads.mass.mean().item() for layer in inside.layers]
        found[f"rotary-mass-{name}"] = mean(masses)
    found["rotary-mass-after"] = largest_mass_by_offset(records.of("vit-rotary-convolution"))
    found["rotary-mass-after-biased"] = largest_mass_by_offset(records.of(OURS))
    found["rotary-gain-biased"] = 100 * gain(accuracies_of(records), ROTARY_TIER)
    return found
