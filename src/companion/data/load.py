"""Functions that load the data sets and a few pictures by name.

The digits come with scikit-learn, and the pictures with scikit-learn and scikit-image.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..store import REPOSITORY, DamagedFile, user_path
from .cifar10 import kept_cifar10, read_cifar10
from .dataset import Dataset

#: The names of scikit-learn's photographs.
PHOTOGRAPHS = ("china", "flower")
#: The names of scikit-image's pictures whose subject belongs to a CIFAR-10 class.
PICTURES = ("chelsea", "horse")


def load_dataset(name: str, root: str | Path | None = None) -> Dataset:
    """Load a data set: `digits` (1437 + 360 images) or `cifar10` (50000 + 10000).

    The first of the following that exists in the folder of CIFAR-10, or at most two folders deeper,
    is used: the decoded copy `cache/cifar10.safetensors`, the files of the original archive (Python
    or binary version), one PNG per image (`train/cat/0.png`, torchvision's ImageFolder layout),
    Hugging Face's Parquet files (`plain_text/`; they need pyarrow), or the archive itself. If none
    exists, torchvision downloads the data. The data are verified, sorted and stored as a decoded
    copy.

    Args:
        name: `digits` (8 x 8 pixels) or `cifar10` (32 x 32).
        root: The folder of CIFAR-10 or its archive, by default the folder named by the environment
            variable ATTNCONV_DATA, or else the repository's `data/`.

    Returns:
        The training and test images with their labels and classes.

    Raises:
        ValueError: If the name is unknown or the data are damaged.
        FileNotFoundError: If the data are absent.
        ImportError: If they need pyarrow.

    Example:
        >>> import attnconv
        >>> digits = attnconv.load_dataset("digits")
        >>> digits.train_images.shape, digits.test_images.shape
        (torch.Size([1437, 8, 8, 1]), torch.Size([360, 8, 8, 1]))
    """
    if name == "digits":
        return _digits()
    if name == "cifar10":
        return read_cifar10(user_path(root) if root else _default_root())
    raise ValueError(f"unknown dataset {name!r}, expected digits or cifar10")


@cache
def dataset_at_hand(name: str) -> Dataset | None:
    """Return the data set with the given name if it can be read immediately, else None.

    Digits can always be read; CIFAR-10 requires the copy stored by `python -m attnconv data`.
    """
    if name != "cifar10":
        return load_dataset(name)
    try:
        return kept_cifar10(_default_root())
    except (DamagedFile, OSError):  # absent, damaged, or not this data set
        return None


def _default_root() -> Path:
    return user_path(os.environ.get("ATTNCONV_DATA") or REPOSITORY / "data")


def _digits() -> Dataset:
    # imported here, because importing scikit-learn takes seconds
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch: Any = load_digits()
    # 17 grey levels
    images = torch.as_tensor(bunch.images * 255 / 16).round().to(torch.uint8).unsqueeze(-1)
    labels = torch.as_tensor(bunch.target).long()
    train, test = train_test_split(
        np.arange(len(labels)), test_size=360, stratify=labels, random_state=0
    )
    scaled = images[train].double() / 255
    classes = tuple(str(name) for name in bunch.target_names)
    statistics = (scaled.mean().item(),), (scaled.std().item(),)
    return Dataset(
        "digits", images[train], labels[train], images[test], labels[test], classes, *statistics
    )


def load_photograph(name: str = "china", size: tuple[int, int] | None = None) -> Tensor:
    """Load the picture with the given name: `(H, W, 3)`, float32, with values from 0 to 1.

    `china` and `flower` come from scikit-learn (CC BY 2.0, sources in its `datasets/images`).
    `chelsea`, a cat photographed by Stefan van der Walt, and `horse`, a black silhouette on white
    by Andreas Preuss (openclipart.org/detail/158377/horse-by-marauder), are CC0 and come from
    scikit-image, which the extra `book` installs. With `size`, the picture is reduced to that
    height and width by averaging. Raises ValueError for an unknown name, and ImportError if
    scikit-image is needed but not installed.
    """
    if name not in PHOTOGRAPHS + PICTURES:
        known = ", ".join(PHOTOGRAPHS + PICTURES)
        raise ValueError(f"unknown photograph {name!r}, expected one of {known}")
    image = torch.as_tensor(_pixels_of(name).copy()).float() / 255
    return image if size is None else _reduced(image, size)


def middle_square(image: Tensor, side: int) -> Tensor:
    """Return the middle square of an image `(H, W, C)`, averaged down to `(side, side, C)`."""
    whole = min(image.shape[:2])
    top, left = ((length - whole) // 2 for length in image.shape[:2])
    return _reduced(image[top : top + whole, left : left + whole], (side, side))


def _reduced(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Return an image `(H, W, C)` averaged down to a height and width."""
    first = image.permute(2, 0, 1)[None]
    return torch.nn.functional.interpolate(first, size=size, mode="area")[0].permute(1, 2, 0)


def _pixels_of(name: str) -> np.ndarray:
    """Return a picture `(H, W, 3)` uint8 from scikit-learn or scikit-image."""
    if name in PHOTOGRAPHS:
        from sklearn.datasets import load_sample_image

        return load_sample_image(f"{name}.jpg")
    try:
        from skimage import data
    except ImportError as error:
        needs = f"the picture {name!r} needs scikit-image: pip install 'attnconv[book]'"
        raise ImportError(needs) from error
    picture = getattr(data, name)()
    if picture.ndim == 2:  # the horse is black (False) and white
        picture = np.repeat(255 * picture[..., None].astype(np.uint8), 3, axis=2)
    return picture


def whitened(image: Tensor) -> Tensor:
    """Return an image `(H, W, C)` with its channels centred, decorrelated and scaled to variance 1.

    The method is symmetric (ZCA) whitening.
    """
    centred = image - image.mean(dim=(0, 1))
    covariance = torch.cov(centred.flatten(0, 1).T)
    variance, basis = torch.linalg.eigh(covariance)
    return centred @ (basis * variance.rsqrt()) @ basis.T
