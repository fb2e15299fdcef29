"""The tables of the chapter on scaling: settings, answers and prediction."""

from ..measures.accuracy import Accuracy
from ..measures.scaling import (
    AXES,
    MODELS,
    SETTINGS,
    Change,
    Prediction,
    answers,
    judge_prediction,
    predictions,
    runs_of,
    stored_predictions,
)
from ..models import SPECS
from ..runs.select import Records
from .display import Table


def settings_table(records: Records) -> Table:
    """List every setting with the accuracies of both models and the gap between them."""
    found = {model: runs_of(records, model) for model in MODELS}
    rows = []
    for tier in SETTINGS:
        row, accuracies = {"setting": tier}, {}
        for model in MODELS:
            label, runs = SPECS[model].label, found[model].get(tier)
            row |= {f"{label}, parameters": "-", f"{label}, accuracy": "not run"}
            if runs:
                ours = accuracies[model] = Accuracy.of(runs)
                row[f"{label}, parameters"] = f"{runs[0].info.parameter_count:,}"
                row[f"{label}, accuracy"] = f"{ours} (n = {ours.seeds})"
        if tier == "small-tokens":
            row[f"{SPECS['resnet18'].label}, accuracy"] = "as in small"
        if len(accuracies) == len(MODELS):
            gap = accuracies["resnet18"].last - accuracies["sa-quadratic"].last
            row["gap"] = f"{gap:+.4f}"
        rows.append(row)
    caption = (
        "Test accuracy after the last epoch, mean ± standard deviation over n seeds, and the gap,"
        " ResNet18 minus attention. Source: the run records in data/runs."
    )
    return Table.of("scaling-settings", caption, rows)


def answers_table(records: Records) -> Table:
    """Answer the question about each axis by the chapter's rule."""
    found, rows = answers(records), []
    for axis in AXES:
        answer = found[axis.name]
        row = {"question": axis.question, "answer": str(answer)}
        row |= dict.fromkeys(("first gap", "last gap", "standard error of the change"), "-")
        if isinstance(answer, Change):
            row |= {"answer": answer.verdict, "first gap": f"{answer.first:+.4f}"}
            row |= {"last gap": f"{answer.last:+.4f}"}
            row |= {"standard error of the change": f"{answer.standard_error:.4f}"}
        rows.append(row)
    caption = (
        "Does attention catch up? One answer per axis, by the rule on this page. Source:"
        " the run records in data/runs."
    )
    return Table.of("scaling-answers", caption, rows, stacked=True)


def prediction_table(records: Records) -> Table:
    """Predict the test accuracy of the paper's networks, if the check holds for both models.

    Predictions that were stored earlier are judged by the runs of the paper tier.
    """
    found, stored = predictions(records), stored_predictions()
    made = all(isinstance(each, Prediction) and each.holds for each in found.values())
    rows = []
    for model, each in found.items():
        published = SPECS[model].published.accuracy
        row = {"model": SPECS[model].label, "published": f"{published:.3f}", "predicted": "none"}
        if isinstance(each, Prediction):
            row["check"] = (
                f"{each.left_out}: the other settings predict an error of {each.predicted:.4f};"
                f" measured: {each.measured:.4f} ({'holds' if each.holds else 'fails'})"
            )
            if made:
                row["predicted"] = _accuracy(each)
        else:
            row["check"] = f"not possible ({each})"
        if stored:
            runs = records.at("paper").of(model)
            accuracies = [run.accuracy for run in runs]
            verdict = judge_prediction(stored[model], accuracies)
            measured = f"{Accuracy.of(runs)}: " if runs else ""
            row |= {"stored": _accuracy(stored[model]), "paper tier": measured + verdict}
        rows.append(row)
    caption = (
        "Test accuracy of the paper's networks, extrapolated by a power law, with a 95 % interval."
        " A prediction is made only if the check holds for both models. Source: the run"
        " records in data/runs; Table 4 of the paper."
    )
    return Table.of("scaling-prediction", caption, rows, stacked=True)


def _accuracy(prediction: Prediction) -> str:
    """Return the predicted accuracy and its 95 % interval as text."""
    accuracy, low, high = 1 - prediction.error, 1 - prediction.high, 1 - prediction.low
    return f"{accuracy:.3f} ({low:.3f} to {high:.3f})"
