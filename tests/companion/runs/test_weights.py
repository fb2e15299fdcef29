"""The transform that a trained network comes with."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from companion.data import Normaliser
from companion.data.cifar10 import CIFAR10_NORMALISATION
from companion.runs.weights import load_model, model_of, picture_transform

PICTURE = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)


@pytest.mark.parametrize("picture", [PICTURE, Image.fromarray(PICTURE), torch.as_tensor(PICTURE)])
def test_it_normalises_as_the_data_set_does(picture):
    expected = Normaliser(*CIFAR10_NORMALISATION)(torch.as_tensor(PICTURE))
    torch.testing.assert_close(picture_transform(picture), expected)


def test_larger_pictures_are_reduced_to_their_middle_square():
    wide = np.zeros((64, 192, 3), np.uint8)
    wide[:, 64:128] = 255  # the middle square is white
    white = picture_transform(wide)
    assert white.shape == (3, 32, 32) and white[:, :, 2:-2].std(dim=(1, 2)).max() < 1e-5
    grey = Image.fromarray(wide[:, :, 0])
    torch.testing.assert_close(picture_transform(grey), white)


def test_other_arrays_are_refused():
    with pytest.raises(ValueError, match=r"shape \(3, 32, 32\) and type float32, expected"):
        picture_transform(np.zeros((3, 32, 32), np.float32))


def test_a_loaded_model_has_it_and_nothing_more_to_save():
    model = load_model("sa-quadratic")
    assert model(model.transform(PICTURE).unsqueeze(0)).shape == (1, 10)
    assert not [name for name, _ in model.named_modules() if "transform" in name]


def test_the_weights_of_an_unfinished_run_are_refused():
    """Weights from an earlier run remain in the folder while the run is repeated."""
    record = load_model("cnn").record
    running = replace(record, info=record.info.model_copy(update={"status": "running"}))
    with pytest.raises(FileNotFoundError, match=r"is not finished \(status: running\)"):
        model_of(running)
