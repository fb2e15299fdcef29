"""Find or download CIFAR-10, verify and sort it, and store a decoded copy."""

import hashlib
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..store import DamagedFile, read_tensors, write_tensors
from .dataset import Dataset
from .layouts import (
    CIFAR10_CLASSES,
    HOW_TO_GET_IT,
    LAYOUTS,
    Splits,
    find_layout,
    read_batches,
)

CIFAR10_MEAN = [0.49139968, 0.48215841, 0.44653091]  # of the training images, by channel
#: The mean and std used by the published code; the images' true std is different.
CIFAR10_NORMALISATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
#: The `Dataset.fingerprint` of CIFAR-10 in the order of `find_cifar10`.
CIFAR10_FINGERPRINT = "65859bba238e151c7e16e0619de847e622504d9f2625ef4ed59d5777d8e23a0f"
KEPT = Path("cache", "cifar10.safetensors")  # the decoded copy, in the data folder


def read_cifar10(root: Path) -> Dataset:
    """Read CIFAR-10 from a folder or download it, as described in `load_dataset`."""
    cache = _kept(root)
    if cache.exists():
        try:
            dataset = kept_cifar10(root)
            if dataset.fingerprint == CIFAR10_FINGERPRINT:
                return dataset
            raise DamagedFile(f"{cache} does not contain CIFAR-10")
        except (DamagedFile, OSError) as error:
            warnings.warn(f"{error}; creating it again", stacklevel=3)
    dataset = find_cifar10(root)
    try:
        write_tensors(cache, dataset.to_tensors(), {})
    except OSError as error:
        warnings.warn(
            f"could not store the decoded images in {cache} ({error}); decoding again later",
            stacklevel=3,
        )
    return dataset


def kept_cifar10(root: Path) -> Dataset:
    """Read the decoded copy of CIFAR-10 from the data folder.

    Raises OSError if the copy is missing, and DamagedFile if it is damaged or incomplete.
    """
    path = _kept(root)
    tensors = read_tensors(path)[0]
    if sorted(tensors) != ["test_images", "test_labels", "train_images", "train_labels"]:
        raise DamagedFile(
            f"{path} contains {', '.join(sorted(tensors)) or 'nothing'}, not CIFAR-10"
        )
    for name in ("train_images", "test_images"):
        tensors[name] = tensors[name].permute(0, 2, 3, 1).contiguous()
    return _as_cifar10(tensors)


def _kept(root: Path) -> Path:
    """Return the path of the decoded copy, given the data folder or an archive in it."""
    return (root.parent if root.is_file() else root) / KEPT


def _as_cifar10(tensors: dict[str, Tensor]) -> Dataset:
    """Return images and labels as a data set with CIFAR-10's classes and normalisation."""
    mean, std = CIFAR10_NORMALISATION
    return Dataset("cifar10", **tensors, classes=CIFAR10_CLASSES, mean=mean, std=std)


def find_cifar10(root: Path) -> Dataset:
    """Find CIFAR-10 in one of the `LAYOUTS` or download it, and then verify it.

    The images are ordered by their digests, so that the order does not depend on the source. Raises
    ValueError if the data are damaged or are not CIFAR-10, and FileNotFoundError if they are absent
    and cannot be downloaded.
    """
    if found := find_layout(root):
        source, read = found
        splits = read(source)
    else:
        source = "the download"
        splits = _download(root)
    tensors = {}
    for split, (images, labels) in splits.items():
        pairs = zip(images, labels, strict=True)
        order = np.argsort([hashlib.sha256(i.tobytes() + bytes([n])).digest() for i, n in pairs])
        tensors[f"{split}_images"] = torch.from_numpy(images[order])
        tensors[f"{split}_labels"] = torch.from_numpy(labels[order])
    dataset = _as_cifar10(tensors)
    if (fingerprint := dataset.fingerprint) != CIFAR10_FINGERPRINT:
        mean = splits["train"][0].mean(axis=(0, 1, 2)) / 255
        raise ValueError(
            f"the data at {source} are not CIFAR-10: some images or labels were exchanged"
            f" (fingerprint {fingerprint[:12]}, expected {CIFAR10_FINGERPRINT[:12]}); the training"
            f" images have the channel means {mean.round(8).tolist()}, expected {CIFAR10_MEAN}."
            f" Remove them and {HOW_TO_GET_IT}"
        )
    return dataset


def _download(root: Path) -> Splits:
    """Download the original archive into a temporary folder and read it.

    The archive is not kept: `read_cifar10` stores only the decoded copy.
    """
    import torchvision

    try:
        with tempfile.TemporaryDirectory() as folder, _network_timeout(20):
            torchvision.datasets.CIFAR10(folder, download=True)
            return read_batches(Path(folder, "cifar-10-batches-py", "data_batch_1"))
    except (OSError, RuntimeError) as error:
        names = sorted(path.name for path in root.glob("*"))
        raise FileNotFoundError(
            f"CIFAR-10 is not in {root} and could not be downloaded ({error}). Expected"
            f" {KEPT.as_posix()}, or one of {', '.join(LAYOUTS)} there or at most two folders"
            f" deeper; found {', '.join(names[:8] + ['...'] * (len(names) > 8)) or 'nothing'}. On a"
            f" machine with a network {HOW_TO_GET_IT}"
        ) from error


@contextmanager
def _network_timeout(seconds: float) -> Iterator[None]:
    """Set a timeout for network connections, because torchvision sets none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
