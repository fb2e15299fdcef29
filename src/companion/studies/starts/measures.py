"""Measure whether starting as a convolution helps a vision transformer (chapter 18).

The questions and the rules that answer them were committed before the first run. All accuracies are
on the 10,000 test images after the last epoch. Runs in the same setting differ in the seed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from attnconv.heads import mean_by_shift
from attnconv.vit.capture import attention_of

from ...heads import heads_of
from ...runs.record import RunRecord
from ...runs.select import Records
from ...specs import VITS
from ..scaling.measures import STANDARD_ERRORS, pooled_deviation

SHIFTS = "shift_probabilities"  # the name among a record's attention tensors
TIERS = ("vit-5k", "vit-10k", "vit-50k", "vit-10k-long")
#: The accuracies of runs, by model and tier.
Accuracies = Mapping[str, Mapping[str, Sequence[float]]]

RULES = {
    "helps": (
        "Does starting as a convolution help? It does on a data set if the mean accuracy of"
        " vit-convolution exceeds that of vit-default by more than two standard errors of the"
        " difference; it hurts if it falls short by more than two."
    ),
    "grid": (
        "Is it the grid, or only that heads look at few nearby tokens? It is the grid if"
        " vit-convolution exceeds vit-random by more than two standard errors, and if it exceeds"
        " vit-center as well."
    ),
    "data": (
        "Does the gain over timm's start grow as data shrink? It does if the gain on 5,000 images"
        " exceeds that on 50,000 by more than two standard errors."
    ),
    "lasts": (
        "Does the gain last? It shrinks with training if the gain on 10,000 images after 20 epochs"
        " exceeds that after 100 epochs by more than two standard errors."
    ),
    "stays": (
        "Do heads stay on the grid? They do if at least three quarters of the heads of"
        " vit-convolution, by position alone, still have their largest mean mass on the offset that"
        " they started with, and they leave if at most one quarter do; in between they partly stay."
    ),
}
#: How the learning rate for all starts was chosen before the first run.
RATE_RULE = (
    "vit-default alone, seed 0, 10,000 training images and the last 5,000 held out, 8 epochs, at"
    " 0.0005, 0.001 and 0.002: all starts take the rate at which it is best on the held-out images,"
    " so that the baseline is as strong as these rates make it."
)


@dataclass(frozen=True)
class Comparison:
    """A difference between two mean accuracies or two accuracy gains, and its standard error."""

    difference: float
    standard_error: float

    @property
    def sign(self) -> int:
        """The sign of the difference, or 0 if the difference is within two standard errors."""
        if abs(self.difference) <= STANDARD_ERRORS * self.standard_error:
            return 0
        return 1 if self.difference > 0 else -1

    def __str__(self) -> str:
        return f"{self.difference:+.4f} (standard error {self.standard_error:.4f})"


def accuracies_of(records: Records) -> dict[str, dict[str, list[float]]]:
    """Return the accuracies of all finished runs of chapter 18, by model and tier."""
    return {
        model: {
            tier: [record.accuracy for record in runs]
            for tier in TIERS
            if (runs := records.at(tier).of(model))
        }
        for model in VITS
    }


def compare_starts(found: Accuracies, one: str, other: str, tier: str) -> Comparison:
    """Return the mean accuracy of the start `one` minus that of the start `other` in a tier.

    The standard error uses one standard deviation per start, pooled over all tiers with at least
    two seeds.
    """
    difference, variance = 0.0, 0.0
    for start, sign in ((one, 1), (other, -1)):
        values = found[start][tier]
        difference += sign * float(np.mean(values))
        variance += pooled_deviation(found[start]) ** 2 / len(values)
    return Comparison(difference, float(np.sqrt(variance)))


def compare_gains(found: Accuracies, first: str, last: str) -> Comparison:
    """Return the convolution start's gain over timm's in tier `first` minus that in tier `last`."""
    gains = [
        compare_starts(found, "vit-convolution", "vit-default", tier) for tier in (first, last)
    ]
    error = math.hypot(*(gain.standard_error for gain in gains))
    return Comparison(gains[0].difference - gains[1].difference, error)


def share_that_stayed(record: RunRecord) -> float:
    """Return the share of heads whose position bias alone still favours their initial offset."""
    same = [
        (now.shifts == then.shifts).all(dim=1)
        for then, now in zip(heads_of(record, 0), heads_of(record, -1), strict=True)
    ]
    return float(np.mean([float(layer.float().mean()) for layer in same]))


def stays(shares: Sequence[float]) -> str:
    """Return the verdict of the rule "stays", given the share of heads that stayed in each run."""
    share = float(np.mean(shares))
    if share >= 0.75:
        return "stay"
    return "leave" if share <= 0.25 else "partly stay"


NOT_RUN = "not run"
WORDS = {
    "helps": {1: "helps", 0: "no difference shown", -1: "hurts"},
    "data": {1: "grows", 0: "no change shown", -1: "shrinks"},
    "lasts": {1: "shrinks", 0: "no change shown", -1: "grows"},
}


@dataclass(frozen=True)
class Answer:
    """The verdict on a question in `RULES`, and the measurements behind it as text."""

    verdict: str = NOT_RUN
    measured: str = NOT_RUN


def judge(records: Records) -> dict[str, Answer]:
    """Answer each question in `RULES` from the finished runs; "helps" has one answer per tier.

    An answer is "not run" until the required runs exist and each start has two seeds in some tier,
    which the standard error requires.
    """
    found, judged = accuracies_of(records), {}
    ours, default = "vit-convolution", "vit-default"
    for tier in TIERS:
        judged[f"helps, {tier}"] = Answer()
        if _can_compare(found, (ours, default), (tier,)):
            gain = compare_starts(found, ours, default, tier)
            judged[f"helps, {tier}"] = Answer(WORDS["helps"][gain.sign], f"gain {gain}")
    judged["grid"] = Answer()
    controls = ("vit-random", "vit-center")
    if _can_compare(found, (ours, *controls), ("vit-10k",)):
        leads = [compare_starts(found, ours, control, "vit-10k") for control in controls]
        by_grid = all(lead.sign == 1 for lead in leads)
        measured = "; ".join(f"over {c} {lead}" for c, lead in zip(controls, leads, strict=True))
        judged["grid"] = Answer("the grid" if by_grid else "not shown to be the grid", measured)
    for name, (first, last) in PAIRS.items():
        judged[name] = Answer()
        if _can_compare(found, (ours, default), (first, last)):
            change = compare_gains(found, first, last)
            measured = f"gain in {first} minus gain in {last} {change}"
            judged[name] = Answer(WORDS[name][change.sign], measured)
    shares = [share_that_stayed(run) for run in records.at("vit-10k").of(ours)]
    measured = f"share of heads, by run: {', '.join(f'{share:.2f}' for share in shares)}"
    judged["stays"] = Answer(stays(shares), measured) if shares else Answer()
    return judged


def answers(records: Records) -> dict[str, str]:
    """Return the verdicts of `judge` by question, without the measurements."""
    return {name: answer.verdict for name, answer in judge(records).items()}


#: The tiers between which the gain over timm's start is compared.
PAIRS = {"data": ("vit-5k", "vit-50k"), "lasts": ("vit-10k", "vit-10k-long")}


def _can_compare(found: Accuracies, starts: Sequence[str], tiers: Sequence[str]) -> bool:
    return all(
        all(tier in found[start] for tier in tiers)
        and any(len(values) > 1 for values in found[start].values())
        for start in starts
    )


def shift_probabilities(model: nn.Module, images: Tensor, batch_size: int = 20) -> Tensor:
    """Return the mean attention on each shift: `(L, N_h, 2H - 1, 2W - 1)`, float16.

    The mean is over the normalised images `(B, C, H', W')` and the queries for which the shift
    stays inside the image; see `mean_by_shift`. Attention scores include content.
    """
    total: list[Tensor] = []
    for batch in images.split(batch_size):
        sums = [layer.maps.sum(dim=0) for layer in attention_of(model, batch)]
        total = [a + b for a, b in zip(total, sums, strict=True)] if total else sums
    return torch.stack([mean_by_shift(maps / len(images)).half().cpu() for maps in total])
