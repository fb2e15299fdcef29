"""Tables for chapter 12: the effect of pruning, and a comparison with an unpruned control."""

from statistics import mean

from attnconv.cost import cost_of
from attnconv.networks import NUM_HEADS

from ..claims.paper import TOLERANCE
from ..claims.rules import minus
from ..data import DATASETS
from ..display import Table
from ..models import build_network
from ..runs.record import RunRecord
from ..runs.select import Records
from ..specs import SPECS

COMPARED = ("sa-generalized-pruned", "sa-generalized-on")
CONTROL_RULE = (
    "Is the pruned model as accurate as the unpruned one after the same further training? The"
    " control sa-generalized-on starts from the same parent as sa-generalized-pruned, with the same"
    " seed, recipe and number of epochs, but keeps all heads. The answer is yes if, averaged over"
    f" the seeds for which both were run, the accuracy of the pruned model is at most {TOLERANCE}"
    " below that of the control. Otherwise, it is no."
)


def pruning_table(record: RunRecord) -> Table:
    """Return a table that compares a model before and after pruning, and after further training."""
    parent, parameters = record.parent, record.info.parameters
    size, left = DATASETS[parameters["dataset"]].image_size, record.heads_left or ()
    whole = [NUM_HEADS] * len(left)
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
        f"The effect of pruning heads with a condition number above {parent['max_condition']:g} or"
        f" a largest eigenvalue below {parent['min_eigenvalue']:g}. Heads removed per layer:"
        f" {', '.join(str(len(heads)) for heads in parent['removed_heads'])}. Source:"
        f" {record.source}."
    )
    after = f"after {record.info.epochs_done} more epochs"
    return Table(
        f"pruning-{record.name}", caption, ["quantity", "before", "just after", after], rows
    )


def by_seed(records: Records) -> dict[int, dict[str, RunRecord]]:
    """Return the runs of the pruned model and the control in a tier, by seed and then by model."""
    runs = sorted(records.of(*COMPARED), key=lambda run: run.info.parameters["seed"])
    found: dict[int, dict[str, RunRecord]] = {}
    for run in runs:
        of = run.info.parameters
        found.setdefault(of["seed"], {})[of["model"]] = run
    return found


def answer(records: Records) -> str:
    """Return the answer given by `CONTROL_RULE`, or "not run" if no seed has both runs."""
    differences = lost(records)
    if not differences:
        return "not run"
    return "yes" if mean(differences) <= TOLERANCE else "no"


def lost(records: Records) -> list[float]:
    """Return the accuracy of the control minus that of the pruned model, by seed.

    A seed is left out unless both runs start from the same parent. A parent that was trained again
    on another processor can differ by rounding, and then has another test accuracy.
    """
    both = [runs for runs in by_seed(records).values() if len(runs) == len(COMPARED)]
    return [
        minus(*(runs[model].accuracy for model in reversed(COMPARED)))
        for runs in both
        if len({run.parent["test_accuracy"] for run in runs.values()}) == 1
    ]


def control_table(records: Records) -> Table:
    """Return a table that compares the pruned model with the control.

    It gives test accuracies before and after further training. The accuracy before is the parent's.
    """
    rows = []
    for seed, runs in (by_seed(records) or {"-": {}}).items():
        row = {"seed": str(seed)}
        for model in COMPARED:
            label, run = SPECS[model].label.rpartition(", ")[2], runs.get(model)
            before, after = (run.parent["test_accuracy"], run.accuracy) if run else (None, None)
            row[f"{label}: before"] = f"{before:.4f}" if run else "not run"
            row[f"{label}: after"] = f"{after:.4f}" if run else "not run"
        rows.append(row)
    caption = (
        "Test accuracy of the parent (before) and of the model trained further (after), with and"
        " without pruning."
        f" {records.name}. Source: the run records in data/runs."
    )
    return Table.of("pruning-control", caption, rows)
