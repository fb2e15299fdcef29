"""The claims of chapter 15, on whether movable heads stay on the grid of a convolution.

The rules were written before the runs. Each rule uses its own names for the verdicts.
"""

from functools import partial
from itertools import pairwise
from statistics import mean

from ...claims.claim import Claims, Runs, Verdict
from ...claims.rules import accuracy, gained, graded, listed, over_runs
from ...specs import ARMS
from . import measures as measured
from .arms import TIER

# The rules were fixed in this commit; the first runs of chapter 15 were started from it.
CLAIMS = Claims("9c13572", TIER)
# The rules about `places-100` were added later, in this commit, before that arm was run.
FIXED_LATER = "7346faa"
PLACE = "chapter 15"


def _fixed(*arms: str) -> str:
    return FIXED_LATER if "places-100" in arms else CLAIMS.fixed


def _heads_stay(runs: Runs, stay: float = 8.5, some: float = 7.0) -> Verdict:
    (records,) = runs.values()
    centers = measured.centers_of(records)
    layers = measured.pixels_occupied(centers[:, :, -1]).double().mean(dim=0).tolist()
    count = mean(layers)
    far = measured.median_distance_moved(centers)
    found = f"{count:.2f} of 9 pixels are nearest to a head (by layer: {listed(layers)})"
    found += f"; median distance moved: {far:.2f} pixels"
    if count >= stay:
        return Verdict("stay", found)
    return Verdict("some leave" if count >= some else "leave", found)


for _arm in ("freed-100", "freed-50", "freed-25", "freed-0", "places-100"):
    CLAIMS.add(
        _heads_stay,
        PLACE,
        f"{ARMS[_arm].label}: the heads stay on the grid",
        "stay: averaged over layers and seeds, at least {stay} of the nine pixels are still the"
        " nearest pixel of some head (some leave: {some})",
        _arm,
        name=f"heads-stay-{_arm}",
        fixed=_fixed(_arm),
    )


@CLAIMS.claim(
    PLACE,
    "the later a network is freed, the less its heads move",
    "reproduced: the median distance moved, averaged over layers and seeds, decreases from each"
    " relax time to the next (partly: only from the first to the last)",
    *("freed-0", "freed-25", "freed-50", "freed-100"),
)
def _later_is_nearer(runs: Runs) -> Verdict:
    distances = [
        measured.median_distance_moved(measured.centers_of(records)) for records in runs.values()
    ]
    steps = [later < sooner for sooner, later in pairwise(distances)]
    holds = 2 if all(steps) else int(distances[-1] < distances[0])
    found = f"median distance moved, by relax time: {listed(distances, 2)} pixels"
    return graded(found, holds, 2, 1)


@CLAIMS.claim(
    PLACE,
    "heads at random positions return to the grid",
    "return: after training, at least {enough} of the nine pixels are the nearest pixel of some"
    " head (some return: at least {more} more than before training)",
    "random-freed",
    name="random-heads-return",
)
def _return(runs: Runs, enough: float = 8.5, more: float = 1.0) -> Verdict:
    centers = measured.centers_of(runs["random-freed"])
    start, end = (
        measured.pixels_occupied(centers[:, :, moment]).double().mean().item() for moment in (0, -1)
    )
    found = f"{end:.2f} of 9 pixels, initially {start:.2f}"
    if end >= enough:
        return Verdict("return", found)
    return Verdict("some return" if end >= start + more else "do not return", found)


def _compare(runs: Runs, better: str, worse: str, alike: str, enough: float = 0.01) -> Verdict:
    ours, other = runs
    more = gained(runs, ours, other)
    found = f"{accuracy(runs[ours]):.4f} against {accuracy(runs[other]):.4f} ({more:+.4f})"
    if more >= enough:
        return Verdict(better, found)
    return Verdict(worse if more <= -enough else alike, found)


for _name, _text, _ours, _other, _better, _worse in (
    ("freedom-helps", "freedom helps a trained CNN", "freed-100", "grid-100", "helps", "harms"),
    ("widths-help", "freed widths help a trained CNN", "freed-100", "places-100", "help", "harm"),
    (
        "freedom-helps-from-the-start",
        "freedom helps from the start",
        "freed-0",
        "grid-0",
        "helps",
        "harms",
    ),
    ("grid-is-needed", "the grid is needed", "grid-0", "random-freed", "needed", "in the way"),
    (
        "random-heads-must-be-freed",
        "heads at random positions must be freed",
        "random-freed",
        "random-fixed",
        "must",
        "must not",
    ),
    (
        "attention-costs-accuracy",
        "being attention costs a trained CNN accuracy",
        "cnn-on",
        "grid-100",
        "costs",
        "gains",
    ),
):
    CLAIMS.add(
        partial(_compare, better=_better, worse=_worse, alike="below the threshold"),
        PLACE,
        _text,
        f"{{better}}: averaged over the seeds, {_ours} is at least {{enough}} more accurate than"
        f" {_other}; {{worse}}: at least {{enough}} less accurate; otherwise: {{alike}}",
        _ours,
        _other,
        name=_name,
        fixed=_fixed(_ours, _other),
    )


@CLAIMS.claim(
    PLACE,
    "grids grow without wider heads",
    "grow: with only positions freed, each of the last {last} layers grows by at least {share} of"
    " its growth with widths freed as well, averaged over seeds (some grow: at least one does)",
    "places-100",
    "freed-100",
    name="grids-grow",
    fixed=_fixed("places-100"),
)
def _grow(runs: Runs, last: int = 4, share: float = 0.5) -> Verdict:
    alone, both = (
        (measured.growth(measured.centers_of(records))[0][..., -1].mean(dim=0) - 1).tolist()
        for records in runs.values()
    )
    pairs = list(zip(alone, both, strict=True))
    grow = [a >= share * b for a, b in pairs[-last:]]
    found = "growth by layer in percent, fixed against freed alphas: "
    found += "; ".join(f"{100 * a:+.0f} against {100 * b:+.0f}" for a, b in pairs)
    if all(grow):
        return Verdict("grow", found)
    return Verdict("some grow" if any(grow) else "do not grow", found)


@CLAIMS.claim(
    PLACE,
    "a freed CNN is no longer a 3 × 3 convolution",
    "no more: its accuracy drops by at least {much} if each layer is replaced by the nearest"
    " convolution of the same kernel size (partly: {some})",
    "freed-100",
)
def _no_convolution(runs: Runs, much: float = 0.1, some: float = 0.01) -> Verdict:
    origins = [record.parent for record in runs["freed-100"]]
    after = mean(origin["test_accuracy_as_convolutions"] for origin in origins)
    layers = over_runs([origin["distances"] for origin in origins])
    lost = accuracy(runs["freed-100"]) - after
    found = f"{after:.4f} as convolutions; relative distance by layer: {listed(layers, 2)}"
    if lost >= much:
        return Verdict("no more", found)
    return Verdict("partly" if lost >= some else "still one", found)
