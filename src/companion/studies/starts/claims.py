"""The claims of chapters 17 and 18, on whether a start as a convolution helps vision transformers.

The questions and the rules that answer them were committed before the first run.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import mean

from ...claims.claim import NOT_YET, RECORDS, Claim, Verdict, by_where
from ...contrasts import Accuracies
from ...runs.select import Records
from . import measures
from .factorial import FACTORIAL_CLAIMS, ROTARY_CLAIMS
from .properties import PROPERTY_CLAIMS
from .published import PUBLISHED_CLAIMS

CONTROLS = ("vit-random", "vit-center")

LITE = "vit-lite-6-4"
PUBLISHED_LITE = 0.9094  # Hassani et al. (2021), one run
LITE_TOLERANCE = 0.01


def _helps(records: Records) -> Verdict:
    found = measures.accuracies_of(records)
    if not _can_compare(found, (measures.OURS, measures.DEFAULT), (records.tier,)):
        return NOT_YET
    gain = measures.compare_starts(found, measures.OURS, measures.DEFAULT, records.tier)
    return Verdict(gain.word("helps", "hurts", "no difference shown"), f"gain {gain}")


def _is_the_grid(records: Records) -> Verdict:
    found = measures.accuracies_of(records)
    if not _can_compare(found, (measures.OURS, *CONTROLS), ("vit-10k",)):
        return NOT_YET
    leads = {
        name: measures.compare_starts(found, measures.OURS, name, "vit-10k") for name in CONTROLS
    }
    measured = "; ".join(f"over {name} {lead}" for name, lead in leads.items())
    by_grid = all(lead.sign == 1 for lead in leads.values())
    return Verdict("the grid" if by_grid else "not shown to be the grid", measured)


def _compare_gains(first: str, last: str, larger: str, smaller: str, records: Records) -> Verdict:
    """Judge whether the gain over timm's start is larger or smaller in `first` than in `last`."""
    found = measures.accuracies_of(records)
    if not _can_compare(found, (measures.OURS, measures.DEFAULT), (first, last)):
        return NOT_YET
    change = measures.compare_gains(found, first, last)
    word = change.word(larger, smaller, "no change shown")
    return Verdict(word, f"gain in {first} minus gain in {last} {change}")


def _reaches_the_yardstick(records: Records) -> Verdict:
    runs = records.at("vit-lite").of(LITE)
    if not runs:
        return NOT_YET
    accuracy = mean(run.accuracy for run in runs)
    word = "reached" if accuracy >= PUBLISHED_LITE - LITE_TOLERANCE else "missed"
    return Verdict(word, f"test accuracy {accuracy:.4f} (published: {PUBLISHED_LITE:.4f})")


def _can_compare(found: Accuracies, starts: Sequence[str], tiers: Sequence[str]) -> bool:
    """Return whether the starts have runs in the tiers, and two seeds each in any tier."""
    return all(
        all(tier in found[start] for tier in tiers)
        and any(len(values) > 1 for values in found[start].values())
        for start in starts
    )


def _heads_stay(records: Records) -> Verdict:
    shares = [measures.share_that_stayed(run) for run in records.at("vit-10k").of(measures.OURS)]
    return stays(shares) if shares else NOT_YET


def stays(shares: Sequence[float]) -> Verdict:
    """Return the verdict on whether heads stay, given the share that stayed in each run."""
    share = mean(shares)
    measured = f"share of heads, by run: {', '.join(f'{each:.2f}' for each in shares)}"
    if share >= 0.75:
        return Verdict("stay", measured)
    return Verdict("leave" if share <= 0.25 else "partly stay", measured)


def _claim(
    name: str,
    question: str,
    rule: str,
    decide: Callable[[Records], Verdict],
    models: Sequence[str],
    tiers: Sequence[str],
    where: tuple[str, ...] = (RECORDS,),
    fixed: str = "ccdf95c",  # the commit that added the rules
) -> Claim:
    runs = tuple(product(models, tiers))
    return Claim(f"start-{name}", "chapter 17", question, rule, where, decide, runs, fixed)


START_CLAIMS = [
    _claim(
        "helps",
        "Does starting as a convolution help?",
        "It does on a data set if the mean accuracy of vit-convolution exceeds that of vit-default"
        " by more than two standard errors of the difference; it hurts if it falls short by more"
        " than two.",
        _helps,
        (measures.OURS, measures.DEFAULT),
        measures.VIT_TIERS,
        where=measures.VIT_TIERS,
    ),
    _claim(
        "grid",
        "Is it the grid, or only that heads look at few nearby tokens?",
        "It is the grid if vit-convolution exceeds vit-random by more than two standard errors,"
        " and if it exceeds vit-center as well.",
        _is_the_grid,
        (measures.OURS, *CONTROLS),
        ("vit-10k",),
    ),
    _claim(
        "data",
        "Does the gain over timm's start grow as data shrink?",
        "It does if the gain on 5,000 images exceeds that on 50,000 by more than two standard"
        " errors.",
        partial(_compare_gains, *measures.PAIRS["data"], "grows", "shrinks"),
        (measures.OURS, measures.DEFAULT),
        measures.PAIRS["data"],
    ),
    _claim(
        "lasts",
        "Does the gain last?",
        "It shrinks with training if the gain on 10,000 images after 20 epochs exceeds that after"
        " 100 epochs by more than two standard errors.",
        partial(_compare_gains, *measures.PAIRS["lasts"], "shrinks", "grows"),
        (measures.OURS, measures.DEFAULT),
        measures.PAIRS["lasts"],
    ),
    _claim(
        "stays",
        "Do heads stay on the grid?",
        "They do if at least three quarters of the heads of vit-convolution, by position alone,"
        " still have their largest mean mass on the offset that they started with, and they leave"
        " if at most one quarter do; in between they partly stay.",
        _heads_stay,
        (measures.OURS,),
        ("vit-10k",),
    ),
]

YARDSTICK = _claim(
    "yardstick",
    "Does ViT-Lite-6/4 reach its published accuracy in our training?",
    "It does if its mean test accuracy after 200 epochs is at most one percentage point below"
    f" {PUBLISHED_LITE}.",
    _reaches_the_yardstick,
    (LITE,),
    ("vit-lite",),
    where=("vit-lite",),
    fixed="b92f3a2",
)

#: All claims of both chapters.
CLAIMS = [
    *START_CLAIMS,
    *FACTORIAL_CLAIMS,
    *ROTARY_CLAIMS,
    *PROPERTY_CLAIMS,
    *PUBLISHED_CLAIMS,
    YARDSTICK,
]


def answers(records: Records) -> dict[str, dict[str, str]]:
    """Return the verdicts on each of `START_CLAIMS`, by the claim's name and by `Verdict.where`."""
    return {claim.name: by_where(claim.judge(records)) for claim in START_CLAIMS}
