"""The factorial experiment of chapter 17: which property of a convolutional start helps.

The factors are the offsets to which heads attend at first and the start of values and projections.
All runs are in the tier vit-10k. The questions, their contrasts and the rule were committed before
the first run of any start in `FACTORIAL`; accuracies of four of the twelve starts were known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...claims.claim import NOT_RUN, Claim, Verdict
from ...contrasts import Contrast, contrast
from ...runs.select import Records

TIER = "vit-10k"
OFFSETS = ("default", "convolution", "whole", "random", "center", "wide")
MIMETIC = "-mimetic-values"
CELLS = tuple(f"vit-{name}{values}" for values in ("", MIMETIC) for name in OFFSETS)
#: Fewest seeds of a start that a question compares with another, and of any other start.
SEEDS_COMPARED = 5
SEEDS = 3

#: With six questions, a difference of chance alone exceeds this many standard errors in any of them
#: in at most 5 % of experiments (Bonferroni; Student's t with 40 degrees of freedom).
STANDARD_ERRORS = 2.8
EFFECT_RULE = (
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

    def judge(self, accuracies: Mapping[str, Sequence[float]]) -> Verdict:
        """Answer the question by `EFFECT_RULE`, given each start's accuracies by seed.

        The answer is "not run" until every start has been run with the seeds that it needs.
        """
        needed = dict.fromkeys(CELLS, SEEDS) | dict.fromkeys(self.weights, self.seeds)
        if any(len(accuracies.get(name, ())) < count for name, count in needed.items()):
            return Verdict(NOT_RUN, NOT_RUN)
        found = effect(accuracies, self.weights)
        words = {1: self.positive, -1: self.negative, 0: "no effect shown"}
        return Verdict(words[found.sign], f"effect {found}")


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


def effect(accuracies: Mapping[str, Sequence[float]], weights: Mapping[str, float]) -> Contrast:
    """Return a contrast of the mean accuracies of starts, given each start's accuracies by seed."""
    of_starts = {(TIER, name): weight for name, weight in weights.items()}
    return contrast({TIER: accuracies}, of_starts, STANDARD_ERRORS)


def accuracies_of(records: Records) -> dict[str, list[float]]:
    """Return the accuracies of all finished runs of the factorial, by start."""
    return {name: [run.accuracy for run in records.at(TIER).of(name)] for name in CELLS}


def _decide(question: Question, records: Records) -> Verdict:
    return question.judge(accuracies_of(records))


FACTORIAL_CLAIMS = [
    Claim(
        f"factorial-{name}",
        "chapter 17",
        question.text,
        EFFECT_RULE,
        (TIER,),
        partial(_decide, question),
        tuple((start, TIER) for start in CELLS),
        fixed="3680b69",  # the commit that added the questions, their contrasts and the rule
    )
    for name, question in QUESTIONS.items()
]
