"""Table 4 and section 4.1: accuracies and sizes."""

import math
from functools import partial
from statistics import mean

from ...models import MODELS
from ...models.specs import TABLE_4
from ..tables import Accuracy, cost_in_table
from .claim import (
    ABSOLUTE,
    SIZE,
    TOLERANCE,
    Answer,
    Claims,
    Runs,
    accuracy,
    gained,
    grade,
    minus,
    verdict,
)

CLAIMS = Claims()


def _published_accuracy(runs: Runs, model: str, published: float, tolerance: float) -> Answer:
    difference = minus(accuracy(runs[model]), published)
    found = f"{Accuracy.of(runs[model])}, {difference:+.4f} from the published {published:.3f}"
    return found, "exceeded" if difference > tolerance else verdict(difference >= -tolerance)


for _model in TABLE_4:
    if _published := MODELS[_model].published.accuracy:
        CLAIMS.claim(
            "Table 4",
            f"{MODELS[_model].label}: accuracy {_published:.3f}",
            "within {tolerance} of the published accuracy, after the last epoch, mean over the"
            " seeds",
            _model,
            not_small=ABSOLUTE,
            tolerance=TOLERANCE,
        )(partial(_published_accuracy, model=_model, published=_published))


def as_printed(number: float, like: str) -> str:
    """A number rounded as `like` is printed: 12,086,844 like "12.1M" is "12.1M"."""
    unit = {"M": 1e6, "B": 1e9}[like[-1]]
    digits = len(like[:-1].partition(".")[2])
    return f"{number / unit:.{digits}f}{like[-1]}"


@CLAIMS.claim(
    "Table 4",
    "parameters and FLOPs of the six models",
    "rounded as printed they are equal",
    not_small=SIZE,
)
def _sizes(runs: Runs) -> Answer:
    cells = []
    for model in TABLE_4:
        if (published := MODELS[model].published).parameters:
            cost = cost_in_table(model)
            cells += [as_printed(cost.parameters, published.parameters) == published.parameters]
            cells += [as_printed(cost.flops_paper, published.flops) == published.flops]
    return f"{sum(cells)} of {len(cells)} printed numbers are ours, rounded alike", grade(
        sum(cells) / len(cells), 1.0, 0.5
    )


@CLAIMS.claim(
    "4.1, Figure 2",
    "ResNet18 is faster to converge",
    "it reaches accuracy {level} in an earlier epoch than the quadratic model",
    "resnet18",
    "sa-quadratic",
    level=0.9,
)
def _converges_faster(runs: Runs, level: float) -> Answer:
    reached = {}
    for model, records in runs.items():
        first = [
            next((e["epoch"] for e in record.metrics if e["test_accuracy"] >= level), math.inf)
            for record in records
        ]
        reached[model] = mean(first)  # never, as soon as one seed never does
    words = {
        model: f"in epoch {epoch:.0f}" if epoch < math.inf else "never"
        for model, epoch in reached.items()
    }
    found = ", ".join(
        f"{MODELS[model].label} reaches {level} {when}" for model, when in words.items()
    )
    if min(reached.values()) == math.inf:
        return found, "undecided"
    return found, verdict(reached["resnet18"] < reached["sa-quadratic"])


@CLAIMS.claim(
    "4.1, Table 1",
    "self-attention with the quadratic encoding is as accurate as ResNet18",
    "not more than {tolerance} below it",
    "resnet18",
    "sa-quadratic",
    tolerance=TOLERANCE,
)
def _as_accurate(runs: Runs, tolerance: float) -> Answer:
    difference = gained(runs, "sa-quadratic", "resnet18")
    return f"quadratic minus ResNet18: {difference:+.4f}", verdict(difference >= -tolerance)


@CLAIMS.claim(
    "Section 3",
    "the quadratic encoding performs similarly to the learned one, or better",
    "not more than {tolerance} below it",
    "sa-quadratic",
    "sa-learned",
    tolerance=TOLERANCE,
)
def _not_below_learned(runs: Runs, tolerance: float) -> Answer:
    difference = gained(runs, "sa-quadratic", "sa-learned")
    return f"quadratic minus learned: {difference:+.4f}", verdict(difference >= -tolerance)


@CLAIMS.claim(
    "4.1",
    "with content, attention is harder to train",
    "more than {tolerance} below the learned encoding without content",
    "sa-learned",
    "sa-learned-content",
    tolerance=TOLERANCE,
)
def _content_is_harder(runs: Runs, tolerance: float) -> Answer:
    difference = gained(runs, "sa-learned-content", "sa-learned")
    return f"with content minus without: {difference:+.4f}", verdict(difference < -tolerance)
