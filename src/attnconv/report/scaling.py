"""The tables of the chapter on scaling: settings, answers and prediction."""

from ..measures.accuracy import Accuracy
from ..measures.scaling import (
    AXES,
    MODELS,
    SETTINGS,
    Change,
    Prediction,
    answers,
    papers_setting,
    predict,
    runs_of,
    settings_of,
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
            row[f"{SPECS['resnet18'].label}, accuracy"] = "as small"
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
    """Answer the question of each axis by the chapter's rule."""
    found, rows = answers(records), []
    for axis in AXES:
        answer = found[axis.name]
        row = {"question": axis.question, "answer": str(answer)}
        row |= dict.fromkeys(("gap, first", "gap, last", "standard error of the change"), "-")
        if isinstance(answer, Change):
            row |= {"answer": answer.verdict, "gap, first": f"{answer.first:+.4f}"}
            row |= {"gap, last": f"{answer.last:+.4f}"}
            row |= {"standard error of the change": f"{answer.standard_error:.4f}"}
        rows.append(row)
    caption = (
        "Does attention catch up? One answer per axis, by the rule on this page. Source:"
        " the run records in data/runs."
    )
    return Table.of("scaling-answers", caption, rows, stacked=True)


def prediction_table(records: Records) -> Table:
    """Predict the test accuracy of the paper's networks, if the check holds for both models."""
    found = {model: _prediction(records, model) for model in MODELS}
    made = all(isinstance(each, Prediction) and each.holds for each in found.values())
    rows = []
    for model, each in found.items():
        published = SPECS[model].published.accuracy
        row = {"model": SPECS[model].label, "published": f"{published:.3f}", "predicted": "none"}
        if isinstance(each, Prediction):
            row["check"] = (
                f"{each.left_out}: error {each.predicted:.4f} predicted from the other settings,"
                f" {each.measured:.4f} measured: {'holds' if each.holds else 'fails'}"
            )
            if made:
                low, high = 1 - each.high, 1 - each.low
                row["predicted"] = f"{1 - each.error:.3f} ({low:.3f} to {high:.3f})"
        else:
            row["check"] = f"not possible: {each}"
        rows.append(row)
    caption = (
        "Test accuracy of the paper's networks, extrapolated by a power law, with a 95 % interval."
        " There is no prediction unless the check holds for both models. Source: the run"
        " records in data/runs; Table 4 of the paper."
    )
    return Table.of("scaling-prediction", caption, rows, stacked=True)


def _prediction(records: Records, model: str) -> Prediction | str:
    """Return a model's prediction, or why its fit is not determined yet."""
    try:
        return predict(settings_of(records, model), papers_setting(model).scale)
    except ValueError as error:
        return str(error)
