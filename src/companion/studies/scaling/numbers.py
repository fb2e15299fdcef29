"""The numbers that chapter 13 quotes."""

import math

from ...contrasts import pooled_deviation
from ...display import Numbers
from ...runs.select import Records
from .measures import (
    COMPARED,
    Prediction,
    Setting,
    changes,
    papers_setting,
    predictions,
    runs_of,
    settings_of,
)

WIDTHS = ("small-third", "small-half", "small", "small-double")


def numbers(records: Records) -> Numbers:
    """Return the numbers that chapter 13 quotes, by name; the book's runs must be complete."""
    attention, resnet = (settings_by_tier(records, model) for model in COMPARED)
    return {
        **_width_numbers(attention, resnet),
        **_change_numbers(records),
        **_token_numbers(attention, resnet),
        **_lead_numbers(records),
        **_check_numbers(records),
        **_training_numbers(records),
        **_distance_numbers(attention["small"]),
    }


def settings_by_tier(records: Records, model: str) -> dict[str, Setting]:
    """Return the settings in which a model has been run, by tier."""
    return {setting.tier: setting for setting in settings_of(records, model)}


def mean_error(setting: Setting) -> float:
    """Return the test error in a setting, averaged over seeds."""
    return float(setting.errors.mean())


def lead_with_small_tokens(records: Records) -> tuple[float, float]:
    """Return attention's lead over ResNet18 with 16 x 16 tokens, and the lead's standard error."""
    attention, resnet = (settings_by_tier(records, model) for model in COMPARED)
    compared = ((attention, attention["small-tokens"]), (resnet, resnet["small"]))
    variance = sum(
        pooled_deviation({tier: s.accuracies for tier, s in of_model.items()}) ** 2
        / len(setting.accuracies)
        for of_model, setting in compared
    )
    return -changes(records)["tokens"].last, math.sqrt(variance)


def checks(records: Records) -> dict[str, Prediction]:
    """Return the prediction of each model for which one can be computed, with its check."""
    found = predictions(records)
    return {model: each for model, each in found.items() if isinstance(each, Prediction)}


def _width_numbers(attention: dict[str, Setting], resnet: dict[str, Setting]) -> Numbers:
    *gaps, last = [f"{mean_error(attention[t]) - mean_error(resnet[t]):.3f}" for t in WIDTHS]
    *seeds, last_seeds = [str(len(resnet[tier].accuracies)) for tier in WIDTHS]
    found: Numbers = {
        "scaling-gaps": f"{', '.join(gaps)} and {last}",
        "scaling-seeds": f"{', '.join(seeds)} and {last_seeds}",
    }
    for model, settings in zip(COMPARED, (attention, resnet), strict=True):
        gain = mean_error(settings["small"]) - mean_error(settings["small-double"])
        found[f"scaling-gain-{model}"] = gain
    return found


def _change_numbers(records: Records) -> Numbers:
    found = changes(records)
    return {
        "scaling-gap": found["epochs"].first,
        "scaling-gap-long": found["epochs"].last,
        "scaling-error": found["epochs"].fall.standard_error,
        "scaling-gap-double": found["size"].last,
        "scaling-error-double": found["size"].fall.standard_error,
        "scaling-gap-tokens": found["tokens"].last,
        "scaling-error-tokens": found["tokens"].fall.standard_error,
    }


def _token_numbers(attention: dict[str, Setting], resnet: dict[str, Setting]) -> Numbers:
    fine = attention["small-tokens"]
    return {
        "scaling-tokens-accuracy": 1 - mean_error(fine),
        "scaling-tokens-compute": fine.compute / attention["small"].compute,
        "scaling-tokens-compute-resnet": fine.compute / resnet["small"].compute,
        "scaling-resnet-accuracy": 1 - mean_error(resnet["small"]),
        "scaling-resnet-double": 1 - mean_error(resnet["small-double"]),
        "scaling-resnet-long": 1 - mean_error(resnet["small-long"]),
    }


def _lead_numbers(records: Records) -> Numbers:
    lead, standard_error = lead_with_small_tokens(records)
    return {"scaling-lead": lead, "scaling-lead-errors": lead / standard_error}


def _check_numbers(records: Records) -> Numbers:
    found: Numbers = {}
    for model, check in checks(records).items():
        found[f"scaling-predicted-{model}"] = check.predicted
        found[f"scaling-measured-{model}"] = check.measured
    return found


def _training_numbers(records: Records) -> Numbers:
    found: Numbers = {}
    for model in COMPARED:
        runs = records.at("small-double").of(model)
        last = [run.metrics[-1]["train_accuracy"] for run in runs]
        found[f"scaling-train-{model}"] = sum(last) / len(last)
    all_runs = [run for model in COMPARED for of in runs_of(records, model).values() for run in of]
    return found | {"scaling-hours": sum(run.info.wall_seconds for run in all_runs) / 3600}


def _distance_numbers(small: Setting) -> Numbers:
    """Return how many times the parameters and epochs of attention's small tier the paper has."""
    parameters, epochs = papers_setting("sa-quadratic").scale[:2]
    return {
        "scaling-parameters": parameters / small.scale[0],
        "scaling-epochs": epochs / small.scale[1],
    }
