"""The rules of the chapter on scaling, against hand-made accuracies and a known power law."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers import ROOT

from attnconv import figures
from companion.runs.record import load_run
from companion.runs.select import Records
from companion.specs import recipe
from companion.studies.scaling import measures as scaling
from companion.studies.scaling.measures import (
    AXES,
    JUDGEMENT,
    PREDICTION,
    STORED,
    Prediction,
    Setting,
    bootstrap,
    change_of_gap,
    error_at,
    fit,
    interval,
    is_made,
    judge_prediction,
    leave_largest_out,
    predict,
    predictions,
    stored_predictions,
    towards,
)

sys.path.insert(0, str(ROOT / "tools"))
from store_prediction import store_predictions

SIZE, _, TOKENS = AXES
RATES = (0.5, 1.0, 2.0)  # multiples of the small tier's rate that the pilots tried


@pytest.mark.parametrize(
    ("last", "verdict"), [(0.90, "narrows"), (0.86, "no change shown"), (0.80, "widens")]
)
def test_a_gap_changes_only_beyond_two_standard_errors(last, verdict):
    resnet = {"small": (0.86, 0.87), "small-double": (0.90, 0.91)}
    attention = {"small": (0.82, 0.83), "small-double": (last, last + 0.01)}
    change = change_of_gap(SIZE, {"sa-quadratic": attention, "resnet18": resnet})
    deviation = np.sqrt(0.01**2 / 2)
    assert change.fall.standard_error == pytest.approx(np.sqrt(4 * deviation**2 / 2))
    assert change.fall.value == pytest.approx(change.first - change.last)
    assert change.first == pytest.approx(0.04) and change.last == pytest.approx(0.90 - last)
    assert change.verdict == verdict


def test_the_resnets_own_noise_cancels_where_it_has_no_such_axis():
    attention = {"small": (0.82, 0.83), "small-tokens": (0.85, 0.86)}
    resnet = {"small": (0.80, 0.92)}
    change = change_of_gap(TOKENS, {"sa-quadratic": attention, "resnet18": resnet})
    assert change.fall.standard_error == pytest.approx(np.sqrt(2 * (0.01**2 / 2) / 2))
    assert change.fall.value == pytest.approx(0.03)


def settings(noise=0.0, bend=0.0):
    """Runs of error = 2 * parameters^-0.2 * epochs^-0.1, and `bend` more at the largest."""
    generator = np.random.default_rng(1)
    made = []
    for tier, size, epochs in [("a", 1e4, 20), ("b", 1e5, 20), ("c", 1e6, 20), ("d", 1e5, 60)]:
        error = 2 * size**-0.2 * epochs**-0.1 * (1 + bend * (tier == "c"))
        errors = error * np.exp(noise * generator.standard_normal(3))
        made.append(Setting(tier, (size, epochs), size * epochs, tuple(1 - errors)))
    return made


def by_tier(found):
    return {setting.tier: setting for setting in found}


def test_the_fit_finds_a_power_law_and_extrapolates_it():
    law = fit(settings())
    assert law == pytest.approx([np.log(2), -0.2, -0.1])
    assert error_at(law, (1e7, 300)) == pytest.approx(2 * 1e7**-0.2 * 300**-0.1)
    low, high = interval(bootstrap(settings(noise=0.02)), (1e7, 300))
    assert low < 2 * 1e7**-0.2 * 300**-0.1 < high


def test_the_fit_is_followed_towards_another_setting():
    made, end = settings(noise=0.02), Setting("paper", (1e7, 300), 3e9, ())
    errors = towards(made, made[1], end, points=3)
    law = fit(made)
    halfway = (np.sqrt(1e5 * 1e7), np.sqrt(20 * 300))
    assert errors[1, 0] == pytest.approx(error_at(law, halfway))
    assert errors[2] == pytest.approx(
        [error_at(law, end.scale), *interval(bootstrap(made), end.scale)]
    )
    assert (errors[:, 1] < errors[:, 0]).all() and (errors[:, 0] < errors[:, 2]).all()


def test_leaving_the_largest_setting_out():
    left_out, predicted = leave_largest_out(settings())
    assert left_out.tier == "c" and predicted == pytest.approx(left_out.errors.mean())
    for bend, holds in ((0.04, True), (0.06, False)):
        prediction = predict(settings(bend=bend), (1e7, 300))
        assert prediction.holds is holds and prediction.left_out == "c"
        # without noise, all resamples are alike
        ends = prediction.low, prediction.high
        assert ends == pytest.approx((prediction.error, prediction.error))
    a, b, c, d = settings()
    with pytest.raises(ValueError, match="the fit needs all of them"):
        leave_largest_out([a, d, c])
    with pytest.raises(ValueError, match="a, b, c do not determine the exponents"):
        fit([a, b, c])


def test_predictions_are_stored_once_and_only_if_the_check_holds(monkeypatch, tmp_path):
    made = {"resnet18": settings(noise=0.01), "sa-quadratic": settings(noise=0.02)}
    end, path = Setting("paper", (1e7, 300), 3e9, ()), tmp_path / "prediction.json"
    monkeypatch.setattr(scaling, "settings_of", lambda records, model: by_tier(made[model]))
    monkeypatch.setattr(scaling, "papers_setting", lambda model: end)
    records = Records.read()
    assert stored_predictions(path) == {}
    store_predictions(records, path)
    assert stored_predictions(path) == predictions(records)
    content = json.loads(path.read_text())
    assert content["method"] == PREDICTION and "resnet18--cifar10-small--seed0" in content["runs"]
    with pytest.raises(FileExistsError, match="an earlier prediction"):
        store_predictions(records, path)
    made["resnet18"] = settings(bend=0.06)
    with pytest.raises(ValueError, match="made for resnet18, so none can be stored: its check"):
        store_predictions(records, tmp_path / "other.json")
    made["resnet18"] = settings()[:3]
    with pytest.raises(ValueError, match="the fit needs all of them"):
        store_predictions(records, tmp_path / "other.json")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("bend", "made"), [(0.04, True), (0.06, False)])
def test_the_figure_shows_a_fit_only_if_a_prediction_is_made(monkeypatch, bend, made):
    by_model = {"resnet18": settings(bend=bend), "sa-quadratic": settings()}
    for found in by_model.values():
        found[1] = replace(found[1], tier="small")
    end = Setting("paper", (1e7, 300), 3e9, ())
    monkeypatch.setattr(scaling, "settings_of", lambda records, model: by_tier(by_model[model]))
    monkeypatch.setattr(scaling, "papers_setting", lambda model: end)
    figure = figures.scaling(Records.read())
    dashed = [[line for line in ax.lines if line.get_linestyle() == "--"] for ax in figure.axes]
    assert [len(lines) for lines in dashed] == [2 * made, 2 * made]
    assert is_made(scaling.predictions(Records.read())) is made


def test_a_prediction_cannot_be_stored_after_the_paper_tier_was_run(monkeypatch, tmp_path):
    monkeypatch.setattr(scaling, "settings_of", lambda records, model: by_tier(settings()))
    monkeypatch.setattr(scaling, "papers_setting", lambda model: settings()[2])
    run = next(run for run in Records.read().found if run.info.parameters["model"] == "resnet18")
    info = run.info.model_copy(update={"parameters": run.info.parameters | {"tier": "paper"}})
    with pytest.raises(ValueError, match="the paper tier has been run"):
        store_predictions(Records([replace(run, info=info)], {}), tmp_path / "prediction.json")
    assert not list(tmp_path.iterdir())


def test_the_committed_prediction_is_stored_as_soon_as_it_can_be_made():
    """The check holds for both models exactly if a prediction is stored, with the method used."""
    found = predictions(Records.read())
    assert isinstance(found["resnet18"], Prediction)
    assert isinstance(found["sa-quadratic"], Prediction) or "fit" in found["sa-quadratic"]
    assert bool(stored_predictions()) or not is_made(found)
    if STORED.exists():
        content = json.loads(STORED.read_text())
        assert (content["method"], content["judgement"]) == (PREDICTION, JUDGEMENT)


@pytest.mark.parametrize(("accuracies", "verdict"), [((), "not run"), ((0.93, 0.95), "right")])
def test_a_prediction_is_judged_by_the_mean_error(accuracies, verdict):
    prediction = Prediction(0.06, 0.05, 0.07, "small-double", 0.1, 0.1)
    assert judge_prediction(prediction, accuracies) == verdict
    assert judge_prediction(prediction, (0.96,)) == judge_prediction(prediction, (0.92,)) == "wrong"


def rate_exponent(held_out, relative_width):
    """Return the exponent p of `RATE_RULE`, given the held-out accuracy for each multiple."""
    best = max(held_out, key=held_out.get)
    clearly_better = held_out[best] - held_out[1.0] > 0.03
    return np.log(best) / np.log(relative_width) if clearly_better else 0.0


@pytest.mark.parametrize(("end", "width"), [("third", 0.3), ("double", 2.0)])
@pytest.mark.parametrize("model", ["sa-quadratic", "resnet18"])
def test_the_recipes_rates_follow_from_the_committed_pilots(model, end, width):
    usual = recipe(model, "small")["learning_rate"]
    folders = sorted((ROOT / "data" / "pilot-scaling").glob(f"{end}-{model}-*"))
    runs = [load_run(next(folder.iterdir())) for folder in folders]
    held_out = {run.info.parameters["learning_rate"] / usual: run.accuracy for run in runs}
    assert sorted(held_out) == pytest.approx(RATES)
    assert {run.info.parameters["held_out"] for run in runs} == {5000}
    factor = width ** rate_exponent(held_out, width)
    assert recipe(model, f"small-{end}")["learning_rate"] == pytest.approx(usual * factor)
