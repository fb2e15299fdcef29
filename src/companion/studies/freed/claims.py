"""Claims and tables of chapter 15, on whether movable heads stay on the grid of a convolution.

The rules were written before the runs. Each rule uses its own names for the verdicts.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from statistics import mean

import torch

from ...accuracy import Accuracy
from ...claims.rules import Answer, Claims, Runs, accuracy, gained, grade, listed, over_runs
from ...display import Table
from ...runs.record import RunRecord
from ...runs.select import Records
from ...specs import ARMS, SPECS
from . import measures as measured
from .arms import STARTS
from .figures import TIER

# The rules were fixed in this commit; the first runs of chapter 15 were started from it.
CLAIMS = Claims(fixed="9c13572")
# The rules about `places-100` were added later, in this commit, before that arm was run.
FIXED_LATER = "7346faa"
PLACE = "chapter 15"


def _fixed(*arms: str) -> str:
    return FIXED_LATER if "places-100" in arms else CLAIMS.fixed


def _heads_stay(runs: Runs, stay: float = 8.5, some: float = 7.0) -> Answer:
    (records,) = runs.values()
    count = mean(map(measured.mean_pixels_occupied, records))
    far = mean(map(measured.median_distance_moved, records))
    layers = over_runs(
        [counts[-1] for counts in measured.pixels_occupied_by_layer(record)] for record in records
    )
    found = f"{count:.2f} of 9 pixels are nearest to a head (by layer: {listed(layers)})"
    found += f"; median distance moved: {far:.2f} pixels"
    return found, "stay" if count >= stay else "some leave" if count >= some else "leave"


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
def _later_is_nearer(runs: Runs) -> Answer:
    distances = [mean(map(measured.median_distance_moved, records)) for records in runs.values()]
    steps = [later < sooner for sooner, later in pairwise(distances)]
    holds = 2 if all(steps) else int(distances[-1] < distances[0])
    found = f"median distance moved, by relax time: {listed(distances, 2)} pixels"
    return found, grade(holds, 2, 1)


@CLAIMS.claim(
    PLACE,
    "heads at random positions return to the grid",
    "return: after training, at least {enough} of the nine pixels are the nearest pixel of some"
    " head (some return: at least {more} more than before training)",
    "random-freed",
    name="random-heads-return",
)
def _return(runs: Runs, enough: float = 8.5, more: float = 1.0) -> Answer:
    start, end = (
        mean(measured.mean_pixels_occupied(r, moment) for r in runs["random-freed"])
        for moment in (0, -1)
    )
    some = "some return" if end >= start + more else "do not return"
    return f"{end:.2f} of 9 pixels, initially {start:.2f}", "return" if end >= enough else some


def _compare(runs: Runs, better: str, worse: str, alike: str, enough: float = 0.01) -> Answer:
    ours, other = runs
    more = gained(runs, ours, other)
    found = f"{accuracy(runs[ours]):.4f} against {accuracy(runs[other]):.4f} ({more:+.4f})"
    return found, better if more >= enough else worse if more <= -enough else alike


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
def _grow(runs: Runs, last: int = 4, share: float = 0.5) -> Answer:
    alone, both = (
        over_runs(
            [factor[-1].item() - 1 for factor, _ in measured.growth_by_layer(record)]
            for record in records
        )
        for records in runs.values()
    )
    pairs = list(zip(alone, both, strict=True))
    grow = [a >= share * b for a, b in pairs[-last:]]
    found = "; ".join(f"{100 * a:+.0f} against {100 * b:+.0f}" for a, b in pairs)
    answer = "grow" if all(grow) else "some grow" if any(grow) else "do not grow"
    return f"growth by layer in percent, fixed against freed alphas: {found}", answer


@CLAIMS.claim(
    PLACE,
    "a freed CNN is no longer a 3 × 3 convolution",
    "no more: its accuracy drops by at least {much} if each layer is replaced by the nearest"
    " convolution of the same kernel size (partly: {some})",
    "freed-100",
)
def _no_convolution(runs: Runs, much: float = 0.1, some: float = 0.01) -> Answer:
    origins = [record.info.parent or {} for record in runs["freed-100"]]
    after = mean(origin["test_accuracy_as_convolutions"] for origin in origins)
    layers = over_runs([origin["distances"] for origin in origins])
    lost = accuracy(runs["freed-100"]) - after
    found = f"{after:.4f} as convolutions; relative distance by layer: {listed(layers, 2)}"
    return found, "no more" if lost >= much else "partly" if lost >= some else "still one"


# --- tables ---------------------------------------------------------------------------------------


def arms_table(records: Records) -> Table:
    """Return a table of each arm's accuracies and the motion of its heads, averaged over seeds."""
    rows = [_arm_row(records.at(TIER), name) for name in ("cnn", *ARMS)]
    caption = (
        "Test accuracy on CIFAR-10, averaged over seeds, of the CNN from which the arm started"
        " (0.1, or chance, after 0 epochs), of its conversion to soft attention, of the trained arm"
        " (± standard deviation), and of this arm with each layer replaced by its nearest"
        " convolution of the same kernel size (batch statistics unchanged). The last four columns"
        " are averaged over 3 × 3 layers and seeds: how many of the nine pixels are nearest to"
        " some head, median distance moved in pixels, mass on a head's nearest pixel, and largest"
        " residual of Lemma 3 on 15 × 15 pixels. Source: the run records in data/runs."
    )
    return Table.of(
        "arms", caption, rows, folded="The accuracies and the motion of the heads, by arm"
    )


