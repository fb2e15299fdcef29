"""Chapter 15's arms: what each started from and came to."""

from collections.abc import Sequence
from statistics import mean

import torch

from ...measures.grid import (
    distinct_pixels_by_layer,
    growth_by_layer,
    lemma_3_residual_by_layer,
    mass_on_nearest_pixel_by_layer,
    mean_pixels_occupied,
    median_distance_moved,
)
from ...models import ARMS, SPECS
from ...runs.record import RunRecord
from ...runs.select import Records
from .accuracies import Accuracy
from .table import Table

TIER = "small-free"


def arms_table(records: Records) -> Table:
    """Every arm: accuracy before, once it is attention, and in the end, over seeds; what its heads
    did."""
    records = records.at(TIER)
    rows = [_row(records, name) for name in ("cnn", *ARMS)]
    caption = (
        "Test accuracy on all of CIFAR-10, mean over the seeds ± standard deviation: of the CNN"
        " that the arm started from, once its convolutions are soft attention, in the end, and with"
        " the nearest convolution of the same kernel size in place of each layer, batch statistics"
        " as they were (an arm after 0 epochs begins at chance, a tenth). Of the 3 × 3 layers, mean"
        " over layers and seeds: how many of nine pixels are the nearest of some head; the median"
        " distance that heads moved, in pixels; the mass on a head's nearest pixel; the largest"
        " residual of Lemma 3, on 15 × 15 pixels. Source: the run records in data/runs."
    )
    return Table.of("arms", caption, rows)


def growth_table(records: Records) -> Table:
    """Of the networks that were freed on a grid: by layer, whether it only grew."""
    rows = []
    for name, spec in ARMS.items():
        runs = records.at(TIER).of(name)
        if spec.start and spec.start.heads == "grid" and spec.start.freed and runs:
            rows.append({"network": spec.label} | _growth(runs))
    caption = (
        "How the grid of each 3 × 3 layer changed, mean over seeds: the factor by which it grew,"
        " the share of the heads' squared distances that this factor explains, and how many"
        " different pixels, of the kernel or not, are the nearest of some head. The layers see 31,"
        " 15, 15, 7, 7 and 3 pixels a side. Source: the run records in data/runs."
    )
    return Table.of("growth", caption, rows)


def _growth(runs: Sequence[RunRecord]) -> dict[str, str]:
    ends = [
        [[factor[-1], share[-1]] for factor, share in growth_by_layer(record)] for record in runs
    ]
    taken = [distinct_pixels_by_layer(record) for record in runs]
    cells = {}
    for layer, counts in enumerate(zip(*taken, strict=True)):
        factor, share = torch.tensor([run[layer] for run in ends]).mean(dim=0).tolist()
        cells[f"layer {layer + 1}"] = f"{factor:.2f}, {share:.0%}, {mean(counts):.1f}"
    return cells


def _row(records: Records, name: str) -> dict[str, str]:
    runs, network = records.of(name), {"network": SPECS[name].label}
    if not runs:
        return network | {"started after": records.state(name)}
    ours = Accuracy.of(runs)
    origins = [record.info.parent for record in runs if record.info.parent]
    began = f"{origins[0]['epochs']} epochs" if origins else "-"
    start = SPECS[name].start
    turned = start and start.heads  # into attention

    def of_origin(key: str) -> str:
        values = [origin[key] for origin in origins if key in origin]
        return f"{mean(values):.4f}" if values else "-"

    cells = {
        "started after": began,
        "CNN then": of_origin("test_accuracy"),
        "as attention": of_origin("test_accuracy_at_start") if turned else "-",
        "in the end": str(ours),
        "runs": ours.conditions,
        "as convolutions": of_origin("test_accuracy_as_convolutions"),
    }
    return network | cells | (_heads(runs) if runs[0].history.by_layer else {})


def _heads(runs: Sequence[RunRecord]) -> dict[str, str]:
    occupied = mean(map(mean_pixels_occupied, runs))
    far = mean(map(median_distance_moved, runs))
    mass = mean(
        mean(m[-1].mean().item() for m in mass_on_nearest_pixel_by_layer(record)) for record in runs
    )
    residual = mean(mean(lemma_3_residual_by_layer(record)) for record in runs)
    return {
        "pixels occupied": f"{occupied:.2f}",
        "moved": f"{far:.2f}",
        "mass on the nearest pixel": f"{mass:.2f}",
        "Lemma 3": f"{residual:.2f}",
    }
