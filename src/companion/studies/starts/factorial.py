"""The experiments of chapters 17 and 18 that ask which property of a convolutional start helps.

The factors of the factorial are the offsets to which heads attend at first and the start of values
and projections. Two further questions, those of chapter 18, are about networks with rotary
encodings. All runs are in the tier vit-10k. The questions, their contrasts and the rules were
committed before the first run of any start that they name; accuracies of four of the factorial's
twelve starts were known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...claims.claim import NOT_YET, Claim, Verdict
from ...contrasts import Contrast, contrast
from ...runs.select import Records

TIER = "vit-10k"
OFFSETS = ("default", "convolution", "whole", "random", "center", "wide")
MIMETIC = "-mimetic-values"
CELLS = tuple(f"vit-{name}{values}" for values in ("", MIMETIC) for name in OFFSETS)
ROTARY = tuple(f"vit-rotary-{name}" for name in ("convolution", "default", "random"))
#: Fewest seeds of a start that a question of the factorial compares, and of any other start.
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
#: The same as `STANDARD_ERRORS` for the two questions on rotary encodings (6 degrees of freedom).
ROTARY_ERRORS = 3.0
ROTARY_RULE = (
    "The effect is the difference of mean test accuracies after the last epoch. It is shown if it"
    f" exceeds {ROTARY_ERRORS:g} standard errors in size; otherwise no effect is shown. The"
    " standard error uses one standard deviation, pooled over the three starts. Each start needs"
    f" {SEEDS} seeds."
)


@dataclass(frozen=True)
class Question:
    """A question, the contrast that answers it, and the words for an effect of either sign.

    `weights` maps starts to their weights in the contrast, which sum to zero; each of these starts
    needs `seeds` seeds. The standard deviation is pooled over all `starts` of the experiment.
    """

    text: str
    weights: Mapping[str, float]
    positive: str
    negative: str
    seeds: int = SEEDS_COMPARED
    starts: tuple[str, ...] = CELLS
    standard_errors: float = STANDARD_ERRORS

    def effect(self, accuracies: Mapping[str, Sequence[float]]) -> Contrast:
        """Return the contrast of mean accuracies, given each start's accuracies by seed."""
        weights = {(TIER, name): weight for name, weight in self.weights.items()}
        return contrast({TIER: accuracies}, weights, self.standard_errors)

    def accuracies(self, records: Records) -> dict[str, list[float]]:
        """Return the accuracies that the question compares, by start."""
        runs = {name: records.at(TIER).of(name) for name in self.starts}
        return {name: [run.accuracy for run in of] for name, of in runs.items()}

    def decide(self, records: Records) -> Verdict:
        """Answer the question from the run records."""
        return self.judge(self.accuracies(records))

    def claim(self, name: str, rule: str, fixed: str, place: str = "chapter 17") -> Claim:
        """Return the question as a claim; `fixed` is the commit that added it and its rule."""
        runs = tuple((start, TIER) for start in self.starts)
        return Claim(name, place, self.text, rule, (TIER,), self.decide, runs, fixed)

    def judge(self, accuracies: Mapping[str, Sequence[float]]) -> Verdict:
        """Answer the question by the experiment's rule, given each start's accuracies by seed.

        The answer is "not run" until every start has been run with the seeds that it needs.
        """
        needed = dict.fromkeys(self.starts, SEEDS) | dict.fromkeys(self.weights, self.seeds)
        if any(len(accuracies.get(name, ())) < count for name, count in needed.items()):
            return NOT_YET
        found = self.effect(accuracies)
        word = found.word(self.positive, self.negative, "no effect shown")
        return Verdict(word, f"effect {found}")


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
        seeds=SEEDS,
    ),
    "interaction": Question(
        "Is the gain of random whole offsets over timm's start another with mimetic values?",
        _difference(f"whole{MIMETIC}", f"default{MIMETIC}") | _difference("default", "whole"),
        "the gain is larger",
        "the gain is smaller",
    ),
}

_about_rotary = partial(Question, seeds=SEEDS, starts=ROTARY, standard_errors=ROTARY_ERRORS)
ROTARY_QUESTIONS = {
    "helps": _about_rotary(
        "Does starting as a convolution help a network with rotary encodings?",
        _difference("rotary-convolution", "rotary-default"),
        "it helps",
        "it hurts",
    ),
    "grid": _about_rotary(
        "With rotary encodings, is the 3 x 3 grid better than random offsets?",
        _difference("rotary-convolution", "rotary-random"),
        "the grid is better",
        "random offsets are better",
    ),
}


FACTORIAL_CLAIMS = [
    question.claim(f"factorial-{name}", EFFECT_RULE, "3680b69")
    for name, question in QUESTIONS.items()
]
ROTARY_CLAIMS = [
    question.claim(f"rotary-{name}", ROTARY_RULE, "e601f96", "chapter 18")
    for name, question in ROTARY_QUESTIONS.items()
]
