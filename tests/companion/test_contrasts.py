"""Contrasts of mean accuracies, against computations by hand."""

import numpy as np
import pytest

from companion.contrasts import contrast, pooled_deviation


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
