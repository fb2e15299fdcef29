"""Beyond the paper: what single records hold, of heads, of pruning, of weights, and of
themselves."""

from collections.abc import Sequence

from ...data import DATASETS
from ...measures.heads import heads_of, lemma_3_residual
from ...models import ARMS, BEYOND, SPECS, cost_of
from ...models.specs import TABLE_4
from ...runs.parameters import build_network
from ...runs.record import RunRecord
from ...runs.select import Records
from ...runs.weights import WEIGHTS_FILE
from .accuracies import Accuracy
from .table import Table


def lemma_1_table(record: RunRecord) -> Table:
    """Per layer: how many heads nearly meet Lemma 1, how many shifts of a 3 x 3 kernel they cover,
    and Lemma 3's residual.

    The residual is of attention that does not depend on the image; with content there is none.
    """
    encodings = record.history.encodings()
    residuals = [f"{lemma_3_residual(e, *record.grid).max():.2f}" for e in encodings]
    rows = []
    for number, heads in enumerate(heads_of(record)):
        row = {
            "layer": str(number + 1),
            "heads with mass ≥ 0.9": f"{int((heads.mass >= 0.9).sum())} of {len(heads.mass)}",
            "with mass ≥ 0.5": f"{int((heads.mass >= 0.5).sum())} of {len(heads.mass)}",
            "median mass": f"{heads.mass.median():.2f}",
            "median effective pixels": f"{heads.entropy.exp().median():.1f}",
            "of 9 shifts, with mass ≥ 0.5": str(heads.shifts_with_mass(3)),
        }
        if heads.centers is not None:
            row["centre to nearest pixel, median"] = f"{heads.off_pixel.median():.2f}"
        if residuals:
            row["largest residual of Lemma 3"] = residuals[number]
        rows.append(row)
    caption = (
        "How close each layer is to Lemmas 1 and 3. Mass: a head's mean probability of its best"
        " shift (of those up to half the image), over the queries that have it inside the image; a"
        " shift of the 3 × 3 kernel counts if some head has at least half of its mass there."
        " Effective pixels: of the map from the middle pixel; with content, of its mean over 100"
        " test images, which blurs. Residual: over the queries whose kernel lies inside the image."
        f" Source: {record.source}."
    )
    return Table.of(f"lemma-1-{record.name}", caption, rows)


def pruning_table(record: RunRecord) -> Table:
    """What pruning degenerate heads removes and costs, from the record of a pruned run."""
    parent, parameters = record.parent, record.info.parameters
    size, left = DATASETS[parameters["dataset"]].image_size, record.heads_left or ()
    whole = [SPECS[parameters["model"]].heads_before_pruning] * len(left)
    before, pruned = (cost_of(build_network(parameters, heads), size) for heads in (whole, left))
    accuracies = parent["test_accuracy"], parent["test_accuracy_after_pruning"], record.accuracy
    rows = [["test accuracy", *(f"{accuracy:.4f}" for accuracy in accuracies)]]
    for name, old, new in (
        ("heads", sum(whole), sum(left)),
        ("parameters", before.parameters, pruned.parameters),
        ("FLOPs as published", before.flops_paper, pruned.flops_paper),
        ("FLOPs, every product", before.flops, pruned.flops),
    ):
        rows.append([name, f"{old:,}", f"{new:,}", f"{new:,} ({new / old - 1:+.1%})"])
    caption = (
        f"Pruning heads with a condition number above {parent['max_condition']:g} or a largest"
        f" eigenvalue below {parent['min_eigenvalue']:g}; heads removed per layer:"
        f" {', '.join(str(len(heads)) for heads in parent['removed_heads'])}."
        f" Source: {record.source}."
    )
    after = f"after {record.info.epochs_done} more epochs"
    return Table(
        f"pruning-{record.name}", caption, ["quantity", "before", "just after", after], rows
    )


def model_cards(records: Records) -> Table:
    """One line for each model whose weights are kept: what it is, its accuracy, and its file."""
    models = (*TABLE_4, *(BEYOND.keys() - ARMS.keys()))
    caption = (
        "The weights that are kept: of seed 0; the accuracy over all seeds beside its own. Source:"
        " the run records in data/runs."
    )
    return Table.of("model-cards", caption, [_model_card(records, model) for model in models])


def _model_card(records: Records, model: str) -> dict[str, str]:
    card, runs = {"model": SPECS[model].label, "name": model}, records.of(model)
    kept = [record for record in runs if (record.folder / WEIGHTS_FILE).exists()]
    if not kept:
        why = records.state(model) or "not kept"
        return card | {"test accuracy": f"no weights yet: {why}"}
    info, ours = kept[0].info, Accuracy.of(runs)
    return card | {
        "test accuracy": f"{info.final_test_accuracy:.4f}",
        "over the seeds": f"{ours} (n = {ours.seeds})",
        "parameters": f"{info.parameter_count:,}",
        "file": f"{(kept[0].folder / WEIGHTS_FILE).stat().st_size / 1e6:.2f} MB",
        "epochs": str(info.epochs_done),
        "commit": info.git_commit[:10] if info.git_commit else "-",
    }


def records_table(runs: Sequence[RunRecord], name: str) -> Table:
    """Every run: how it went, on what, and from which code. `notes.commands_of` has the commands
    that repeat them."""
    caption = "Run records. A commit with + had changes on top. Source: run.json of each."
    return Table.of(name, caption, [_record_row(record) for record in runs])


def _record_row(record: RunRecord) -> dict[str, str]:
    info, commit, best = record.info, record.info.git_commit, record.best_accuracy
    short = commit[:10] + "+" * commit.endswith("+") if commit else "not known"
    state = "" if info.status == "finished" else f", {info.status}"
    return {
        "record": record.name,
        "epochs": f"{info.epochs_done} of {info.parameters['epochs']}" + state,
        "test accuracy, last (best)": (
            f"{record.accuracy:.4f} ({best:.4f})" if info.epochs_done else "-"
        ),
        "images/s": f"{info.images_per_second:,.0f}" if info.images_per_second else "-",
        "minutes": f"{info.wall_seconds / 60:.1f}",
        "on": f"{info.hardware['device']}, torch {info.versions['torch']}",
        "data": f"{info.dataset['name']} {info.dataset['fingerprint'][:8]}",
        "commit": short,
    }
