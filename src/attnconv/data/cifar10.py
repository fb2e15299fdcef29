"""CIFAR-10: found or downloaded, verified, put in one order whatever it was read from, and kept
decoded."""

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

CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
#: Images of each split.
CIFAR10_COUNTS = {"train": 50_000, "test": 10_000}
# of "train"
CIFAR10_MEAN = (0.49139968, 0.48215841, 0.44653091)
CIFAR10_STD = (0.24703223, 0.24348513, 0.26158784)
#: Mean and std of the published code, which divides by other numbers than the true std.
CIFAR10_NORMALISATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
#: `Dataset.fingerprint` of CIFAR-10 in the order of `find_cifar10`.
CIFAR10_FINGERPRINT = "65859bba238e151c7e16e0619de847e622504d9f2625ef4ed59d5777d8e23a0f"
KEPT = Path("cache", "cifar10.safetensors")  # the decoded copy, in the data folder
HOW_TO_GET_IT = (
    "download the original with torchvision.datasets.CIFAR10(FOLDER, download=True), or put one PNG"
    " an image into FOLDER/cifar10/{train,test}/CLASS/, and name FOLDER by root or the variable"
    " ATTNCONV_DATA"
)


def read_cifar10(root: Path) -> Dataset:
    """From what lies in a folder, or from the network; see `load_dataset`."""
    cache = root / KEPT
    if cache.exists():
        try:
            dataset = kept_cifar10(root)
            if dataset.fingerprint == CIFAR10_FINGERPRINT:
                return dataset
            warnings.warn(f"{cache} does not hold CIFAR-10; making it anew", stacklevel=3)
        except (DamagedFile, OSError) as error:
            warnings.warn(f"{error}; making it anew", stacklevel=3)
    dataset = find_cifar10(root)
    try:
        write_tensors(cache, dataset.to_tensors(), {})
    except OSError as error:
        warnings.warn(
            f"the decoded images could not be kept in {cache} ({error}); they will be decoded"
            " again",
            stacklevel=3,
        )
    return dataset


def kept_cifar10(root: Path) -> Dataset:
    """The decoded copy. DamagedFile or OSError when there is none that is whole."""
    tensors = read_tensors(root / KEPT)[0]
    if tensors.keys() != {
        f"{split}_{what}" for split in CIFAR10_COUNTS for what in ("images", "labels")
    }:
        raise DamagedFile(
            f"{root / KEPT} does not hold CIFAR-10, but {', '.join(sorted(tensors)) or 'nothing'}"
        )
    images = {
        name: tensors.pop(name).permute(0, 2, 3, 1).contiguous()
        for name in ("train_images", "test_images")
    }
    return _as_cifar10(tensors | images)


def _as_cifar10(tensors: dict[str, Tensor]) -> Dataset:
    """Images and labels by name with what CIFAR-10 has besides: its classes, and the published
    code's normalisation."""
    mean, std = CIFAR10_NORMALISATION
    return Dataset("cifar10", **tensors, classes=CIFAR10_CLASSES, mean=mean, std=std)


def find_cifar10(root: Path) -> Dataset:
    """The verified images and labels in the order of their digests, which is the same whatever they
    were read from."""
    if (root / "cifar-10-batches-py").exists():
        splits, source = read_archive(root), root / "cifar-10-batches-py"
    elif (root / "cifar10").exists():
        source = root / "cifar10"
        splits = {
            split: _read_folder(source / split, count) for split, count in CIFAR10_COUNTS.items()
        }
    else:
        splits, source = _download(root), "the download"
    tensors = {}
    for split, (images, labels) in splits.items():
        _check_split(images, labels, split, source)
        digests = [
            hashlib.sha256(image.tobytes() + bytes([label])).digest()
            for image, label in zip(images, labels, strict=True)
        ]
        order = np.argsort(digests)
        tensors[f"{split}_images"] = torch.from_numpy(images[order])
        tensors[f"{split}_labels"] = torch.from_numpy(labels[order])
    dataset = _as_cifar10(tensors)
    if (found := dataset.fingerprint) != CIFAR10_FINGERPRINT:
        raise ValueError(
            f"{source} has the counts and channel statistics of CIFAR-10 but is not CIFAR-10: some"
            f" images or labels were exchanged (fingerprint {found[:12]}, expected"
            f" {CIFAR10_FINGERPRINT[:12]}). Remove it and {HOW_TO_GET_IT}"
        )
    return dataset


