"""Tests of the rules of chapter 17, on accuracies and maps made up for them."""

import numpy as np
import pytest
import torch
from helpers import ROOT

from attnconv.heads import mean_by_offset
from attnconv.vit.capture import attention_of
from companion.runs.record import load_run
from companion.specs import SPECS, recipe
from companion.studies.starts.measures import (
    compare_gains,
    compare_starts,
    share_that_stayed,
    shift_probabilities,
)

FOUND = {
    "vit-default": {"vit-5k": [0.40, 0.42], "vit-10k": [0.50, 0.52], "vit-50k": [0.70, 0.72]},
    "vit-convolution": {"vit-5k": [0.60, 0.62], "vit-10k": [0.60, 0.62], "vit-50k": [0.73, 0.75]},
}


def test_a_gain_counts_beyond_two_standard_errors():
    found = compare_starts(FOUND, "vit-convolution", "vit-default", "vit-10k")
    assert found.value == pytest.approx(0.10)
    # both starts have a standard deviation of 0.0141 in every tier, and two seeds
    assert found.standard_error == pytest.approx(np.sqrt(2 * 0.0002 / 2))
    assert found.sign == 1
    back = compare_starts(FOUND, "vit-default", "vit-convolution", "vit-10k")
    assert back.sign == -1
    assert compare_starts(FOUND, "vit-convolution", "vit-default", "vit-50k").sign == 1
    near = FOUND | {"vit-convolution": {"vit-50k": [0.71, 0.74]}}
    assert compare_starts(near, "vit-convolution", "vit-default", "vit-50k").sign == 0


def test_gains_are_compared_with_the_errors_of_four_means():
    found = compare_gains(FOUND, "vit-5k", "vit-50k")
    assert found.value == pytest.approx(0.20 - 0.03)
    assert found.standard_error == pytest.approx(np.sqrt(4 * 0.0002 / 2))


def test_the_share_that_stayed_counts_heads(monkeypatch):
    class Layer:
        def __init__(self, shifts):
            self.offsets = torch.tensor(shifts)

    moments = {0: [Layer([[0, 0], [0, 1]]), Layer([[1, 0], [1, 1]])]}
    moments[-1] = [Layer([[0, 0], [0, 2]]), Layer([[1, 0], [1, 1]])]
    monkeypatch.setattr(
        "companion.studies.starts.measures.heads_of", lambda _, moment: moments[moment]
    )
    assert share_that_stayed(None) == 0.75


def test_shift_probabilities_are_means_over_images():
    pytest.importorskip("timm")
    torch.manual_seed(0)
    model, images = SPECS["vit-default"].build(num_layers=2), torch.randn(25, 3, 32, 32)
    found = shift_probabilities(model, images)
    assert found.shape == (2, 9, 15, 15)
    for layer, expected in zip(found, attention_of(model, images), strict=True):
        by_image = torch.stack([mean_by_offset(maps) for maps in expected.maps]).mean(dim=0)
        torch.testing.assert_close(layer.float(), by_image.float(), atol=1e-3, rtol=1e-3)


def test_the_rate_is_the_best_of_the_committed_pilots():
    folders = sorted((ROOT / "data" / "pilot-vit").iterdir())
    runs = [load_run(next(folder.iterdir())) for folder in folders]
    given = [run.info.parameters for run in runs]
    assert [each["learning_rate"] for each in given] == [0.0005, 0.001, 0.002]
    assert {(each["model"], each["seed"], each["held_out"], each["epochs"]) for each in given} == {
        ("vit-default", 0, 5000, 8)
    }
    best = max(runs, key=lambda run: run.accuracy)
    assert (
        recipe("vit-default", "vit-10k")["learning_rate"] == best.info.parameters["learning_rate"]
    )
