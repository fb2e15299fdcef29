"""The experiment of chapter 17 that varies two properties of random offsets one at a time.

The properties are the spread of the offsets, at alpha = 2, and the sharpness alpha, at a spread of
two tokens. Heads that all start on the query's own token have a spread of zero. The questions,
their contrasts and the rule were committed before the first run of any start of
`arms.PROPERTY_STARTS`; the accuracies of spreads 0 and 2 were known, for three seeds each.

Runs with the same seed share the order of the images, all initial weights except the position bias,
and the standard normal numbers that are scaled to offsets. The rule therefore compares starts seed
by seed. The known accuracies suggested this: their differences vary much less between seeds than
the accuracies do.

All runs have the tier vit-10k and its 20 epochs. No held-out accuracies of these starts are
recorded, and the test accuracies by epoch (`epochs_in_final_order`) do not support fewer than 13
epochs. At 13 epochs, all eight starts would have to be trained, and the baselines again; at 20, the
existing runs of two of the starts count, so that little would be saved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...contrasts import Contrast, blocked_contrast
from ...runs.select import Records
from .factorial import SEEDS, Question

#: The starts by the spread of their offsets, in tokens, and by their alpha.
SPREADS = {
    0.0: "vit-center",
    0.5: "vit-spread-0.5",
    1.0: "vit-spread-1",
    2.0: "vit-random",
    4.0: "vit-spread-4",
}
ALPHAS = {0.1: "vit-alpha-0.1", 0.5: "vit-alpha-0.5", 2.0: "vit-random", 8.0: "vit-alpha-8"}
PROPERTIES = {"spread": SPREADS, "alpha": ALPHAS}
STARTS = tuple(dict.fromkeys([*SPREADS.values(), *ALPHAS.values()]))

#: With nine questions, a difference of chance alone exceeds this many standard errors in any of
#: them in at most 5 % of experiments (Bonferroni; Student's t with 14 degrees of freedom).
STANDARD_ERRORS = 3.3
RULE = (
    "The effect is the contrast of mean test accuracies after the last epoch, over seeds 0, 1 and"
    f" 2, which each start needs. It is shown if it exceeds {STANDARD_ERRORS} standard errors in"
    " size; otherwise no effect is shown. The standard error uses the deviation over the eight"
    " starts that remains after the mean of each start and of each seed is subtracted. The chapter"
    " may say that a property matters only if one of its questions has an effect, and that it"
    " matters between two values only if they are neighbours with an effect."
)


@dataclass(frozen=True)
class PairedQuestion(Question):
    """A question about runs whose seeds are compared pairwise: 0, 1, and so on, in every start."""

    seeds: int = SEEDS
    starts: tuple[str, ...] = STARTS
    standard_errors: float = STANDARD_ERRORS

    def effect(self, accuracies: Mapping[str, Sequence[float]]) -> Contrast:
        """Return the contrast of mean accuracies, given each start's accuracies by seed."""
        return blocked_contrast(accuracies, self.weights, self.standard_errors)

    def accuracies(self, records: Records) -> dict[str, list[float]]:
        """Return the accuracies of the seeds that are compared, by start."""
        used = [run for run in records.found if run.info.parameters["seed"] < self.seeds]
        return super().accuracies(Records(used, {}))


def _difference(ours: Sequence[str], others: Sequence[str]) -> dict[str, float]:
    """Return the weights of the average over `ours` minus that over `others`."""
    return dict.fromkeys(ours, 1 / len(ours)) | dict.fromkeys(others, -1 / len(others))


def _steps(name: str) -> dict[str, PairedQuestion]:
    """Return the questions that compare neighbouring values of a property."""
    return {
        f"{name}-{less:g}-to-{more:g}": PairedQuestion(
            f"Does accuracy change if random offsets have {name} {more:g} instead of {less:g}?",
            _difference([more_start], [less_start]),
            "it rises",
            "it falls",
        )
        for (less, less_start), (more, more_start) in pairwise(PROPERTIES[name].items())
    }


QUESTIONS = {
    "spread": PairedQuestion(
        "Is it better, on average over spreads, if heads do not all start on the own token?",
        _difference([SPREADS[spread] for spread in (0.5, 1.0, 2.0, 4.0)], [SPREADS[0.0]]),
        "it is better",
        "it is worse",
    ),
    "alpha": PairedQuestion(
        "Are heads with an alpha of 2 or 8 better than those with 0.1 or 0.5?",
        _difference([ALPHAS[2.0], ALPHAS[8.0]], [ALPHAS[0.1], ALPHAS[0.5]]),
        "sharper heads are better",
        "wider heads are better",
    ),
    **_steps("spread"),
    **_steps("alpha"),
}

PROPERTY_CLAIMS = [
    question.claim(f"property-{name}", RULE, "3331149") for name, question in QUESTIONS.items()
]


def epochs_in_final_order(accuracies: Mapping[str, Sequence[Sequence[float]]]) -> int:
    """Return after how many epochs starts are ordered as after the last epoch, for every seed.

    `accuracies` lists the accuracy after each epoch for each start and seed. The order must also
    hold after all later epochs.
    """
    by_seed = [zip(*curves, strict=True) for curves in zip(*accuracies.values(), strict=True)]
    orders = [[tuple(np.argsort(after)) for after in by_epoch] for by_epoch in by_seed]
    return max(_settled(of_seed) for of_seed in orders)


def _settled(orders: Sequence[tuple[int, ...]]) -> int:
    """Return the number of the epoch, from 1, from which on all orders equal the last one."""
    others = [epoch for epoch, order in enumerate(orders, start=1) if order != orders[-1]]
    return max(others, default=0) + 1
