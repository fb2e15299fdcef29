"""Contrasts of mean accuracies, against computations by hand."""

import numpy as np
import pytest

from companion.contrasts import blocked_contrast, contrast, pooled_deviation


def test_the_pooled_deviation_is_that_of_all_settings_about_their_own_means():
    values = {"a": (0.80, 0.82), "b": (0.9,), "c": (0.70, 0.71, 0.75)}
    centred = [v - np.mean(vs) for vs in values.values() if len(vs) > 1 for v in vs]
    assert pooled_deviation(values) == pytest.approx(np.sqrt(np.sum(np.square(centred)) / 3))
    with pytest.raises(ValueError, match="at least one setting with two seeds"):
        pooled_deviation({"a": (0.8,)})


def test_the_weights_of_a_group_that_is_named_once_scale_value_and_error():
    accuracies = {"model": {"a": (0.80, 0.82), "b": (0.9,)}}
    found = contrast(accuracies, {("model", "a"): 2, ("model", "b"): -1})
    assert found.value == pytest.approx(2 * 0.81 - 0.9)
    deviation = np.sqrt(2 * 0.01**2)
    assert found.standard_error == pytest.approx(deviation * np.sqrt(4 / 2 + 1))
    assert found.sign == 1
    assert contrast(accuracies, {("model", "a"): 2, ("model", "b"): -1}, 50.0).sign == 0


def test_a_blocked_contrast_is_that_of_least_squares():
    """Against a regression on indicators of groups and of seeds."""
    generator = np.random.default_rng(0)
    values = generator.normal(0.6, 0.01, (4, 3)) + generator.normal(0, 0.1, 3)
    groups, seeds = np.indices(values.shape)
    X = np.hstack([np.eye(4)[groups.ravel()], np.eye(3)[seeds.ravel()][:, 1:]])
    beta, residual, rank, _ = np.linalg.lstsq(X, values.ravel(), rcond=None)
    w = np.array([1.0, -0.5, -0.5, 0.0, 0.0, 0.0])
    variance = residual[0] / (values.size - rank) * w @ np.linalg.inv(X.T @ X) @ w
    accuracies = dict(zip("abcd", values.tolist(), strict=True))
    found = blocked_contrast(accuracies, {"a": 1.0, "b": -0.5, "c": -0.5})
    assert found.value == pytest.approx(w @ beta)
    assert found.standard_error == pytest.approx(np.sqrt(variance))
