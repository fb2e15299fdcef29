"""Contrasts of mean accuracies, and their standard errors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .runs.select import Records

#: A contrast is shown if it exceeds this many standard errors, unless a rule says otherwise.
STANDARD_ERRORS = 2.0

#: The accuracies of runs by group. Groups with the same first key share a standard deviation.
Accuracies = Mapping[str, Mapping[str, Sequence[float]]]


def accuracies_by_tier(
    records: Records, models: Iterable[str], tiers: Iterable[str]
) -> dict[str, dict[str, list[float]]]:
    """Return the accuracies of the runs by model and tier, without the tiers that have none."""
    found = {
        model: {tier: [run.accuracy for run in records.at(tier).of(model)] for tier in tiers}
        for model in models
    }
    return {model: {t: a for t, a in by_tier.items() if a} for model, by_tier in found.items()}


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of mean accuracies, such as a difference, and its standard error."""

    value: float
    standard_error: float
    standard_errors: float = STANDARD_ERRORS

    @property
    def sign(self) -> int:
        """The sign, or 0 if the value is within `standard_errors` standard errors of zero."""
        if abs(self.value) <= self.standard_errors * self.standard_error:
            return 0
        return 1 if self.value > 0 else -1

    def word(self, positive: str, negative: str, neither: str) -> str:
        """Return the word for the sign of the value, or `neither` if none is shown."""
        return {1: positive, -1: negative, 0: neither}[self.sign]

    def __str__(self) -> str:
        return f"{self.value:+.4f} (standard error {self.standard_error:.4f})"


def contrast(
    accuracies: Accuracies,
    weights: Mapping[tuple[str, str], float],
    standard_errors: float = STANDARD_ERRORS,
) -> Contrast:
    """Return a contrast of the mean accuracies of groups, given the weight of each group.

    The two keys of `accuracies` identify a group. Groups with the same first key share one
    standard deviation, pooled over all of them. Raises ValueError if none of them has two runs.
    """
    value = 0.0
    variance = 0.0
    for (pool, group), weight in weights.items():
        values = accuracies[pool][group]
        value += weight * float(np.mean(values))
        variance += (weight * pooled_deviation(accuracies[pool])) ** 2 / len(values)
    return Contrast(value, math.sqrt(variance), standard_errors)


def blocked_contrast(
    accuracies: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    standard_errors: float = STANDARD_ERRORS,
) -> Contrast:
    """Return a contrast of the mean accuracies of groups whose runs share their seeds.

    `accuracies` lists each group's accuracies in the same order of seeds. The standard error uses
    the deviation that remains after subtracting the mean of each group and of each seed, as in a
    randomized block design.
    """
    values = np.asarray(list(accuracies.values()))  # (groups, seeds)
    groups, seeds = values.shape
    expected = values.mean(axis=1, keepdims=True) + values.mean(axis=0) - values.mean()
    variance = ((values - expected) ** 2).sum() / ((groups - 1) * (seeds - 1))
    value = sum(weight * float(np.mean(accuracies[name])) for name, weight in weights.items())
    squares = sum(weight**2 for weight in weights.values())
    return Contrast(value, math.sqrt(variance * squares / seeds), standard_errors)


def pooled_deviation(accuracies: Mapping[str, Sequence[float]]) -> float:
    """Return the standard deviation of accuracy over seeds, pooled over groups of runs.

    Raises ValueError if no group has at least two runs.
    """
    several = [np.asarray(values) for values in accuracies.values() if len(values) > 1]
    if not several:
        raise ValueError("expected at least one setting with two seeds, got none")
    squares = sum(((values - values.mean()) ** 2).sum() for values in several)
    return float(np.sqrt(squares / sum(len(values) - 1 for values in several)))
