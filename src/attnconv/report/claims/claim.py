"""What a claim is, how it is judged, and what the judgements share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean

from ...measures.heads import Heads, heads_of
from ...runs.record import RunRecord
from ...runs.select import Records
from ..tables import Accuracy

Runs = Mapping[str, Sequence[RunRecord]]
Answer = tuple[str, str]  # what was found, and the verdict
# which a smaller one, trained for less, cannot have
ABSOLUTE = "an accuracy of the paper's network"
SIZE = "a size of the paper's networks, which needs no run"
TOLERANCE = 0.005  # of accuracies: half a percentage point
HALF = 0.5  # of a head's mass, on one shift


@dataclass(frozen=True)
class Claim:
    """One claim: where the paper makes it, its words in short, the rule in words, the models it
    needs, and the judgement.

    `not_small`: why the rule cannot be asked of small networks; "" if it can.
    """

    place: str
    text: str
    rule: str
    needs: tuple[str, ...]
    judge: Callable[[Runs], Answer]
    not_small: str = ""


class Claims(list[Claim]):
    """Claims in the order in which they are written down."""

    def claim(
        self,
        place: str,
        text: str,
        rule: str,
        *needs: str,
        not_small: str = "",
        **thresholds: float,
    ):
        """Makes a judgement a claim: its rule is filled in with the thresholds that the judgement
        is given."""

        def register(judge: Callable[..., Answer]) -> Callable[..., Answer]:
            self.append(
                Claim(
                    place,
                    text,
                    rule.format(**thresholds),
                    needs,
                    partial(judge, **thresholds),
                    not_small,
                )
            )
            return judge

        return register


def accuracy(runs: Sequence[RunRecord]) -> float:
    return Accuracy.of(runs).last


def gained(runs: Runs, ours: str, other: str) -> float:
    """How much more accurate one model is than another, mean over the seeds of each."""
    return minus(accuracy(runs[ours]), accuracy(runs[other]))


def minus(ours: float, other: float) -> float:
    """A difference of accuracies, which are multiples of 1e-4: free of rounding, so that 0.943 is
    within 0.005 of 0.938."""
    return round(ours - other, 6)


def verdict(holds: bool) -> str:
    return "reproduced" if holds else "differs"


def grade(amount: float, enough: float, some: float) -> str:
    return "reproduced" if amount >= enough else "partly" if amount >= some else "differs"


def listed(values: Sequence[float], digits: int = 1) -> str:
    """Counts of a single run have no digits after the point."""
    digits = 0 if all(float(value).is_integer() for value in values) else digits
    return ", ".join(f"{value:.{digits}f}" for value in values)


def by_layer(
    runs: Runs, model: str, measure: Callable[[Heads], float], moment: int = -1
) -> list[float]:
    """A measure of each layer, averaged over the runs."""
    return over_runs(
        [measure(heads) for heads in heads_of(record, moment)] for record in runs[model]
    )


def over_runs(by_run: Iterable[Sequence[float]]) -> list[float]:
    """The mean over the runs, layer by layer."""
    return [mean(layer) for layer in zip(*by_run, strict=True)]


def on_one_pixel(runs: Runs, model: str, over: str = "") -> tuple[list[float], str]:
    """How many heads of each layer put half of their mass on one shift, and these numbers in
    words."""
    counts = by_layer(runs, model, lambda heads: int((heads.mass >= HALF).sum()))
    return (
        counts,
        (
            f"heads with a mean probability of at least {HALF} at one shift{over}, by layer:"
            f" {listed(counts)}"
        ),
    )


@dataclass(frozen=True)
class Finding:
    """What a claim came to in one tier: what was found, on how much, and the verdict."""

    found: str
    sure: str
    verdict: str

    @property
    def is_judged(self) -> bool:
        return self.verdict not in ("not run", "not asked")


def finding(claim: Claim, records: Records) -> Finding:
    """Judge a claim by one tier's records."""
    if records.tier != "paper" and claim.not_small:
        return Finding(claim.not_small, "-", "not asked")
    runs = {model: records.of(model) for model in claim.needs}
    if missing := [model for model in claim.needs if not runs[model]]:
        return Finding(
            "; ".join(f"{model}: {records.state(model)}" for model in missing), "-", "not run"
        )
    found, verdict = claim.judge(runs)
    sure = "; ".join(f"{model}: {_how_sure(used)}" for model, used in runs.items()) or "exact"
    return Finding(found, sure + _by_seed(claim, runs), verdict)


def _by_seed(claim: Claim, runs: Runs) -> str:
    """What each run alone would answer, where one model is asked and has several."""
    if len(runs) != 1 or len(used := runs[claim.needs[0]]) == 1:
        return ""
    alone = [claim.judge({claim.needs[0]: [record]})[1] for record in used]
    return f"; each seed alone: {', '.join(alone)}"


def _how_sure(runs: Sequence[RunRecord]) -> str:
    accuracy = Accuracy.of(runs)
    return accuracy.conditions + (
        f", ± {accuracy.spread:.4f}" if accuracy.spread is not None else ""
    )
