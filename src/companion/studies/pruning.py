"""Chapter 10: the effect of pruning, a comparison with an unpruned control, and the axis ratios."""

import math
from collections.abc import Sequence
from statistics import mean

import torch
from torch import Tensor

from attnconv.cost import cost_of
from attnconv.layers.encodings import GeneralizedQuadraticEncoding
from attnconv.networks import NUM_HEADS, PAPER_CRITERION, degenerate_heads

from ..build import build_network
from ..claims.paper import TOLERANCE
from ..claims.results import answer as judged_answer
from ..claims.rules import minus
from ..data import DATASETS
from ..display import Numbers, Table
from ..heads import axis_ratios, heads_of
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
    parent = record.parent
    parameters = record.info.parameters
    size = DATASETS[parameters["dataset"]].image_size
    left = record.heads_left or ()
    whole = [NUM_HEADS] * len(left)
    before, pruned = (cost_of(build_network(parameters, heads), size) for heads in (whole, left))
    rows = [["test accuracy", *(f"{accuracy:.4f}" for accuracy in accuracies(record))]]
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
    header = ["quantity", "before", "just after", _after(record)]
    return Table(f"pruning-{record.name}", caption, header, rows)


def accuracies(record: RunRecord) -> tuple[float, float, float]:
    """Return a model's test accuracy before and just after pruning, and after further training."""
    parent = record.parent
    return parent["test_accuracy"], parent["test_accuracy_after_pruning"], record.accuracy


def _after(record: RunRecord) -> str:
    return f"after {record.info.epochs_done} more epochs"


def by_seed(records: Records) -> dict[int, dict[str, RunRecord]]:
    """Return the runs of the pruned model and the control in a tier, by seed and then by model."""
    found: dict[int, dict[str, RunRecord]] = {}
    for run in records.of(*COMPARED):
        given = run.info.parameters
        found.setdefault(given["seed"], {})[given["model"]] = run
    return dict(sorted(found.items()))


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
            label = SPECS[model].label.rpartition(", ")[2]
            run = runs.get(model)
            row[f"{label}: before"] = f"{run.parent['test_accuracy']:.4f}" if run else "not run"
            row[f"{label}: after"] = f"{run.accuracy:.4f}" if run else "not run"
        rows.append(row)
    caption = (
        "Test accuracy of the parent (before) and of the model trained further (after), with and"
        " without pruning."
        f" {records.name}. Source: the run records in data/runs."
    )
    return Table.of("pruning-control", caption, rows)


# --- the numbers that the chapter quotes ----------------------------------------------------------

#: The effective number of pixels that heads must stay below to be counted, by the end of a name.
FEWER_THAN = {"": torch.inf, "-48": 48, "-32": 32}
#: The seed whose parent was trained again for pruning, because its weights had not been kept.
REPEATED = 2


def numbers(records: Records, whole: RunRecord, pruned: RunRecord) -> Numbers:
    """Return the numbers that chapter 10 quotes, by name.

    `whole` and `pruned` are the runs that the chapter shows; `records` are those of its tier.
    """
    return {
        **_effect_numbers(pruned),
        **_control_numbers(records),
        **_shape_numbers(records.of("sa-generalized") or [whole]),
        "ratio-0": axis_ratios(whole, 0).median().item(),
        "ratio-1": axis_ratios(whole).median().item(),
        "ratio-1-48": axis_ratios(whole)[effective_pixels(whole) < 48].median().item(),
        "heads-paper": sum(
            int((~degenerate_heads(encoding, **PAPER_CRITERION)).sum())
            for encoding in whole.history.encodings()
            if isinstance(encoding, GeneralizedQuadraticEncoding)
        ),
    }


def effective_pixels(record: RunRecord) -> Tensor:
    """Return each trained head's effective number of pixels, exp(entropy), `(L, N_h)`."""
    return torch.stack([heads.entropy.exp() for heads in heads_of(record)])


def axis_ratios_by_layer(runs: Sequence[RunRecord]) -> dict[str, Tensor]:
    """Return each layer's median axis ratio, `(runs, L)`, by the names in `FEWER_THAN`.

    Only heads with fewer effective pixels count; the axes of a nearly uniform head mean little.
    """
    ratios = torch.stack([axis_ratios(run) for run in runs])  # (runs, L, N_h)
    pixels = torch.stack([effective_pixels(run) for run in runs])
    return {
        name: ratios.where(pixels < most, torch.nan).nanmedian(dim=-1).values
        for name, most in FEWER_THAN.items()
    }


def _effect_numbers(pruned: RunRecord) -> Numbers:
    left = pruned.heads_left or ()
    found: Numbers = {
        "heads-before": str(NUM_HEADS * len(left)),
        "heads-after": str(sum(left)),
        "epochs-more": _after(pruned),
    }
    for when, accuracy in zip(("before", "after", "end"), accuracies(pruned), strict=True):
        found[f"accuracy-{when}"] = f"{accuracy:.4f}"
    return found


def _control_numbers(records: Records) -> Numbers:
    small = records.at("small")
    differences = lost(small)
    again = by_seed(small).get(REPEATED, {}).values()
    recorded = [r for r in records.of("sa-generalized") if r.info.parameters["seed"] == REPEATED]
    return {
        "recovers": judged_answer(records, "small", "the pruned model recovers"),
        "control-seeds": len(differences),
        "control-lost": sum(differences) / max(1, len(differences)),
        "parent-again": next((run.parent["test_accuracy"] for run in again), math.nan),
        "parent-recorded": next((run.accuracy for run in recorded), math.nan),
    }


def _shape_numbers(runs: Sequence[RunRecord]) -> Numbers:
    by_layer = axis_ratios_by_layer(runs)
    low, high = (by_layer[""][:, part].mean(dim=1) for part in (slice(3), slice(3, None)))
    found: Numbers = {"seeds": len(runs), "seeds-opposite": int((high > low).sum())}
    for name, ratios in by_layer.items():
        found[f"ratio-low{name}"] = ratios[:, :3].mean().item()
        found[f"ratio-high{name}"] = ratios[:, 3:].mean().item()
    return found
