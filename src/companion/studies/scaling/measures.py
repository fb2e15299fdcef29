"""How the accuracy gap between ResNet18 and attention changes as networks grow.

The questions, the rules that answer them and the prediction method for the paper's networks were
committed before all runs of the scaling tiers except one, the first of small-long. All accuracies
are on the 10,000 test images after the last epoch. A setting is a tier; its runs differ in the
seed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnconv.cost import cost_of

from ...build import build_network
from ...contrasts import Accuracies, Contrast, accuracies_by_tier, contrast
from ...data import CIFAR10_COUNTS, DATASETS
from ...runs.parameters import RunParameters
from ...runs.record import RunRecord
from ...runs.select import Records
from ...store import REPOSITORY


@dataclass(frozen=True)
class Axis:
    """A property that moves towards the paper's value, with all others as in the small tier."""

    name: str
    question: str
    tiers: tuple[str, ...]  # from small to large
    resnet_tiers: tuple[str, ...]  # baselines; all equal if ResNet18 lacks the axis

    @property
    def runs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of model and tier whose runs answer the question."""
        ours = [("sa-quadratic", tier) for tier in self.tiers]
        theirs = [("resnet18", tier) for tier in self.resnet_tiers]
        return tuple(dict.fromkeys(ours + theirs))


COMPARED = ("sa-quadratic", "resnet18")
#: The tiers that differ only in size; `SETTINGS` also contains those with other changes.
SIZES = ("small-third", "small-half", "small", "small-double", "small-quadruple")
#: What each setting changes, as shown to readers.
SETTINGS = {
    "small-third": "0.3 × width",
    "small-half": "0.5 × width",
    "small": "small tier",
    "small-double": "2 × width",
    "small-quadruple": "4 × width",
    "small-long": "60 epochs",
    "small-tokens": "16 × 16 tokens",
    "small-double-long": "2 × width, 60 epochs",
}
AXES = (
    Axis(
        "size",
        "Does the gap between ResNet18 and attention shrink from the small tier's width to twice"
        " that width?",
        ("small", "small-double"),
        ("small", "small-double"),
    ),
    Axis(
        "epochs",
        "Does the gap shrink when both are trained for 60 epochs instead of 20?",
        ("small", "small-long"),
        ("small", "small-long"),
    ),
    Axis(
        "tokens",
        "Does the gap shrink when attention sees 16 x 16 tokens instead of 8 x 8?",
        ("small", "small-tokens"),
        ("small", "small"),
    ),
)
#: The rule in words; `Change.verdict` implements it.
GAP_RULE = (
    "The gap is the mean test accuracy of resnet18 minus that of sa-quadratic. It narrows if it"
    " falls from the first to the last setting by more than two standard errors of the difference,"
    " widens if it rises by more than two, and otherwise no change is shown. The standard error"
    " uses one standard deviation per model, pooled over all settings with at least two seeds."
)


@dataclass(frozen=True)
class Change:
    """The accuracy gap at both ends of an axis, and the contrast by which it falls."""

    first: float
    last: float
    fall: Contrast

    @property
    def verdict(self) -> str:
        """The verdict according to `GAP_RULE`: "narrows", "widens" or "no change shown"."""
        return self.fall.word("narrows", "widens", "no change shown")


def change_of_gap(axis: Axis, accuracies: Accuracies) -> Change:
    """Compare the accuracy gaps at the two ends of an axis as `GAP_RULE` prescribes.

    `accuracies` contains those of both models, by model and tier.
    """
    attention, resnet = COMPARED
    gaps = []
    weights = Counter[tuple[str, str]]()
    for end, sign in ((0, 1), (-1, -1)):
        ours = (attention, axis.tiers[end])
        theirs = (resnet, axis.resnet_tiers[end])
        gaps.append(contrast(accuracies, {theirs: 1, ours: -1}).value)
        # if ResNet18 lacks the axis, its runs are the same at both ends and their weights cancel
        weights.update({theirs: sign, ours: -sign})
    return Change(*gaps, fall=contrast(accuracies, weights))


# --- the prediction for the paper's networks ---

PREDICTION = (
    "For each model, log(test error) is fitted by least squares, over all runs, as a linear"
    " function of log(parameters), log(epochs) and, for attention, log(tokens): a power law. The"
    " fit is extrapolated to the paper's parameters, 300 epochs and 256 tokens. Its 95 % interval"
    " is a bootstrap over seeds within each setting. The check: the same fit without the setting of"
    " the largest training compute predicts that setting's mean test error within 5 % of it, for"
    " both models. If the check fails for either model, no prediction is made."
)
TOLERANCE = 0.05
RESAMPLES = 2000
#: How a stored prediction is judged; committed before any run of the paper tier.
JUDGEMENT = (
    "A prediction is stored once, before any run of the paper tier. It is right for a model if the"
    " mean test error of the model's finished runs in the paper tier lies in the stored 95 %"
    " interval, and otherwise wrong."
)
STORED = REPOSITORY / "data" / "prediction.json"


@dataclass(frozen=True)
class Setting:
    """The runs of one tier, with the quantities from which a power law predicts their errors.

    `scale` contains these quantities, for example `(parameters, epochs, tokens)`. `compute` is the
    number of floating-point operations in one whole training run.
    """

    tier: str
    scale: tuple[float, ...]
    compute: float
    accuracies: tuple[float, ...]

    @property
    def errors(self) -> np.ndarray:
        """The test error of each run."""
        return 1 - np.asarray(self.accuracies)

    @property
    def error(self) -> float:
        """The test error, averaged over the runs."""
        return float(self.errors.mean())


def fit(settings: Sequence[Setting]) -> np.ndarray:
    """Fit a power law to all runs by least squares on log(test error).

    Returns the coefficients of `log(test error) = coefficients @ [1, *log(scale)]`. Raises
    ValueError if the settings do not determine the exponents.
    """
    logs = np.log(np.concatenate([s.errors for s in settings] or [[]]))
    return np.linalg.pinv(_inputs(settings)) @ logs


def error_at(coefficients: np.ndarray, scale: Sequence[float]) -> np.ndarray:
    """Return the test error at `scale` by one power law or, with shape `(n, p)`, by n of them."""
    return np.exp(coefficients @ [1.0, *np.log(scale)])


def _inputs(settings: Sequence[Setting]) -> np.ndarray:
    """Return `[1, *log(scale)]` for each run; raise ValueError if they do not determine a fit."""
    rows = np.array([[1.0, *np.log(s.scale)] for s in settings])
    if not settings or np.linalg.matrix_rank(rows) < rows.shape[1]:
        raise ValueError(
            f"the settings {', '.join(s.tier for s in settings) or '(none)'} do not determine the"
            " exponents; each quantity must vary by itself"
        )
    return np.repeat(rows, [len(s.accuracies) for s in settings], axis=0)


def leave_largest_out(settings: Sequence[Setting]) -> tuple[Setting, float]:
    """Predict the error of the setting with the largest training compute from the other settings.

    Returns the setting that was left out and its predicted test error. If the exponents cannot be
    determined without a setting, the setting with the next largest compute is left out instead.
    """
    for left_out in sorted(settings, key=lambda s: s.compute, reverse=True):
        try:
            law = fit([s for s in settings if s is not left_out])
        except ValueError:
            continue
        return left_out, float(error_at(law, left_out.scale))
    raise ValueError("the check cannot leave any setting out: the fit needs all of them")


def bootstrap(settings: Sequence[Setting], seed: int = 0) -> np.ndarray:
    """Fit a power law to each of 2,000 bootstrap resamples of the runs within each setting.

    Returns their coefficients, `(2000, p)`; see `fit`.
    """
    generator = np.random.default_rng(seed)
    errors = [generator.choice(s.errors, (RESAMPLES, len(s.errors))) for s in settings]
    return np.log(np.concatenate(errors, axis=1)) @ np.linalg.pinv(_inputs(settings)).T


def interval(laws: np.ndarray, scale: Sequence[float]) -> list[float]:
    """Return the 95 % interval of the test errors that resampled power laws predict at `scale`."""
    return np.quantile(error_at(laws, scale), [0.025, 0.975]).tolist()


@dataclass(frozen=True)
class Prediction:
    """A test error predicted by a power law, with its 95 % interval and a check of the law.

    The check compares the error `predicted` for the setting `left_out`, from the other settings,
    with its `measured` mean test error. `holds` says whether the check is passed.
    """

    error: float
    low: float
    high: float
    left_out: str
    predicted: float
    measured: float

    @property
    def holds(self) -> bool:
        return bool(abs(self.predicted - self.measured) <= TOLERANCE * self.measured)


def predict(settings: Sequence[Setting], scale: Sequence[float]) -> Prediction:
    """Extrapolate a model's test error to `scale`, and check the power law as in `PREDICTION`.

    Raises ValueError if the settings do not determine the exponents or no setting can be left out.
    """
    left_out, predicted = leave_largest_out(settings)
    error = float(error_at(fit(settings), scale))
    low, high = interval(bootstrap(settings), scale)
    return Prediction(error, low, high, left_out.tier, predicted, left_out.error)


def towards(
    settings: Sequence[Setting], start: Setting, end: Setting, points: int = 25
) -> np.ndarray:
    """Fit a power law and evaluate it at logarithmically spaced points between two settings.

    Returns the predicted error and the ends of its 95 % interval, `(points, 3)`. Raises ValueError
    under the same condition as `fit`.
    """
    law = fit(settings)
    laws = bootstrap(settings)
    scales = np.geomspace(start.scale, end.scale, points).tolist()
    return np.array([[error_at(law, scale), *interval(laws, scale)] for scale in scales])


# --- from the run records ---


def runs_of(records: Records, model: str) -> dict[str, list[RunRecord]]:
    """Return a model's runs by tier, for the tiers in `SETTINGS` that have any."""
    by_tier = {tier: records.at(tier).of(model) for tier in SETTINGS}
    return {tier: runs for tier, runs in by_tier.items() if runs}


