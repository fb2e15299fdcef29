"""The numbers that chapter 13 quotes."""

from statistics import mean

from ...claims.rules import enumerated
from ...contrasts import Contrast, accuracies_by_tier, contrast
from ...display import Numbers
from ...runs.select import Records
from . import measures

WIDTHS = ("small-third", "small-half", "small", "small-double")


def numbers(records: Records) -> Numbers:
    """Return the numbers that chapter 13 quotes, by name; the book's runs must be complete."""
    attention, resnet = (measures.settings_of(records, model) for model in measures.COMPARED)
    small = attention["small"]
    fine = attention["small-tokens"]
    paper = measures.papers_setting("sa-quadratic")
    found = measures.changes(records)
    lead = lead_with_small_tokens(records)
    return {
        "scaling-gaps": enumerated(f"{attention[t].error - resnet[t].error:.3f}" for t in WIDTHS),
        "scaling-seeds": enumerated(len(resnet[tier].accuracies) for tier in WIDTHS),
        "scaling-gap": found["epochs"].first,
        "scaling-gap-long": found["epochs"].last,
        "scaling-error": found["epochs"].fall.standard_error,
        "scaling-gap-double": found["size"].last,
        "scaling-error-double": found["size"].fall.standard_error,
        "scaling-gap-tokens": found["tokens"].last,
        "scaling-error-tokens": found["tokens"].fall.standard_error,
        "scaling-lead": lead.value,
        "scaling-lead-errors": lead.value / lead.standard_error,
        "scaling-tokens-accuracy": 1 - fine.error,
        "scaling-tokens-compute": fine.compute / small.compute,
        "scaling-tokens-compute-resnet": fine.compute / resnet["small"].compute,
        "scaling-resnet-accuracy": 1 - resnet["small"].error,
        "scaling-resnet-double": 1 - resnet["small-double"].error,
        "scaling-resnet-long": 1 - resnet["small-long"].error,
        # how many times the parameters and epochs of attention's small tier the paper has
        "scaling-parameters": paper.scale[0] / small.scale[0],
        "scaling-epochs": paper.scale[1] / small.scale[1],
        **_numbers_by_model(records),
    }


def lead_with_small_tokens(records: Records) -> Contrast:
    """Return attention's lead over ResNet18 with 16 x 16 tokens."""
    accuracies = accuracies_by_tier(records, measures.COMPARED, measures.SETTINGS)
    return contrast(accuracies, {("sa-quadratic", "small-tokens"): 1, ("resnet18", "small"): -1})


def checks(records: Records) -> dict[str, measures.Prediction]:
    """Return the prediction of each model for which one can be computed, with its check."""
    found = measures.predictions(records)
    return {model: each for model, each in found.items() if isinstance(each, measures.Prediction)}


def _numbers_by_model(records: Records) -> Numbers:
    found: Numbers = {}
    seconds = 0.0
    for model in measures.COMPARED:
        settings = measures.settings_of(records, model)
        runs = measures.runs_of(records, model)
        last = [run.metrics[-1]["train_accuracy"] for run in runs["small-double"]]
        found[f"scaling-gain-{model}"] = settings["small"].error - settings["small-double"].error
        found[f"scaling-train-{model}"] = mean(last)
        seconds += sum(run.info.wall_seconds for of_tier in runs.values() for run in of_tier)
    for model, check in checks(records).items():
        found[f"scaling-predicted-{model}"] = check.predicted
        found[f"scaling-measured-{model}"] = check.measured
    return found | {"scaling-hours": seconds / 3600}
