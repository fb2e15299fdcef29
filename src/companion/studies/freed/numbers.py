"""The numbers that chapter 15 quotes, and the answers that its text states."""

from statistics import mean

import torch
from torch import Tensor

from ...claims.rules import enumerated, listed
from ...data import CIFAR10_COUNTS
from ...display import Numbers
from ...runs.parameters import RunParameters
from ...runs.record import RunRecord
from ...runs.select import Records
from ...specs import ARMS
from .arms import TIER
from .claims import CLAIMS
from .measures import centers_of, growth, mean_mass_on_nearest_pixel
from .network import START_ALPHA

#: By name, a question that chapter 15 answers and the answer that its text states.
STATED = {
    "late": ("freed at 25 % of training: the heads stay on the grid", "stay"),
    "all": ("freed after training: the heads stay on the grid", "stay"),
    "start": ("freed before training: the heads stay on the grid", "some leave"),
    "later": ("the later a network is freed, the less its heads move", "partly"),
    "back": ("heads at random positions return to the grid", "do not return"),
    "trained": ("freedom helps a trained CNN", "below the threshold"),
    "widths": ("freed widths help a trained CNN", "below the threshold"),
    "alone": ("grids grow without wider heads", "grow"),
    "placed": ("freed after training, alphas fixed: the heads stay on the grid", "stay"),
    "untrained": ("freedom helps from the start", "below the threshold"),
    "needed": ("the grid is needed", "below the threshold"),
    "must": ("heads at random positions must be freed", "below the threshold"),
    "cost": ("being attention costs a trained CNN accuracy", "below the threshold"),
    "nearest": ("a freed CNN is no longer a 3 × 3 convolution", "partly"),
}


def numbers(records: Records) -> Numbers:
    """Return the numbers that chapter 15 quotes, by name; the book's runs must be complete."""
    return {
        **_arm_numbers(records),
        **_growth_numbers(records),
        **_accuracy_numbers(records),
        **_position_numbers(records),
    }


def answers(records: Records) -> dict[str, str]:
    """Return the answer to each of chapter 15's questions, by the question."""
    return {claim.text: claim.judge_in(TIER, records).verdict for claim in CLAIMS}


def runs_of(records: Records, arm: str) -> list[RunRecord]:
    """Return an arm's runs, ordered by seed."""
    return records.at(TIER).of(arm)


def usual_parameters() -> RunParameters:
    """Return the parameters that all arms share."""
    return RunParameters.check({"model": "freed-0", "dataset": "cifar10", "tier": TIER})


def growth_of(records: Records, arm: str) -> tuple[Tensor, Tensor]:
    """Return the growth factor and the share of motion that it explains, of each layer of an arm.

    Both have the shape `(seeds, L, n)`, where n is the number of saved steps of training.
    """
    return growth(centers_of(runs_of(records, arm)))


def leads(records: Records, ours: str, theirs: str) -> list[float]:
    """Return the accuracy of one arm minus that of another, by seed."""
    pairs = zip(runs_of(records, ours), runs_of(records, theirs), strict=True)
    return [one.accuracy - other.accuracy for one, other in pairs]


def lost_as_convolutions(records: Records, arm: str) -> list[float]:
    """Return the accuracy that an arm loses as its nearest convolutions, by seed."""
    return [
        run.accuracy - run.parent["test_accuracy_as_convolutions"] for run in runs_of(records, arm)
    ]


def distances_from_pixels(records: Records, arm: str) -> Tensor:
    """Return the heads' mean distance from their nearest pixels, `(seeds, L, n)`."""
    centers = centers_of(runs_of(records, arm))
    return (centers - centers.round()).norm(dim=-1).mean(dim=-1)


def heads_outside_the_kernel(records: Records, arm: str) -> Tensor:
    """Return how many of a layer's nine trained heads are outside its kernel, `(L,)`, on average.

    The numbers are averaged over the seeds.
    """
    reached = centers_of(runs_of(records, arm))[:, :, -1].abs().amax(dim=-1)
    return (reached > 1.5).sum(dim=-1).double().mean(dim=0)


def position_rates(parameters: RunParameters) -> Tensor:
    """Return the learning rate of the heads' centres at each step of a run on CIFAR-10."""
    steps = steps_per_epoch(parameters)
    rates = [
        parameters.position_rate * parameters.learning_rate_at(epoch, step, steps)
        for epoch in range(parameters.epochs)
        for step in range(steps)
    ]
    return torch.tensor(rates)


