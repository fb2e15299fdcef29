"""Judge whether starting as a convolution helps a vision transformer with rotary encodings.

All runs are in the tier vit-10k. The questions and the rule were committed before the first run.
"""

from functools import partial

from ...claims.claim import NOT_RUN, Claim, Verdict
from ...contrasts import contrast
from ...runs.select import Records
from .factorial import TIER

OURS, DEFAULT, RANDOM = (f"vit-rotary-{name}" for name in ("convolution", "default", "random"))
STARTS = (OURS, DEFAULT, RANDOM)
SEEDS = 3

#: With two questions, a difference of chance alone exceeds this many standard errors in either of
#: them in at most 5 % of experiments (Bonferroni; Student's t with 6 degrees of freedom).
STANDARD_ERRORS = 3.0
RULE = (
    "The effect is the difference of mean test accuracies after the last epoch. It is shown if it"
    f" exceeds {STANDARD_ERRORS:g} standard errors in size; otherwise no effect is shown. The"
    " standard error uses one standard deviation, pooled over the three starts. Each start needs"
    f" {SEEDS} seeds."
)


def judge(other: str, positive: str, negative: str, records: Records) -> Verdict:
    """Compare the convolutional start with another one by `RULE`."""
    found = {name: [run.accuracy for run in records.at(TIER).of(name)] for name in STARTS}
    if any(len(accuracies) < SEEDS for accuracies in found.values()):
        return Verdict(NOT_RUN, NOT_RUN)
    weights = {(TIER, OURS): 1.0, (TIER, other): -1.0}
    effect = contrast({TIER: found}, weights, STANDARD_ERRORS)
    words = {1: positive, -1: negative, 0: "no effect shown"}
    return Verdict(words[effect.sign], f"effect {effect}")


QUESTIONS = {
    "helps": (
        "Does starting as a convolution help a network with rotary encodings?",
        partial(judge, DEFAULT, "it helps", "it hurts"),
    ),
    "grid": (
        "With rotary encodings, is the 3 x 3 grid better than random offsets?",
        partial(judge, RANDOM, "the grid is better", "random offsets are better"),
    ),
}
ROTARY_CLAIMS = [
    Claim(
        f"rotary-{name}",
        "chapter 17",
        question,
        RULE,
        (TIER,),
        decide,
        tuple((start, TIER) for start in STARTS),
        fixed="e601f96",  # the commit that added the questions and the rule
    )
    for name, (question, decide) in QUESTIONS.items()
]