def compared_runs(records: Records) -> dict[str, dict[str, list[RunRecord]]]:
    """Return both models' runs by tier, with ResNet18's also where it lacks the axis (see `AXES`).

    ResNet18 has no tokens, so smaller ones are compared with its runs in the small tier.
    """
    found = {model: runs_of(records, model) for model in COMPARED}
    resnet = found["resnet18"]
    for axis in AXES:
        for tier, baseline in zip(axis.tiers, axis.resnet_tiers, strict=True):
            if tier != baseline and baseline in resnet:
                resnet[tier] = resnet[baseline]
    return found


def settings_of(records: Records, model: str) -> dict[str, Setting]:
    """Return the settings in which a model has been run, by tier."""
    return {
        tier: _setting(tier, runs[0].info.parameters, tuple(run.accuracy for run in runs))
        for tier, runs in runs_of(records, model).items()
    }


def papers_setting(model: str) -> Setting:
    """Return a model's setting in the paper tier, without accuracies."""
    parameters = RunParameters.check({"model": model, "dataset": "cifar10", "tier": "paper"})
    return _setting("paper", parameters.model_dump(), ())


def _setting(tier: str, parameters: Mapping, accuracies: tuple[float, ...]) -> Setting:
    data = DATASETS[parameters["dataset"]]
    epochs = parameters["epochs"]
    cost = cost_of(build_network(parameters), data.image_size)
    tokens = (data.image_size // parameters["pooling"]) ** 2
    attention = parameters["model"] != "resnet18"
    scale = (cost.parameters, epochs, tokens) if attention else (cost.parameters, epochs)
    # a backward pass takes about twice as many operations as a forward pass
    compute = 3 * cost.flops_executed * epochs * CIFAR10_COUNTS["train"]
    return Setting(tier, scale, compute, accuracies)


def changes(records: Records) -> dict[str, Change]:
    """Return the change of the gap along each axis by name, for the axes whose runs are there."""
    accuracies = accuracies_by_tier(records, COMPARED, SETTINGS)
    whole = [axis for axis in AXES if not missing(axis, records)]
    return {axis.name: change_of_gap(axis, accuracies) for axis in whole}


def missing(axis: Axis, records: Records) -> list[str]:
    """Return which model still has to be run in which tier to answer an axis's question."""
    return [f"{model} in {tier}" for model, tier in axis.runs if not records.at(tier).of(model)]


# --- the stored prediction ---


def predictions(records: Records) -> dict[str, Prediction | str]:
    """Return each model's prediction for the paper's network, or why none can be computed."""
    found: dict[str, Prediction | str] = {}
    for model in COMPARED:
        try:
            found[model] = predict(
                [*settings_of(records, model).values()], papers_setting(model).scale
            )
        except ValueError as error:
            found[model] = str(error)
    return found


def is_made(found: Mapping[str, Prediction | str]) -> bool:
    """Return whether a prediction is made, that is, whether the check holds for both models."""
    return all(isinstance(each, Prediction) and each.holds for each in found.values())


def stored_predictions(path: Path = STORED) -> dict[str, Prediction]:
    """Return the stored predictions by model, or an empty dictionary if there are none."""
    if not path.exists():
        return {}
    models = json.loads(path.read_text())["models"]
    return {model: Prediction(**values) for model, values in models.items()}


def judge_prediction(prediction: Prediction, accuracies: Sequence[float]) -> str:
    """Return "right" or "wrong" according to `JUDGEMENT`, or "not run" if there are no runs."""
    if not accuracies:
        return "not run"
    error = 1 - float(np.mean(accuracies))
    return "right" if prediction.low <= error <= prediction.high else "wrong"


#: How the learning rates were chosen; the recipes in `companion.tiers` follow it.
RATE_RULE = (
    "For each model, at the smallest and at the largest width that is run: seed 0, 3 epochs, the"
    " last 5,000 training images held out, at half, one and two times the small tier's learning"
    " rate. The small tier's rate stays unless another one is better by more than 0.03 in held-out"
    " accuracy. Where it is, the rate of a width is the small tier's times (relative width) ** p on"
    " that side of the small tier's width, with p chosen so that the best of the three rates is"
    " used at that end."
)