def _arm_row(records: Records, name: str) -> dict[str, str]:
    runs, spec = records.of(name), SPECS[name]
    if not runs:
        return {"network": spec.label, "started after": records.state(name)}
    ours = Accuracy.of(runs)
    origins = [record.info.parent for record in runs if record.info.parent]

    def of_origin(key: str) -> str:
        values = [origin[key] for origin in origins if key in origin]
        return f"{mean(values):.4f}" if values else "-"

    cells = {
        "network": spec.label,
        "started after": f"{origins[0]['epochs']} epochs" if origins else "-",
        "CNN at that point": of_origin("test_accuracy"),
        "as attention": of_origin("test_accuracy_at_start") if spec.attention else "-",
        "final accuracy": str(ours),
        "runs": ours.conditions,
        "as convolutions": of_origin("test_accuracy_as_convolutions"),
    }
    if not runs[0].history.by_layer:
        return cells
    mass = mean(
        mean(m[-1].mean().item() for m in measured.mass_on_nearest_pixel_by_layer(record))
        for record in runs
    )
    residual = mean(mean(measured.lemma_3_residual_by_layer(record)) for record in runs)
    return cells | {
        "pixels occupied": f"{mean(map(measured.mean_pixels_occupied, runs)):.2f}",
        "distance moved": f"{mean(map(measured.median_distance_moved, runs)):.2f}",
        "mass on the nearest pixel": f"{mass:.2f}",
        "residual of Lemma 3": f"{residual:.2f}",
    }


def growth_table(records: Records) -> Table:
    """Return a table of how each layer's grid grew, for freed arms whose heads started on it."""
    rows = []
    for name, spec in ARMS.items():
        runs = records.at(TIER).of(name)
        if STARTS[name].heads == "grid" and STARTS[name].freed and runs:
            rows.append({"network": spec.label} | _growth(runs))
    caption = (
        "Growth of the grid in each 3 × 3 layer, averaged over seeds: the growth factor, the share"
        " of the heads' squared displacements that it explains, and the number of different pixels"
        " (inside or outside the kernel) that are nearest to some head. The layers' inputs have"
        " sides of 31, 15, 15, 7, 7 and 3 pixels. Source: the run records in data/runs."
    )
    return Table.of("growth", caption, rows)


def _growth(runs: Sequence[RunRecord]) -> dict[str, str]:
    ends = [
        [[factor[-1], share[-1]] for factor, share in measured.growth_by_layer(record)]
        for record in runs
    ]
    taken = over_runs(measured.distinct_pixels_by_layer(record) for record in runs)
    changes = torch.tensor(ends).mean(dim=0).tolist()
    return {
        f"layer {layer}": f"{factor:.2f}, {share:.0%}, {pixels:.1f}"
        for layer, ((factor, share), pixels) in enumerate(zip(changes, taken, strict=True), start=1)
    }
