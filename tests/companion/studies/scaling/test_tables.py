"""The tables of the chapter on scaling."""

from dataclasses import replace

import pytest

from companion.runs.select import Records
from companion.studies.scaling import tables as scaling
from companion.studies.scaling.measures import Prediction


def made_up(measured=0.104):
    return {
        "sa-quadratic": Prediction(0.06, 0.05, 0.07, "small-double", 0.1, 0.1),
        "resnet18": Prediction(0.05, 0.04, 0.06, "small-double", 0.1, measured),
    }


@pytest.mark.parametrize(("measured", "made"), [(0.104, True), (0.120, False)])
def test_a_prediction_is_made_only_if_the_check_holds_for_both_models(monkeypatch, measured, made):
    """The rule, committed before the runs: a check that fails for one model stops both."""
    monkeypatch.setattr(scaling.measures, "predictions", lambda records: made_up(measured))
    table = scaling.prediction_table(Records([], {}))
    column = [row[table.header.index("predicted")] for row in table.rows]
    expected = ["0.940 (0.930 to 0.950)", "0.950 (0.940 to 0.960)"] if made else ["none", "none"]
    assert column == expected


def test_a_stored_prediction_is_judged_by_the_runs_of_the_paper_tier(monkeypatch):
    """A run at the paper's accuracy is inside the interval of one model and outside the other's."""
    monkeypatch.setattr(scaling.measures, "stored_predictions", made_up)
    small = next(run for run in Records.read().found if run.tier == "small")
    found = []
    for model in made_up():
        parameters = small.info.parameters | {"model": model, "tier": "paper"}
        update = {"parameters": parameters, "final_test_accuracy": 0.938}
        found.append(replace(small, info=small.info.model_copy(update=update)))
    for records, verdicts in (
        (Records([], {}), ["not run", "not run"]),
        (Records(found, {}), ["right", "wrong"]),
    ):
        table = scaling.prediction_table(records)
        column = [row[table.header.index("paper tier")] for row in table.rows]
        assert [cell.rpartition(": ")[2] for cell in column] == verdicts


def test_settings_and_gaps_of_the_committed_records():
    records = Records.read()
    table = scaling.settings_table(records)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    small, tokens = (
        next(row for row in rows if row["setting"] == name)
        for name in ("small tier", "16 × 16 tokens")
    )
    by_hand = {
        model: [
            run.accuracy
            for run in records.found
            if run.tier == "small" and run.info.parameters["model"] == model
        ]
        for model in scaling.measures.COMPARED
    }
    means = {model: sum(values) / len(values) for model, values in by_hand.items()}
    assert small["gap"] == f"{means['resnet18'] - means['sa-quadratic']:+.4f}"
    assert small["SA quadratic, parameters"] == "280,312"
    fine = [r.accuracy for r in records.found if r.tier == "small-tokens"]
    assert tokens["gap"] == f"{means['resnet18'] - sum(fine) / len(fine):+.4f}"
    assert "not run" not in str(rows), "settings without runs have no row"
