"""Tables for the chapter on scaling: settings, answers and predictions."""

from ...accuracy import Accuracy
from ...display import Table
from ...runs.select import Records
from ...specs import SPECS
from .claims import CLAIMS
from .measures import (
    AXES,
    COMPARED,
    SETTINGS,
    Prediction,
    changes,
    compared_runs,
    is_made,
    judge_prediction,
    predictions,
    stored_predictions,
)


def settings_table(records: Records) -> Table:
    """Return a table of the settings that were run, with both accuracies and the gap."""
    found, rows = compared_runs(records), []
    for tier, name in SETTINGS.items():
        if tier not in found["sa-quadratic"]:
            continue
        row, accuracies = {"setting": name}, {}
        for model in COMPARED:
            label, runs = SPECS[model].label, found[model].get(tier)
            row |= {f"{label}, parameters": "-", f"{label}, accuracy": "not run"}
            if runs:
                ours = accuracies[model] = Accuracy.of(runs)
                row[f"{label}, parameters"] = f"{runs[0].info.parameter_count:,}"
                row[f"{label}, accuracy"] = f"{ours} (n = {ours.seeds})"
        if len(accuracies) == len(COMPARED):
            gap = accuracies["resnet18"].last - accuracies["sa-quadratic"].last
            row["gap"] = f"{gap:+.4f}"
        rows.append(row)
    caption = (
        "Test accuracy after the last epoch (mean ± standard deviation over n seeds), and the gap"
        " (ResNet18 minus attention), in the small tier and with one property changed. ResNet18 has"
        " no tokens; attention with 16 × 16 tokens is compared with the small tier's ResNet18."
        " Source: the run records in data/runs."
    )
    return Table.of("scaling-settings", caption, rows)


def answers_table(records: Records) -> Table:
    """Return a table that answers the question about each axis by the chapter's rule."""
    found, rows = changes(records), []
    for axis, claim in zip(AXES, CLAIMS, strict=True):
        (verdict,) = claim.judge(records)
        if change := found.get(axis.name):
            row = {
                "answer": verdict.verdict,
                "first gap": f"{change.first:+.4f}",
                "last gap": f"{change.last:+.4f}",
                "standard error of the change": f"{change.fall.standard_error:.4f}",
            }
        else:
            row = {"answer": f"{verdict.verdict}: {verdict.measured}"}
        rows.append({"question": claim.text} | row)
    caption = (
        "Does attention catch up? The rule on this page gives an answer for each axis. Source:"
        " the run records in data/runs."
    )
    return Table.of("scaling-answers", caption, rows, stacked=True)


def prediction_table(records: Records) -> Table:
    """Return a table that checks and gives the test accuracies predicted for the paper's networks.

    If the check fails for a model, nothing is predicted. The paper tier judges stored predictions.
    """
    found, stored = predictions(records), stored_predictions()
    rows = []
    for model, each in found.items():
        published = SPECS[model].published.accuracy
        row = {"model": SPECS[model].label, "published": f"{published:.3f}", "predicted": "none"}
        if isinstance(each, Prediction):
            row["check"] = (
                f"{SETTINGS[each.left_out]}: the other settings predict an error of"
                f" {each.predicted:.4f}; measured: {each.measured:.4f}"
                f" ({'holds' if each.holds else 'fails'})"
            )
            if is_made(found):
                row["predicted"] = _accuracy(each)
        else:
            row["check"] = f"not possible ({each})"
        if stored:
            runs = records.at("paper").of(model)
            verdict = judge_prediction(stored[model], [run.accuracy for run in runs])
            measured = f"{Accuracy.of(runs)}: " if runs else ""
            row |= {"stored": _accuracy(stored[model]), "paper tier": measured + verdict}
        rows.append(row)
    caption = (
        "Test accuracy of the paper's networks, extrapolated by a power law, with 95 % intervals."
        " A prediction is made only if the check holds for both models. Source: the run"
        " records in data/runs; Table 4 of the paper."
    )
    return Table.of("scaling-prediction", caption, rows, stacked=True)


def _accuracy(prediction: Prediction) -> str:
    """Return the predicted accuracy and its 95 % interval as text."""
    accuracy, low, high = 1 - prediction.error, 1 - prediction.high, 1 - prediction.low
    return f"{accuracy:.3f} ({low:.3f} to {high:.3f})"
