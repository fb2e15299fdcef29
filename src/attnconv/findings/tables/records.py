"""Beyond the paper: what single records hold, of heads, of pruning, of weights, and of
themselves."""

from collections.abc import Sequence

from ...data import DATASETS
from ...models import ARMS, BEYOND, SPECS, cost_of
from ...models.published import TABLE_4
from ...parameters import build_network
from ...records.heads import heads_of, lemma_3_residual
from ...records.record import RunRecord
from ...records.select import Records
from ...records.weights import FILE as WEIGHTS
from .accuracies import Accuracy
from .table import Table


def lemma_1_table(record: RunRecord) -> Table:
    """Per layer: how many heads nearly meet Lemma 1, how many shifts of a 3 x 3 kernel they cover,
    and Lemma 3's residual.

    The residual is of attention that does not depend on the image; with content there is none.
    """
    header = [
        "layer",
        "heads with mass ≥ 0.9",
        "with mass ≥ 0.5",
        "median mass",
        "median effective pixels",
    ]
    header += [
        "centre to nearest pixel, median",
        "of 9 shifts, covered",
        "largest residual of Lemma 3",
    ]
    rows, encodings_then = [], record.history.encodings()
    for number, heads in enumerate(heads_of(record)):
        off = f"{heads.off_pixel.median():.2f}" if heads.centers is not None else "-"
        residual = (
            f"{lemma_3_residual(encodings_then[number], *record.grid).max():.2f}"
            if encodings_then
            else "-"
        )
        counts = [
            f"{int((heads.mass >= share).sum())} of {len(heads.mass)}" for share in (0.9, 0.5)
        ]
        middle = [f"{heads.mass.median():.2f}", f"{heads.entropy.exp().median():.1f}", off]
        rows.append([str(number + 1), *counts, *middle, str(heads.covered(3)), residual])
    caption = (
        "How close each layer is to Lemmas 1 and 3. Mass: a head's mean probability of its best"
        " shift (of those up to half the image), over the queries that have it inside the image; a"
        " shift of the 3 × 3 kernel is covered by a head with at least half of its mass there."
        " Effective pixels: of the map from the middle pixel; with content, of its mean over 100"
        " test images, which blurs. Residual: over the queries whose kernel lies inside the image."
        f" Source: {record.source}."
    )
    return Table(f"lemma-1-{record.name}", caption, header, rows)


def pruning_table(record: RunRecord) -> Table:
    """What pruning degenerate heads removes and costs, from the record of a pruned run."""
    parent, parameters = record.parent, record.info.parameters
    size, left = DATASETS[parameters["dataset"]].image_size, record.heads_left or ()
    whole, pruned = (
        cost_of(build_network(parameters, heads), size) for heads in ([9] * len(left), left)
    )
    rows = [
        [
            "test accuracy",
            f"{parent['test_accuracy']:.4f}",
            f"{parent['test_accuracy_after_pruning']:.4f}",
        ]
    ]
    rows[0].append(f"{record.accuracy:.4f}")
    for name, before, after in (
        ("heads", 9 * len(left), sum(left)),
        ("parameters", whole.parameters, pruned.parameters),
        ("FLOPs as published", whole.flops_paper, pruned.flops_paper),
        ("FLOPs, every product", whole.flops, pruned.flops),
    ):
        rows.append([name, f"{before:,}", f"{after:,}", f"{after:,} ({after / before - 1:+.1%})"])
    caption = (
        f"Pruning heads with a condition number above {parent['max_condition']:g} or a largest"
        f" eigenvalue below {parent['min_eigenvalue']:g}; heads removed per layer:"
        f" {[9 - kept for kept in left]}. Source: {record.source}."
    )
    after = f"after {record.info.epochs_done} more epochs"
    return Table(
        f"pruning-{record.name}", caption, ["quantity", "before", "just after", after], rows
    )


def model_cards(records: Records) -> Table:
    """One line for each model whose weights are kept: what it is, its accuracy, and its file."""
    rows = []
    for model in (*TABLE_4, *(BEYOND.keys() - ARMS.keys())):
        label, runs = SPECS[model].label, records.of(model)
        kept = [record for record in runs if (record.folder / WEIGHTS).exists()]
        if not kept:
            rows.append(
                [
                    label,
                    model,
                    "no weights yet: " + (records.state(model) or "not kept"),
                    *["-"] * 5,
                ]
            )
            continue
        info, ours = kept[0].info, Accuracy.of(runs)
        size = f"{(kept[0].folder / WEIGHTS).stat().st_size / 1e6:.2f} MB"
        cells = [
            f"{info.final_test_accuracy:.4f}",
            f"{ours} (n = {ours.seeds})",
            f"{info.parameter_count:,}",
            size,
        ]
        rows.append(
            [
                label,
                model,
                *cells,
                str(info.epochs_done),
                info.git_commit[:10] if info.git_commit else "-",
            ]
        )
    caption = (
        "The weights that are kept: of seed 0; the accuracy over all seeds beside its own. Source:"
        " the run records in data/runs."
    )
    header = [
        "model",
        "name",
        "test accuracy",
        "over the seeds",
        "parameters",
        "file",
        "epochs",
        "commit",
    ]
    return Table("model-cards", caption, header, rows)


def records_table(runs: Sequence[RunRecord], name: str) -> Table:
    """Every run: how it went, on what, and from which code. `select.commands_of` has the commands
    that repeat them."""
    header = [
        "record",
        "epochs",
        "test accuracy, last (best)",
        "images/s",
        "minutes",
        "on",
        "data",
        "commit",
    ]
    rows = []
    for record in runs:
        info = record.info
        speed = f"{info.images_per_second:,.0f}" if info.images_per_second else "-"
        commit = (
            info.git_commit[:10] + "+" * info.git_commit.endswith("+")
            if info.git_commit
            else "not known"
        )
        accuracy = (
            f"{info.final_test_accuracy:.4f} ({info.best_test_accuracy:.4f})"
            if info.epochs_done
            else "-"
        )
        epochs = f"{info.epochs_done} of {info.parameters['epochs']}"
        data = f"{info.dataset['name']} {info.dataset['fingerprint'][:8]}"
        where = f"{info.hardware['device']}, torch {info.versions['torch']}"
        rows.append(
            [
                record.name,
                epochs,
                accuracy,
                speed,
                f"{info.wall_seconds / 60:.1f}",
                where,
                data,
                commit,
            ]
        )
    return Table(
        name,
        "Run records. A commit with + had changes on top. Source: run.json of each.",
        header,
        rows,
    )
