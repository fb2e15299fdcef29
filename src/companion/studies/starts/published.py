"""The questions of chapter 17 on structured initialisation (Zheng et al., 2025), taken apart.

The published start scales the position encoding, sets queries and keys, and sets values and
projections. Four starts of one network with absolute positions add these changes one at a time; see
`IMPULSE_STARTS` and `impulse`. The scaled encoding comes first, because without it the content of
the tokens decides where heads attend. The questions and the rule were committed before the first
run of any of the four starts.
"""

from functools import partial

from .arms import IMPULSE_STARTS
from .factorial import SEEDS
from .properties import PairedQuestion

STARTS = tuple(f"vit-{name}" for name in IMPULSE_STARTS)
#: As `factorial.STANDARD_ERRORS`, for four questions and 6 degrees of freedom.
STANDARD_ERRORS = 3.6
RULE = (
    "The effect is the difference of mean test accuracies after the last epoch, over seeds 0, 1 and"
    f" 2, which each start needs. It is shown if it exceeds {STANDARD_ERRORS} standard errors in"
    " size; otherwise no effect is shown. The standard error uses the deviation over the four"
    " starts that remains after the mean of each start and of each seed is subtracted."
)

_asks = partial(
    PairedQuestion,
    positive="it helps",
    negative="it hurts",
    seeds=SEEDS,
    starts=STARTS,
    standard_errors=STANDARD_ERRORS,
)
QUESTIONS = {
    "all": _asks(
        "Does structured initialisation help, with all of its changes?",
        {"vit-impulse": 1.0, "vit-absolute": -1.0},
    ),
    "positions": _asks(
        "Does the scaled position encoding of structured initialisation help alone?",
        {"vit-absolute-scaled": 1.0, "vit-absolute": -1.0},
    ),
    "attention": _asks(
        "Do the queries and keys of structured initialisation help, given scaled positions?",
        {"vit-impulse-attention": 1.0, "vit-absolute-scaled": -1.0},
    ),
    "values": _asks(
        "Do the mimetic values of structured initialisation help, given its attention?",
        {"vit-impulse": 1.0, "vit-impulse-attention": -1.0},
    ),
}

PUBLISHED_CLAIMS = [
    question.claim(f"impulse-{name}", RULE, "a66bd1d") for name, question in QUESTIONS.items()
]
