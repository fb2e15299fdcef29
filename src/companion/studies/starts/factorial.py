"""What about a convolutional start helps? The factorial experiment of chapter 18.

The factors are the offsets to which heads attend at first and the start of values and projections.
All runs are in the tier vit-10k. The questions, their contrasts and the rule were committed before
the first run of any start in `FACTORIAL`; accuracies of four of the twelve starts were known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...runs.select import Records
from ..scaling.measures import pooled_deviation
from .measures import Answer

#: The accuracies of runs after the last epoch, by start.
Accuracies = Mapping[str, Sequence[float]]

TIER = "vit-10k"
OFFSETS = ("default", "convolution", "whole", "random", "center", "wide")
MIMETIC = "-mimetic-values"
CELLS = tuple(f"vit-{name}{values}" for values in ("", MIMETIC) for name in OFFSETS)
#: Fewest seeds of a start that a question compares with another, and of any other start.
SEEDS_COMPARED, SEEDS = 5, 3

#: With six questions, a difference of chance alone exceeds this many standard errors in any of them
#: in at most 5 % of experiments (Bonferroni; Student's t with 40 degrees of freedom).
STANDARD_ERRORS = 2.8
RULE = (
    "The effect is the contrast of mean test accuracies after the last epoch. It is shown if it"
    f" exceeds {STANDARD_ERRORS} standard errors in size; otherwise no effect is shown. The"
    " standard error uses one standard deviation, pooled over the twelve starts. A start that is"
    f" compared with another needs {SEEDS_COMPARED} seeds, and any other start {SEEDS}."
)


@dataclass(frozen=True)
class Question:
    """A question, the contrast that answers it, and the words for an effect of either sign.

    `weights` maps starts to their weights in the contrast, which sum to zero.
    """

    text: str
    weights: Mapping[str, float]
    positive: str
    negative: str

    @property
    def seeds(self) -> int:
        """The number of seeds that each start in the contrast needs."""
        return SEEDS if len(self.weights) == len(CELLS) else SEEDS_COMPARED


def _difference(ours: str, other: str) -> dict[str, float]:
    return {f"vit-{ours}": 1.0, f"vit-{other}": -1.0}


QUESTIONS = {
    "grid": Question(
        "Is the 3 x 3 grid better than random whole offsets, the published start's idea?",
        _difference("convolution", "whole"),
        "the grid is better",
        "random whole offsets are better",
    ),
    "whole": Question(
        "Does it matter that random offsets are whole tokens?",
        _difference("whole", "random"),
        "whole offsets are better",
        "continuous offsets are better",
    ),
    "apart": Question(
        "Must heads attend to other tokens than the query's own?",
        _difference("whole", "center"),
        "they must",
        "they should not",
    ),
    "sharp": Question(
        "Must each head attend to few tokens, or is it enough that it sees the neighbourhood?",
        _difference("random", "wide"),
        "sharp heads are better",
        "wide heads are better",
    ),
    "values": Question(
        "Does the mimetic start of values and projections help, averaged over all offsets?",
        {name: (1.0 if name.endswith(MIMETIC) else -1.0) / len(OFFSETS) for name in CELLS},
        "it helps",
        "it hurts",
    ),
    "interaction": Question(
        "Is the gain of random whole offsets over timm's start another with mimetic values?",
        _difference(f"whole{MIMETIC}", f"default{MIMETIC}") | _difference("default", "whole"),
        "the gain is larger",
        "the gain is smaller",
    ),
}


@dataclass(frozen=True)
class Effect:
    """The value of a contrast and its standard error, both in accuracy."""

    value: float
    standard_error: float

    @property
    def sign(self) -> int:
        """The sign of the effect, or 0 if it is not shown; see `RULE`."""
        if abs(self.value) <= STANDARD_ERRORS * self.standard_error:
            return 0
        return 1 if self.value > 0 else -1

    def __str__(self) -> str:
        return f"{self.value:+.4f} (standard error {self.standard_error:.4f})"


def contrast(accuracies: Accuracies, weights: Mapping[str, float]) -> Effect:
    """Return a contrast of the mean accuracies of starts, given each start's accuracies by seed."""
    value = sum(weight * float(np.mean(accuracies[name])) for name, weight in weights.items())
    variance = sum(weight**2 / len(accuracies[name]) for name, weight in weights.items())
    return Effect(value, pooled_deviation(accuracies) * math.sqrt(variance))


def accuracies_of(records: Records) -> Accuracies:
    """Return the accuracies of all finished runs of the factorial, by start."""
    return {name: [run.accuracy for run in records.at(TIER).of(name)] for name in CELLS}


def judge(accuracies: Accuracies) -> dict[str, Answer]:
    """Answer each question whose starts have enough seeds, once all starts have been run."""
    judged = dict.fromkeys(QUESTIONS, Answer())
    if any(len(accuracies.get(name, ())) < SEEDS for name in CELLS):
        return judged
    for name, question in QUESTIONS.items():
        if all(len(accuracies[start]) >= question.seeds for start in question.weights):
            effect = contrast(accuracies, question.weights)
            words = {1: question.positive, -1: question.negative, 0: "no effect shown"}
            judged[name] = Answer(words[effect.sign], f"effect {effect}")
    return judged


def missing_seeds(accuracies: Accuracies) -> dict[str, int]:
    """Return how many seeds of each start are still to be run, without those that are complete."""
    needed = dict.fromkeys(CELLS, SEEDS)
    for question in QUESTIONS.values():
        needed |= {name: max(needed[name], question.seeds) for name in question.weights}
    missing = {name: needed[name] - len(accuracies.get(name, ())) for name in CELLS}
    return {name: count for name, count in missing.items() if count > 0}
