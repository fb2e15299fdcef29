"""Claims, the rules that judge them from run records, and the names of the verdicts."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from ..accuracy import Accuracy
from ..runs.record import RunRecord
from ..runs.select import Records

Runs = Mapping[str, Sequence[RunRecord]]
Answer = tuple[str, str]  # the finding and the verdict
Judgement = Callable[..., Answer]
#: The verdicts on a claim that has been judged.
VERDICTS = ("reproduced", "exceeded", "partly", "differs", "undecided")


@dataclass(frozen=True)
class Claim:
    """A claim and the rule that judges it.

    `name` is a short identifier, unique among all claims, for `python -m attnconv check`. `place`
    is the section of the paper (or the chapter) that makes the claim, and `text` states the claim
    briefly. `rule` is the rule in words, and `judge` is the rule in code. `needs` lists the models
    whose runs the rule uses. `not_small` says why the rule does not apply to small networks, or is
    "" if it does. `shown` is the chapter and anchor of the figure or table that shows the runs.
    `fixed` is the commit by which the rule was settled, before the first run that it judges.
    """

    name: str
    place: str
    text: str
    rule: str
    needs: tuple[str, ...]
    judge: Callable[[Runs], Answer]
    not_small: str = ""
    shown: str = ""
    fixed: str = ""


class Claims(list[Claim]):
    """A list of claims whose rules were settled by commit `fixed`, unless a claim names another."""

    def __init__(self, fixed: str):
        super().__init__()
        self.fixed = fixed

    def add(
        self, judge: Judgement, place: str, text: str, rule: str, *needs: str, **options: str
    ) -> None:
        """Append a claim that is judged by the function `judge`.

        The thresholds are the default arguments of `judge`. They also fill the placeholders in the
        rule's text, so that text and code cannot differ. By default, the claim's name is derived
        from the name of the function.
        """
        given = inspect.signature(judge).parameters.values()
        thresholds = {each.name: each.default for each in given if each.default is not each.empty}
        name = options.pop("name", "") or judge.__name__.strip("_").replace("_", "-")
        options = {"fixed": self.fixed} | options
        self.append(Claim(name, place, text, rule.format(**thresholds), needs, judge, **options))

    def claim(self, *words: str, **options: str) -> Callable[[Judgement], Judgement]:
        """Return a decorator that adds a claim judged by the decorated function; see `add`."""

        def register(judge: Judgement) -> Judgement:
            self.add(judge, *words, **options)
            return judge

        return register


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


def verdict(holds: bool) -> str:
    """Return `reproduced` if a rule holds, otherwise `differs`."""
    return "reproduced" if holds else "differs"


def grade(amount: float, enough: float, some: float) -> str:
    """Return `reproduced` if `amount` >= `enough`, `partly` if it is >= `some`, else `differs`."""
    return "reproduced" if amount >= enough else "partly" if amount >= some else "differs"


def listed(values: Sequence[float], digits: int = 1) -> str:
    """Return numbers as a comma-separated list, without decimals if all of them are whole."""
    digits = 0 if all(float(value).is_integer() for value in values) else digits
    return ", ".join(f"{value:.{digits}f}" for value in values)


def over_runs(by_run: Iterable[Sequence[float]]) -> list[float]:
    """Return each layer's mean over the runs; `by_run` lists the values of each run by layer."""
    return [mean(layer) for layer in zip(*by_run, strict=True)]


@dataclass(frozen=True)
class Finding:
    """The result, the sample and the verdict of judging a claim from the runs of one tier."""

    found: str
    sure: str
    verdict: str

    @property
    def is_judged(self) -> bool:
        """Return whether the tier's runs allowed the claim to be judged."""
        return self.verdict not in ("not run", "not asked")


def finding(claim: Claim, records: Records) -> Finding:
    """Judge a claim from the run records of one tier."""
    if records.tier != "paper" and claim.not_small:
        return Finding(claim.not_small, "-", "not asked")
    runs = {model: records.of(model) for model in claim.needs}
    if missing := [model for model in claim.needs if not runs[model]]:
        states = "; ".join(f"{model}: {records.state(model)}" for model in missing)
        return Finding(states, "-", "not run")
    found, verdict = claim.judge(runs)
    sample = "; ".join(f"{model}: {_sample(used)}" for model, used in runs.items()) or "exact"
    return Finding(found, sample + _by_seed(claim, runs), verdict)


def _by_seed(claim: Claim, runs: Runs) -> str:
    """Return the verdict on each run if the claim is about a single model with several runs."""
    if len(runs) != 1 or len(used := runs[claim.needs[0]]) == 1:
        return ""
    alone = [claim.judge({claim.needs[0]: [record]})[1] for record in used]
    return f"; by seed: {', '.join(alone)}"


def _sample(runs: Sequence[RunRecord]) -> str:
    ours = Accuracy.of(runs)
    return ", ".join(filter(None, (ours.conditions, ours.deviation)))
