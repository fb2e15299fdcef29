"""The tables of chapter 15: accuracies, motion of the heads, growth of the grids, and answers."""

from collections.abc import Sequence
from statistics import mean

from ...accuracy import Accuracy
from ...claims.results import run_links
from ...claims.rules import over_runs
from ...display import Table
from ...runs.record import RunRecord
from ...runs.select import Records
from ...specs import ARMS, SPECS
from . import measures as measured
from .arms import STARTS, TIER
from .claims import CLAIMS


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
    spec = SPECS[name]
    if not (runs := records.of(name)):
        return {"network": spec.label, "started after": records.state(name)}
    ours = Accuracy.of(runs)
    origins = [record.parent for record in runs if record.parent]

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
    centers = measured.centers_of(runs)
    occupied = measured.pixels_occupied(centers[:, :, -1]).double().mean()
    residual = mean(mean(measured.lemma_3_residual_by_layer(record)) for record in runs)
    return cells | {
        "pixels occupied": f"{occupied:.2f}",
        "distance moved": f"{measured.median_distance_moved(centers):.2f}",
        "mass on the nearest pixel": f"{measured.mean_mass_on_nearest_pixel(runs, -1):.2f}",
        "residual of Lemma 3": f"{residual:.2f}",
    }


def growth_table(records: Records) -> Table:
    """Return a table of how each layer's grid grew, for freed arms whose heads started on it."""
    rows = [
        {"network": spec.label} | _growth(runs)
        for name, spec in ARMS.items()
        if STARTS[name].heads == "grid" and STARTS[name].freed
        if (runs := records.at(TIER).of(name))
    ]
    caption = (
        "Growth of the grid in each 3 × 3 layer, averaged over seeds: the growth factor, the share"
        " of the heads' squared displacements that it explains, and the number of different pixels"
        " (inside or outside the kernel) that are nearest to some head. The layers' inputs have"
        " sides of 31, 15, 15, 7, 7 and 3 pixels. Source: the run records in data/runs."
    )
    return Table.of("growth", caption, rows)


def _growth(runs: Sequence[RunRecord]) -> dict[str, str]:
    factors, shares = (
        each[..., -1].mean(dim=0).tolist() for each in measured.growth(measured.centers_of(runs))
    )
    taken = over_runs(measured.distinct_pixels_by_layer(record) for record in runs)
    layers = zip(factors, shares, taken, strict=True)
    return {
        f"layer {layer}": f"{factor:.2f}, {share:.0%}, {pixels:.1f}"
        for layer, (factor, share, pixels) in enumerate(layers, start=1)
    }


def freed_table(records: Records) -> Table:
    """Return a table that answers chapter 15's questions by rules written before its runs."""
    rows = []
    for claim in CLAIMS:
        (found,) = claim.judge(records)
        row = {
            "question": claim.text,
            "answer": found.verdict,
            "result": found.measured,
            "runs": tuple(run_links(claim, records)),
            "rule (and commit)": f"{claim.rule} ({claim.fixed})",
            "sample, and verdict by seed": found.sample or "-",
            "name": claim.name,
        }
        rows.append(row)
    caption = (
        "How freed heads move, and what this does to accuracy (chapter 15). Source: the rules in"
        " companion/studies/freed/claims.py and the run records in data/runs."
    )
    folded = f"All {len(rows)} questions, with answers, results, rules and samples"
    return Table.of("freed", caption, rows, folded=folded, stacked=True)
