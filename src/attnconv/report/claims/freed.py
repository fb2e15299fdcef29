"""Chapter 15: whether heads stay on the grid of a convolution when they may move. Verdicts are
words of their own; the rules were written before the runs."""

from itertools import pairwise
from statistics import mean

from ...measures.grid import (
    growth_by_layer,
    mean_pixels_occupied,
    median_distance_moved,
    pixels_occupied_by_layer,
)
from ...models import ARMS
from .claim import Answer, Claims, Runs, accuracy, gained, grade, listed, over_runs

CLAIMS = Claims()
PLACE = "chapter 15"


def _stay(arm: str) -> None:
    @CLAIMS.claim(
        PLACE,
        f"{ARMS[arm].label}: the heads stay on the grid",
        "stay: on average over layers and seeds at least {stay} of the nine pixels are still the"
        " nearest of some head (some leave: {some})",
        arm,
        stay=8.5,
        some=7.0,
    )
    def _(runs: Runs, stay: float, some: float) -> Answer:
        count = mean(mean_pixels_occupied(record, -1) for record in runs[arm])
        layers = over_runs(
            [counts[-1] for counts in pixels_occupied_by_layer(record)] for record in runs[arm]
        )
        far = mean(median_distance_moved(record) for record in runs[arm])
        found = f"{count:.2f} of 9 pixels (by layer: {listed(layers)})"
        found += f"; median distance moved {far:.2f} pixels"
        return found, "stay" if count >= stay else "some leave" if count >= some else "leave"


for _arm in ("freed-100", "freed-50", "freed-25", "freed-0", "places-100"):
    _stay(_arm)


@CLAIMS.claim(
    PLACE,
    "the later a network is freed, the nearer its heads stay",
    "reproduced: the median distance moved, mean over layers and seeds, falls from each relax time"
    " to the next (partly: from the first to the last)",
    "freed-0",
    "freed-25",
    "freed-50",
    "freed-100",
)
def _later_is_nearer(runs: Runs) -> Answer:
    distances = [mean(map(median_distance_moved, runs[arm])) for arm in runs]
    steps = [later < sooner for sooner, later in pairwise(distances)]
    holds = 2 if all(steps) else int(distances[-1] < distances[0])
    found = f"median distance moved, by relax time: {listed(distances, 2)} pixels"
    return found, grade(holds, 2, 1)


@CLAIMS.claim(
    PLACE,
    "heads at random places return to the grid",
    "return: in the end at least {enough} of the nine pixels are the nearest of some head (some"
    " return: {more} more than at the start)",
    "random-freed",
    enough=8.5,
    more=1.0,
)
def _return(runs: Runs, enough: float, more: float) -> Answer:
    start, end = (
        mean(mean_pixels_occupied(r, moment) for r in runs["random-freed"]) for moment in (0, -1)
    )
    some = "some return" if end >= start + more else "do not return"
    return f"{end:.2f} of 9 pixels, at the start {start:.2f}", "return" if end >= enough else some


def _compared(text: str, ours: str, other: str, words: tuple[str, str, str]) -> None:
    better, worse, alike = words

    @CLAIMS.claim(
        PLACE,
        text,
        f"{better}: {ours} is more accurate than {other} by {{enough}}, mean over the seeds;"
        f" {worse}: less by as much; else {alike}",
        ours,
        other,
        enough=0.01,
    )
    def _(runs: Runs, enough: float) -> Answer:
        more = gained(runs, ours, other)
        found = f"{accuracy(runs[ours]):.4f} against {accuracy(runs[other]):.4f} ({more:+.4f})"
        return found, better if more >= enough else worse if more <= -enough else alike


_compared(
    "freedom helps a trained CNN", "freed-100", "grid-100", ("helps", "harms", "no difference")
)
_compared(
    "freed widths help a trained CNN",
    "freed-100",
    "places-100",
    ("help", "harm", "no difference"),
)
_compared("freedom helps from the start", "freed-0", "grid-0", ("helps", "harms", "no difference"))
_compared("the grid is needed", "grid-0", "random-freed", ("needed", "in the way", "no difference"))
_compared(
    "heads at random places must be freed",
    "random-freed",
    "random-fixed",
    ("must", "must not", "no difference"),
)
_compared(
    "being attention costs a trained CNN accuracy",
    "cnn-on",
    "grid-100",
    ("costs", "gains", "no difference"),
)


@CLAIMS.claim(
    PLACE,
    "grids grow without wider heads",
    "grow: where places alone are freed, each of the last {last} layers grows by at least {share}"
    " of what it grows by where widths are too, mean over seeds (some grow: one at least)",
    "places-100",
    "freed-100",
    last=4,
    share=0.5,
)
def _grow(runs: Runs, last: int, share: float) -> Answer:
    alone, both = (
        over_runs(
            [factor[-1].item() - 1 for factor, _ in growth_by_layer(record)] for record in records
        )
        for records in runs.values()
    )
    pairs = list(zip(alone, both, strict=True))
    grow = [a >= share * b for a, b in pairs[-last:]]
    found = "; ".join(f"{100 * a:+.0f} against {100 * b:+.0f}" for a, b in pairs)
    answer = "grow" if all(grow) else "some grow" if any(grow) else "do not grow"
    return f"growth by layer, in percent: {found}", answer


@CLAIMS.claim(
    PLACE,
    "a CNN that was set free is a 3 × 3 convolution no more",
    "no more: with the nearest convolutions of the same kernel sizes in place of its layers it"
    " loses {much} of its accuracy (partly: {some})",
    "freed-100",
    much=0.1,
    some=0.01,
)
def _no_convolution(runs: Runs, much: float, some: float) -> Answer:
    origins = [record.info.parent or {} for record in runs["freed-100"]]
    after = mean(origin["test_accuracy_as_convolutions"] for origin in origins)
    layers = over_runs([origin["distances"] for origin in origins])
    lost = accuracy(runs["freed-100"]) - after
    found = f"{after:.4f} as convolutions; distance by layer, relative: {listed(layers, 2)}"
    return found, "no more" if lost >= much else "partly" if lost >= some else "still one"
