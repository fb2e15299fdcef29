import pytest
import torch

from attnconv import load_dataset
from attnconv.data import load_photograph, whitened


def test_digits():
    digits = load_dataset("digits")
    assert digits.train_images.shape == (1437, 1, 8, 8) and digits.test_images.shape == (360, 1, 8, 8)
    assert digits.train_images.dtype == torch.uint8 and digits.train_images.unique().numel() == 17
    assert digits.test_labels.bincount().tolist() == [36, 36, 35, 37, 36, 37, 36, 36, 35, 36]
    images = digits.normalise(digits.train_images)
    assert images.mean().item() == pytest.approx(0, abs=1e-5) and images.std().item() == pytest.approx(1, abs=1e-5)
    train = {tuple(image.flatten().tolist()) for image in digits.train_images}
    assert not train & {tuple(image.flatten().tolist()) for image in digits.test_images}


def test_photographs():
    assert load_photograph("china").shape == (427, 640, 3)
    small = load_photograph("flower", (61, 80))
    assert small.shape == (61, 80, 3) and small.min() >= 0 and small.max() <= 1
    white = whitened(small.double()).flatten(0, 1)
    assert torch.allclose(white.T.cov(), torch.eye(3).double()) and white.mean(0).abs().max() < 1e-12
    with pytest.raises(ValueError, match="expected china or flower"):
        load_photograph("lena")


def test_unknown_and_absent_data(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="unknown dataset 'mnist', expected digits or cifar10"):
        load_dataset("mnist")
    with pytest.raises(FileNotFoundError, match=r"was not found, or is damaged, in .*Set root or the variable ATTNCONV_DATA"):
        load_dataset("cifar10", tmp_path / "nowhere")
    monkeypatch.setenv("ATTNCONV_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=tmp_path.name):
        load_dataset("cifar10")
    assert not list(tmp_path.iterdir()), "nothing is written where nothing was found"
