"""The data: scikit-learn's digits and photographs (inside the dependencies), and CIFAR-10.

Letters: N images, C channels, H x W pixels.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torchvision
from sklearn.datasets import load_digits, load_sample_image
from sklearn.model_selection import train_test_split
from torch import Tensor

REPOSITORY = Path(__file__).parents[2]
PHOTOGRAPHS = ("china", "flower")


@dataclass(frozen=True)
class Dataset:
    """Labelled images: `*_images` `(N, C, H, W)` uint8, `*_labels` `(N,)` int64; `mean`, `std` per channel, white being 1."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalise(self, images: Tensor) -> Tensor:
        """uint8 `(N, C, H, W)` -> float32 with `mean` removed and divided by `std`."""
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return (images.float() / 255 - mean) / std


def load_dataset(name: str, root: str | Path | None = None) -> Dataset:
    """`digits` (8 x 8, 1437 images to train on and 360 to test) or `cifar10` (32 x 32, 50000 and 10000).

    CIFAR-10 is looked for in `root`, else in the folder that ATTNCONV_DATA names, else in the repository's `data/`.
    ValueError for an unknown name, FileNotFoundError where the data is absent.
    """
    if name == "digits":
        return _digits()
    if name == "cifar10":
        return _cifar10(Path(root or os.environ.get("ATTNCONV_DATA") or REPOSITORY / "data"))
    raise ValueError(f"unknown dataset {name!r}, expected digits or cifar10")


def _digits() -> Dataset:
    bunch = load_digits()
    images = torch.as_tensor(bunch.images * 255 / 16).round().to(torch.uint8).unsqueeze(1)  # 17 grey levels
    labels = torch.as_tensor(bunch.target).long()
    train, test = train_test_split(np.arange(len(labels)), test_size=360, stratify=labels, random_state=0)
    scaled = images[train].double() / 255
    classes = tuple(str(name) for name in bunch.target_names)
    statistics = (scaled.mean().item(),), (scaled.std().item(),)
    return Dataset("digits", images[train], labels[train], images[test], labels[test], classes, *statistics)


def _cifar10(root: Path) -> Dataset:
    try:
        parts = [torchvision.datasets.CIFAR10(root, train=train, download=False) for train in (True, False)]
    except RuntimeError as error:
        raise FileNotFoundError(
            f"CIFAR-10 was not found, or is damaged, in {root} (expected the folder cifar-10-batches-py with the files of the"
            " original archive). Set root or the variable ATTNCONV_DATA to its parent folder, or download it with"
            f" torchvision.datasets.CIFAR10({str(root)!r}, download=True)"
        ) from error
    images = [torch.as_tensor(part.data).permute(0, 3, 1, 2).contiguous() for part in parts]
    labels = [torch.tensor(part.targets) for part in parts]
    statistics = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of the published code; the true std is about 0.25
    return Dataset("cifar10", images[0], labels[0], images[1], labels[1], tuple(parts[0].classes), *statistics)


def load_photograph(name: str = "china", size: tuple[int, int] | None = None) -> Tensor:
    """One of scikit-learn's two photographs, `china` or `flower`: `(H, W, 3)`, float32 from 0 to 1.

    With `size` it is reduced to that height and width by averaging.
    """
    if name not in PHOTOGRAPHS:
        raise ValueError(f"unknown photograph {name!r}, expected {' or '.join(PHOTOGRAPHS)}")
    image = torch.as_tensor(load_sample_image(f"{name}.jpg").copy()).float() / 255
    if size is None:
        return image
    reduced = torch.nn.functional.interpolate(image.permute(2, 0, 1)[None], size=size, mode="area")
    return reduced[0].permute(1, 2, 0)


def whitened(image: Tensor) -> Tensor:
    """An image `(H, W, C)` with its channels decorrelated, at mean 0 and variance 1 (the symmetric, "ZCA", whitening)."""
    centred = image - image.mean(dim=(0, 1))
    covariance = torch.cov(centred.flatten(0, 1).T)
    variance, basis = torch.linalg.eigh(covariance)
    return centred @ (basis * variance.rsqrt()) @ basis.T