def _check_split(images: np.ndarray, labels: np.ndarray, split: str, source: Path | str) -> None:
    """ValueError unless `(N, 32, 32, 3)` and `(N,)` have CIFAR-10's counts per class and channel
    statistics."""
    counts, expected = np.bincount(labels, minlength=10).tolist(), CIFAR10_COUNTS[split] // 10
    if counts != [expected] * 10:
        found = ", ".join(
            f"{name} {count}"
            for name, count in zip(CIFAR10_CLASSES, counts, strict=True)
            if count != expected
        )
        raise ValueError(
            f"{source} has not {expected} {split} images of each class: {found}. Remove it and"
            f" {HOW_TO_GET_IT}"
        )
    if split != "train":
        return
    mean, std = images.mean(axis=(0, 1, 2)) / 255, images.std(axis=(0, 1, 2)) / 255
    if not (
        np.allclose(mean, CIFAR10_MEAN, atol=1e-6) and np.allclose(std, CIFAR10_STD, atol=1e-6)
    ):
        raise ValueError(
            f"the {split} images of {source} have the channel means {mean.round(6).tolist()} and"
            f" standard deviations {std.round(6).tolist()}, expected {list(CIFAR10_MEAN)} and"
            f" {list(CIFAR10_STD)}. Remove it and {HOW_TO_GET_IT}"
        )


def read_archive(root: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    import torchvision

    try:
        parts = {
            split: torchvision.datasets.CIFAR10(root, train=split == "train")
            for split in CIFAR10_COUNTS
        }
    except RuntimeError as error:  # torchvision compares each file's MD5
        raise ValueError(
            f"{root / 'cifar-10-batches-py'} is incomplete or damaged (a file's MD5 is not the"
            f" original's). Remove it and {HOW_TO_GET_IT}"
        ) from error
    return {split: (part.data, np.array(part.targets)) for split, part in parts.items()}


def _read_folder(folder: Path, expected: int) -> tuple[np.ndarray, np.ndarray]:
    """Images `(N, 32, 32, 3)` uint8 and labels `(N,)` int64 of `folder/<class>/*.png`, the classes
    in alphabetical order."""
    found = (
        sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    )
    if found != sorted(CIFAR10_CLASSES):
        raise ValueError(
            f"{folder} has the class folders {', '.join(found) or '(none)'}, expected"
            f" {', '.join(CIFAR10_CLASSES)}. Mend it, or {HOW_TO_GET_IT}"
        )
    files = [
        (path, label)
        for label, name in enumerate(CIFAR10_CLASSES)
        for path in sorted((folder / name).glob("*.png"))
    ]
    labels = np.array([label for _, label in files], dtype=np.int64)
    if np.bincount(labels, minlength=10).tolist() != [expected // 10] * 10:
        _check_split(np.empty(0), labels, folder.name, folder)
    images = np.empty((expected, 32, 32, 3), dtype=np.uint8)
    for i, (path, _) in enumerate(
        tqdm(files, desc=f"reading {folder}", unit=" images", disable=None)
    ):
        images[i] = _read_image(path)
    return images, labels


def _read_image(path: Path) -> np.ndarray:
    try:
        with Image.open(path) as image:
            if (image.size, image.mode) == ((32, 32), "RGB"):
                return np.asarray(image)
            what = f"{image.width} x {image.height} pixels, mode {image.mode}"
    # PIL's errors for a truncated or foreign file
    except (OSError, SyntaxError, UnidentifiedImageError) as error:
        what = str(error)
    raise ValueError(
        f"{path} is not an image of 32 x 32 pixels, mode RGB ({what}). Replace it, or"
        f" {HOW_TO_GET_IT}"
    )


def _download(root: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The original archive, checked by its MD5, through a temporary folder: what is kept is the
    decoded copy."""
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
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
