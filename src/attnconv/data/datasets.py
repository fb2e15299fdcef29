"""The data sets by name."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..store import REPOSITORY, DamagedFile
from .cifar10 import kept_cifar10, read_cifar10
from .dataset import Dataset


def load_dataset(name: str, root: str | Path | None = None) -> Dataset:
    """`digits` (8 x 8, 1437 images to train on and 360 to test) or `cifar10` (32 x 32, 50000 and
    10000).

    CIFAR-10 is looked for in `root`, else in the folder that ATTNCONV_DATA names, else in the
    repository's `data/`: first the decoded copy `cache/cifar10.safetensors`, then the original
    archive's `cifar-10-batches-py/`, then `cifar10/` with one PNG an image (`train/cat/0.png`,
    torchvision's ImageFolder layout); else torchvision downloads it. Whatever was found is
    verified, put in one order and kept as the decoded copy. ValueError for an unknown name or
    damaged data, FileNotFoundError where the data is absent.
    """
    if name == "digits":
        return _digits()
    if name == "cifar10":
        return read_cifar10(Path(root) if root else _default_root())
    raise ValueError(f"unknown dataset {name!r}, expected digits or cifar10")


@cache
def dataset_at_hand(name: str) -> Dataset | None:
    """The data set if it can be read at once: digits, or the decoded copy of CIFAR-10 that
    `python -m attnconv data` keeps."""
    if name != "cifar10":
        return load_dataset(name)
    try:
        return kept_cifar10(_default_root())
    except (DamagedFile, OSError):  # absent, damaged, or something else
        return None


def _default_root() -> Path:
    return Path(os.environ.get("ATTNCONV_DATA") or REPOSITORY / "data")


def _digits() -> Dataset:
    # here, as torchvision below: importing them takes seconds
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
