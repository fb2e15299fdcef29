"""The chapter on scaling: its table, its answers and its prediction."""

from statistics import mean, stdev

from ..measures.scaling import (
    AXES,
    MODELS,
    SETTINGS,
    Change,
    answers,
    papers_setting,
    predict,
    settings_of,
)
from ..models import SPECS
from ..runs.select import Records
from .tables import Table


def settings_table(records: Records) -> Table:
    """List every setting with the accuracies of both models and the gap between them."""
    found = {model: {s.tier: s for s in settings_of(records, model)} for model in MODELS}
    rows = []
    for tier in SETTINGS:
        ours, theirs = (found[model].get(tier) for model in MODELS)
        row = {"setting": tier}
        for model, setting in zip(MODELS, (ours, theirs), strict=True):
            label = SPECS[model].label
            row[f"{label}, parameters"] = f"{setting.scale[0]:,}" if setting else "-"
            row[f"{label}, accuracy"] = _accuracy(setting.accuracies) if setting else "not run"
        if tier == "small-tokens":
            row[f"{SPECS['resnet18'].label}, accuracy"] = "as small"
        if ours and theirs:
            row["gap"] = f"{mean(theirs.accuracies) - mean(ours.accuracies):+.4f}"
        rows.append(row)
    caption = (
        "Test accuracy after the last epoch, mean ± standard deviation over n seeds, and the gap,"
        " ResNet18 minus attention. Source: the run records in data/runs."
    )
    return Table.of("scaling-settings", caption, rows)


def _accuracy(values: tuple[float, ...]) -> str:
    spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
    return f"{mean(values):.4f}{spread} (n = {len(values)})"


def answers_table(records: Records) -> Table:
    """Answer the question of each axis by the rule."""
    found, rows = answers(records), []
    for axis in AXES:
        answer = found[axis.name]
        row = {"question": axis.question, "answer": "not run", "gap, first": "-", "gap, last": "-"}
        if isinstance(answer, Change):
            row |= {"answer": answer.verdict, "gap, first": f"{answer.first:+.4f}"}
            row |= {"gap, last": f"{answer.last:+.4f}"}
            row |= {"standard error of the change": f"{answer.standard_error:.4f}"}
        else:
            row["standard error of the change"] = answer
        rows.append(row)
    caption = (
        "Does attention catch up? One question per axis, answered by the rule on this page. Source:"
        " the run records in data/runs."
    )
    return Table.of("scaling-answers", caption, rows, stacked=True)


def prediction_table(records: Records) -> Table:
    """Predict the test accuracy of the paper's networks, where the check allows it."""
    rows = []
    for model in MODELS:
        row = {"model": SPECS[model].label, "published": f"{SPECS[model].published.accuracy:.3f}"}
        try:
            found = predict(settings_of(records, model), papers_setting(model).scale)
        except ValueError as error:
            row |= {"check": "not run", "predicted": f"none: {error}"}
        else:
            row["check"] = (
                f"{found.left_out}: error {found.predicted:.4f} predicted from the other settings,"
                f" {found.measured:.4f} measured: {'holds' if found.holds else 'fails'}"
            )
            row["predicted"] = (
                f"{1 - found.error:.3f} ({1 - found.high:.3f} to {1 - found.low:.3f})"
                if found.holds
                else "none: the check fails"
            )
        rows.append(row)
    caption = (
        "Test accuracy of the paper's networks, extrapolated by a power law, with a 95 % interval."
        " Source: the run records in data/runs; Table 4 of the paper."
    )
    return Table.of("scaling-prediction", caption, rows, stacked=True)
