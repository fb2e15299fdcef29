"""Shared parts of the rules that judge claims: means over runs, differences and verdicts."""

from collections.abc import Iterable, Sequence
from statistics import mean

from ..accuracy import Accuracy
from ..runs.record import RunRecord
from .claim import Runs, Verdict


def accuracy(runs: Sequence[RunRecord]) -> float:
    """Return the mean test accuracy of the given runs after their last epoch."""
    return Accuracy.of(runs).last


def gained(runs: Runs, ours: str, other: str) -> float:
    """Return the test accuracy of `ours` minus that of `other`, each averaged over its runs."""
    return minus(accuracy(runs[ours]), accuracy(runs[other]))


def minus(ours: float, other: float) -> float:
    """Return the difference between two accuracies, rounded to six decimals.

    This removes floating-point errors, so that 0.943 is within 0.005 of 0.938.
    """
    return round(ours - other, 6)


def reproduced(measured: str, condition: bool) -> Verdict:
    """Return the verdict `reproduced` if a condition is met, otherwise `differs`."""
    return Verdict("reproduced" if condition else "differs", measured)


def graded(measured: str, amount: float, enough: float, some: float) -> Verdict:
    """Return `reproduced` if `amount` >= `enough`, `partly` if it is >= `some`, else `differs`."""
    if amount >= enough:
        return Verdict("reproduced", measured)
    return Verdict("partly" if amount >= some else "differs", measured)


def holds(measured: str, condition: bool) -> Verdict:
    """Return the verdict `holds` if a condition is met, otherwise `fails`."""
    return Verdict("holds" if condition else "fails", measured)


def listed(values: Sequence[float], digits: int = 1) -> str:
    """Return numbers as a comma-separated list, without decimals if all of them are whole."""
    digits = 0 if all(float(value).is_integer() for value in values) else digits
    return ", ".join(f"{value:.{digits}f}" for value in values)


def enumerated(items: Iterable[object]) -> str:
    """Return two or more items as text, such as "1, 2 and 3"."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}"


def over_runs(by_run: Iterable[Sequence[float]]) -> list[float]:
    """Return each layer's mean over the runs; `by_run` lists the values of each run by layer."""
    return [mean(layer) for layer in zip(*by_run, strict=True)]
