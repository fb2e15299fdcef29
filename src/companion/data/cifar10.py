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
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from tqdm.auto import tqdm

from ..store import DamagedFile, read_tensors, write_tensors
from .dataset import Dataset

CIFAR10_CLASSES = (  # in alphabetical order
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
#: The number of images in each split.
CIFAR10_COUNTS = {"train": 50_000, "test": 10_000}
CIFAR10_MEAN = [0.49139968, 0.48215841, 0.44653091]  # of the training images, by channel
#: The mean and std used by the published code; the images' true std is different.
CIFAR10_NORMALISATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
#: The `Dataset.fingerprint` of CIFAR-10 in the order of `find_cifar10`.
CIFAR10_FINGERPRINT = "65859bba238e151c7e16e0619de847e622504d9f2625ef4ed59d5777d8e23a0f"
KEPT = Path("cache", "cifar10.safetensors")  # the decoded copy, in the data folder
HOW_TO_GET_IT = (
    "download the original with torchvision.datasets.CIFAR10(FOLDER, download=True), or put one PNG"
    " an image into FOLDER/cifar10/{train,test}/CLASS/, and name FOLDER by root or the variable"
    " ATTNCONV_DATA"
)


def read_cifar10(root: Path) -> Dataset:
    """Read CIFAR-10 from a folder or download it, as described in `load_dataset`."""
    cache = root / KEPT
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
    tensors = read_tensors(root / KEPT)[0]
    if sorted(tensors) != ["test_images", "test_labels", "train_images", "train_labels"]:
        raise DamagedFile(
            f"{root / KEPT} contains {', '.join(sorted(tensors)) or 'nothing'}, not CIFAR-10"
        )
    for name in ("train_images", "test_images"):
        tensors[name] = tensors[name].permute(0, 2, 3, 1).contiguous()
    return _as_cifar10(tensors)


def _as_cifar10(tensors: dict[str, Tensor]) -> Dataset:
    """Return images and labels as a data set with CIFAR-10's classes and normalisation."""
    mean, std = CIFAR10_NORMALISATION
    return Dataset("cifar10", **tensors, classes=CIFAR10_CLASSES, mean=mean, std=std)


def find_cifar10(root: Path) -> Dataset:
    """Find CIFAR-10 in a folder or download it, and then verify it.

    The images are ordered by their digests, so that the order does not depend on the source. Raises
    ValueError if the data are damaged or are not CIFAR-10, and FileNotFoundError if they are absent
    and cannot be downloaded.
    """
    if (source := root / "cifar-10-batches-py").exists():
        splits = read_archive(root)
    elif (source := root / "cifar10").exists():
        splits = {split: _read_folder(source / split, n) for split, n in CIFAR10_COUNTS.items()}
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
    if (found := dataset.fingerprint) != CIFAR10_FINGERPRINT:
        mean = splits["train"][0].mean(axis=(0, 1, 2)) / 255
        raise ValueError(
            f"{source} is not CIFAR-10: some images or labels were exchanged (fingerprint"
            f" {found[:12]}, expected {CIFAR10_FINGERPRINT[:12]}); the training images have the"
            f" channel means {mean.round(8).tolist()}, expected {CIFAR10_MEAN}. Remove it and"
            f" {HOW_TO_GET_IT}"
        )
    return dataset


def read_archive(root: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Read the images and labels of each split from the original archive, and verify its MD5.

    Raises ValueError if a file is missing or damaged.
    """
    import torchvision

    read = torchvision.datasets.CIFAR10
    try:
        parts = {split: read(root, train=split == "train") for split in CIFAR10_COUNTS}
    except RuntimeError as error:
        raise ValueError(
            f"{root / 'cifar-10-batches-py'} is incomplete or damaged (a file's MD5 is not the"
            f" original's). Remove it and {HOW_TO_GET_IT}"
        ) from error
    return {split: (part.data, np.array(part.targets)) for split, part in parts.items()}


def _read_folder(folder: Path, expected: int) -> tuple[np.ndarray, np.ndarray]:
    """Read images `(N, 32, 32, 3)` uint8 and labels `(N,)` int64 from `folder/<class>/*.png`.

    Raises ValueError unless there are `expected` images, with the same number in each class.
    """
    found = sorted(path.name for path in folder.glob("*/"))
    if found != sorted(CIFAR10_CLASSES):
        raise ValueError(
            f"{folder} has the class folders {', '.join(found) or '(none)'}, expected"
            f" {', '.join(CIFAR10_CLASSES)}. Correct it, or {HOW_TO_GET_IT}"
        )
    files = {name: sorted((folder / name).glob("*.png")) for name in CIFAR10_CLASSES}
    each = expected // len(CIFAR10_CLASSES)
    if wrong := [f"{name} {len(paths)}" for name, paths in files.items() if len(paths) != each]:
        raise ValueError(
            f"{folder} does not have {each} {folder.name} images of each class: {', '.join(wrong)}."
            f" Remove it and {HOW_TO_GET_IT}"
        )
    paths = [path for of_class in files.values() for path in of_class]
    images = np.empty((expected, 32, 32, 3), dtype=np.uint8)
    for i, path in enumerate(tqdm(paths, f"reading {folder}", unit=" images", disable=None)):
        images[i] = _read_image(path)
    return images, np.arange(len(CIFAR10_CLASSES)).repeat(each)


def _read_image(path: Path) -> np.ndarray:
    try:
        with Image.open(path) as image:
            if (image.size, image.mode) == ((32, 32), "RGB"):
                return np.asarray(image)
            what = f"{image.width} x {image.height} pixels, mode {image.mode}"
    # PIL's errors for a truncated file or a file of another type
    except (OSError, SyntaxError, UnidentifiedImageError) as error:
        what = str(error)
    raise ValueError(
        f"{path} is not an image of 32 x 32 pixels, mode RGB ({what}). Replace it, or"
        f" {HOW_TO_GET_IT}"
    )


def _download(root: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Download the original archive into a temporary folder and read it.

    The archive is not kept: `read_cifar10` stores only the decoded copy.
    """
    import torchvision

    try:
        with tempfile.TemporaryDirectory() as folder, _network_timeout(20):
            torchvision.datasets.CIFAR10(folder, download=True)
            return read_archive(Path(folder))
    except (OSError, RuntimeError) as error:
        raise FileNotFoundError(
            f"CIFAR-10 is not in {root} (expected cache/cifar10.safetensors, cifar-10-batches-py/"
            f" or cifar10/) and could not be downloaded ({error}). On a machine with a network"
            f" {HOW_TO_GET_IT}"
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