def steps_per_epoch(parameters: RunParameters) -> int:
    """Return the number of batches, the last one possibly smaller, in an epoch on CIFAR-10."""
    return -(-CIFAR10_COUNTS["train"] // parameters.batch_size)


def growth_done(records: Records) -> Tensor:
    """Return the percentage of growth that layers 3 to 6 complete in two epochs, `(4,)`.

    The network is the trained CNN with freed heads, and growth is averaged over seeds.
    """
    grown = growth_of(records, "freed-100")[0].mean(dim=0)[2:] - 1
    return 100 * grown[:, 2] / grown[:, -1]


def rates_done() -> float:
    """Return the percentage of the sum of the learning rates that falls in the first two epochs."""
    usual = usual_parameters()
    rates = position_rates(usual)
    return 100 * (rates[: 2 * steps_per_epoch(usual)].sum() / rates.sum()).item()


def _arm_numbers(records: Records) -> Numbers:
    usual = usual_parameters()
    runs = records.at(TIER).of("cnn", *ARMS)
    threads = {record.info.hardware["threads"] for record in runs}
    return {
        "arms-width": usual.width,
        "arms-parent": usual.parent_epochs or 0,
        "arms-number": len(ARMS),
        "arms-epochs": usual.epochs,
        "arms-alpha": f"{START_ALPHA:g}",
        "arms-runs": len(runs),
        "arms-planned": 3 * (1 + len(ARMS)),
        "arms-hours": f"{sum(record.info.wall_seconds for record in runs) / 3600:.1f}",
        "arms-threads": f"{max(threads)} thread" + "s" * (threads != {1}),
    }


def _growth_numbers(records: Records) -> Numbers:
    factors, shares = (each.mean(dim=0)[:, -1] for each in growth_of(records, "freed-100"))
    alone = growth_of(records, "places-100")[0].mean(dim=0)[:, -1]
    early = growth_of(records, "freed-0")[0].mean(dim=0)[3, -1].item()
    return {
        "growth-late": _between(100 * (factors[2:] - 1)),
        "growth-explained": _between(100 * shares[2:]),
        "growth-alone": _between(100 * (alone[2:] - 1)),
        "growth-early": 100 * (early - 1),
        "growth-done": listed(growth_done(records).round().tolist()),
        "rates-done": rates_done(),
    }


def _between(values: Tensor) -> str:
    return f"{values.min().item():.0f} to {values.max().item():.0f}"


def _accuracy_numbers(records: Records) -> Numbers:
    results = {claim.text: claim.judge_in(TIER, records).measured for claim in CLAIMS}
    lost = lost_as_convolutions(records, "freed-100")
    seeds = {len(runs_of(records, arm)) for arm in ARMS}
    return {
        **{f"found-{name}": results[question] for name, (question, _) in STATED.items()},
        "found-seeds": " to ".join(map(str, sorted(seeds))),
        "found-needed-seeds": _signed(leads(records, "grid-0", "random-freed")),
        "found-untrained-seeds": _signed(leads(records, "freed-0", "grid-0")),
        "found-free": mean(leads(records, "freed-0", "random-freed")),
        "found-fixed": mean(leads(records, "grid-0", "random-fixed")),
        "nearest-lost": mean(lost),
        "nearest-seeds": listed(lost, 4),
        "nearest-fixed": mean(lost_as_convolutions(records, "grid-100")),
    }


def _signed(differences: list[float]) -> str:
    return enumerated(f"{difference:+.4f}" for difference in differences)


def _position_numbers(records: Records) -> Numbers:
    scattered = distances_from_pixels(records, "random-freed")[:, 0].mean(dim=0)  # in layer 1
    rates = position_rates(usual_parameters())
    return {
        # nine heads at random, each on one of nine pixels
        "found-chance": 9 * (1 - (8 / 9) ** 9),
        "random-mass": mean_mass_on_nearest_pixel(runs_of(records, "random-freed"), 0),
        "grid-mass": mean_mass_on_nearest_pixel(runs_of(records, "grid-0"), 0),
        "scattered-start": scattered[0].item(),
        "scattered-end": scattered[-1].item(),
        "scattered-out": heads_outside_the_kernel(records, "random-freed")[3].item(),
        "travel-steps": len(rates),
        "travel-peak": f"{rates.max().item():.3g}",
        "travel-sum": rates.sum().item(),
    }
