"""Tables for the chapter on scaling: settings, answers and predictions."""

from ...accuracy import Accuracy, with_seeds
from ...display import Table
from ...runs.select import Records
from ...specs import SPECS
from . import measures
from .claims import CLAIMS


def settings_table(records: Records) -> Table:
    """Return a table of the settings that were run, with both accuracies and the gap."""
    attention, resnet = measures.compared_runs(records).values()
    rows = []
    for tier in attention:
        ours = attention[tier]
        theirs = resnet.get(tier, [])
        row = {"setting": measures.SETTINGS[tier]}
        for model, runs in zip(measures.COMPARED, (ours, theirs), strict=True):
            label = SPECS[model].label
            row[f"{label}, parameters"] = f"{runs[0].info.parameter_count:,}" if runs else "-"
            row[f"{label}, accuracy"] = with_seeds(runs)
        if theirs:
            row["gap"] = f"{Accuracy.of(theirs).last - Accuracy.of(ours).last:+.4f}"
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
    found = measures.changes(records)
    rows = []
    for axis, claim in zip(measures.AXES, CLAIMS, strict=True):
        (verdict,) = claim.judge(records)
        row = {"question": claim.text, "answer": verdict.verdict}
        if change := found.get(axis.name):
            row["first gap"] = f"{change.first:+.4f}"
            row["last gap"] = f"{change.last:+.4f}"
            row["standard error of the change"] = f"{change.fall.standard_error:.4f}"
        else:
            row["answer"] += f": {verdict.measured}"
        rows.append(row)
    caption = (
        "Does attention catch up? The rule on this page gives an answer for each axis. Source:"
        " the run records in data/runs."
    )
    return Table.of("scaling-answers", caption, rows, stacked=True)


def prediction_table(records: Records) -> Table:
    """Return a table that checks and gives the test accuracies predicted for the paper's networks.

    If the check fails for a model, nothing is predicted. The paper tier judges stored predictions.
    """
    found = measures.predictions(records)
    stored = measures.stored_predictions()
    rows = []
    for model, each in found.items():
        published = SPECS[model].published.accuracy
        row = {"model": SPECS[model].label, "published": f"{published:.3f}", "predicted": "none"}
        if isinstance(each, measures.Prediction):
            row["check"] = (
                f"{measures.SETTINGS[each.left_out]}: the other settings predict an error of"
                f" {each.predicted:.4f}; measured: {each.measured:.4f}"
                f" ({'holds' if each.holds else 'fails'})"
            )
            if measures.is_made(found):
                row["predicted"] = _accuracy(each)
        else:
            row["check"] = f"not possible ({each})"
        if stored:
            runs = records.at("paper").of(model)
            verdict = measures.judge_prediction(stored[model], [run.accuracy for run in runs])
            measured = f"{Accuracy.of(runs)}: " if runs else ""
            row |= {"stored": _accuracy(stored[model]), "paper tier": measured + verdict}
        rows.append(row)
    caption = (
        "Test accuracy of the paper's networks, extrapolated by a power law, with 95 % intervals."
        " A prediction is made only if the check holds for both models. Source: the run"
        " records in data/runs; Table 4 of the paper."
    )
    return Table.of("scaling-prediction", caption, rows, stacked=True)


def _accuracy(prediction: measures.Prediction) -> str:
    """Return the predicted accuracy and its 95 % interval as text."""
    p = prediction
    return f"{1 - p.error:.3f} ({1 - p.high:.3f} to {1 - p.low:.3f})"
