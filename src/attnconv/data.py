"""The data: scikit-learn's digits and photographs (inside the dependencies), and CIFAR-10.

Letters: N images, C channels, H x W pixels.
"""

import hashlib
import os
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from tqdm.auto import tqdm

from .store import DamagedFile, digest, read_tensors, write_tensors

CHECKOUT = Path(__file__).parents[2]
REPOSITORY = CHECKOUT if (CHECKOUT / "pyproject.toml").exists() else Path.cwd()  # installed elsewhere: the current folder
PHOTOGRAPHS = ("china", "flower")
IMAGE_SIZES = {"digits": 8, "cifar10": 32}  # pixels a side
CHANNELS = {"digits": 1, "cifar10": 3}
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_COUNTS = {"train": 50_000, "test": 10_000}
CIFAR10_MEAN, CIFAR10_STD = (0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)  # of "train"
CIFAR10_FINGERPRINT = "65859bba238e151c7e16e0619de847e622504d9f2625ef4ed59d5777d8e23a0f"  # of the order below
HOW_TO_GET_IT = (
    "download the original with torchvision.datasets.CIFAR10(FOLDER, download=True), or put one PNG an image into"
    " FOLDER/cifar10/{train,test}/CLASS/, and name FOLDER by root or the variable ATTNCONV_DATA"
)


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
        mean, std = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (self.mean, self.std))
        return (images.float() / 255 - mean) / std

    def subset(self, train: int | None = None, test: int | None = None) -> "Dataset":
        """The first `train` and `test` images (None: all). ValueError for more than there are."""
        for count, labels, name in ((train, self.train_labels, "train"), (test, self.test_labels, "test")):
            if count is not None and not 1 <= count <= len(labels):
                raise ValueError(f"{name}_images = {count}: expected 1 to {len(labels)}, what {self.name} has")
        first = {"train_images": self.train_images[:train], "train_labels": self.train_labels[:train]}
        return replace(self, **first, test_images=self.test_images[:test], test_labels=self.test_labels[:test])

    def hold_out(self, count: int) -> "Dataset":
        """The last `count` training images in place of the test images, so that a choice never meets these. 0: as it is."""
        if not count:
            return self
        if count >= len(self.train_labels):
            raise ValueError(
                f"held_out = {count}: expected less than the {len(self.train_labels)} training images of {self.name}"
            )
        rest = len(self.train_labels) - count
        test = {"test_images": self.train_images[rest:], "test_labels": self.train_labels[rest:]}
        return replace(self, train_images=self.train_images[:rest], train_labels=self.train_labels[:rest], **test)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of images and labels, in hexadecimal: equal for equal data, wherever it was read from."""
        return digest(self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """Images and labels by name."""
        names = ("train_images", "train_labels", "test_images", "test_labels")
        return {name: getattr(self, name) for name in names}


def load_dataset(name: str, root: str | Path | None = None) -> Dataset:
    """`digits` (8 x 8, 1437 images to train on and 360 to test) or `cifar10` (32 x 32, 50000 and 10000).

    CIFAR-10 is looked for in `root`, else in the folder that ATTNCONV_DATA names, else in the repository's `data/`: first the
    decoded copy `cache/cifar10.safetensors`, then the original archive's `cifar-10-batches-py/`, then `cifar10/` with one PNG
    an image (`train/cat/0.png`, torchvision's ImageFolder layout); else torchvision downloads it. Whatever was found is
    verified, put in one order and kept as the decoded copy.
    ValueError for an unknown name or damaged data, FileNotFoundError where the data is absent.
    """
    if name == "digits":
        return _digits()
    if name == "cifar10":
        return _cifar10(Path(root) if root else _default_root())
    raise ValueError(f"unknown dataset {name!r}, expected digits or cifar10")


@cache
def dataset_at_hand(name: str) -> Dataset | None:
    """The data set if it can be read at once: digits, or the decoded copy of CIFAR-10 that `python -m attnconv data` keeps."""
    if name != "cifar10":
        return load_dataset(name)
    try:
        return _as_cifar10(read_tensors(_default_root() / "cache" / "cifar10.safetensors")[0])
    except (DamagedFile, OSError, TypeError):  # absent, damaged, or something else
        return None


def _default_root() -> Path:
    return Path(os.environ.get("ATTNCONV_DATA") or REPOSITORY / "data")


def _digits() -> Dataset:
    from sklearn.datasets import load_digits  # here, as torchvision below: importing them takes seconds
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images = torch.as_tensor(bunch.images * 255 / 16).round().to(torch.uint8).unsqueeze(1)  # 17 grey levels
    labels = torch.as_tensor(bunch.target).long()
    train, test = train_test_split(np.arange(len(labels)), test_size=360, stratify=labels, random_state=0)
    scaled = images[train].double() / 255
    classes = tuple(str(name) for name in bunch.target_names)
    statistics = (scaled.mean().item(),), (scaled.std().item(),)
    return Dataset("digits", images[train], labels[train], images[test], labels[test], classes, *statistics)


# --- CIFAR-10 -------------------------------------------------------------------------------------------------------


def _cifar10(root: Path) -> Dataset:
    cache = root / "cache" / "cifar10.safetensors"
    if cache.exists():
        try:
            dataset = _as_cifar10(read_tensors(cache)[0])
            if dataset.fingerprint == CIFAR10_FINGERPRINT:
                return dataset
            warnings.warn(f"{cache} does not hold CIFAR-10; making it anew", stacklevel=3)
        except (DamagedFile, OSError) as error:
            warnings.warn(f"{error}; making it anew", stacklevel=3)
    dataset = _as_cifar10(_find_cifar10(root))
    try:
        write_tensors(cache, dataset.tensors(), {})
    except OSError as error:
        warnings.warn(f"the decoded images could not be kept in {cache} ({error}); they will be decoded again", stacklevel=3)
    return dataset


def _as_cifar10(tensors: dict[str, Tensor]) -> Dataset:
    normalisation = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of the published code; the true std is CIFAR10_STD
    return Dataset("cifar10", **tensors, classes=CIFAR10_CLASSES, mean=normalisation[0], std=normalisation[1])


def _find_cifar10(root: Path) -> dict[str, Tensor]:
    """The verified images and labels in the order of their digests, which is the same whatever they were read from."""
    if (root / "cifar-10-batches-py").exists():
        splits, source = _read_archive(root), root / "cifar-10-batches-py"
    elif (root / "cifar10").exists():
        source = root / "cifar10"
        splits = {split: _read_folder(source / split, count) for split, count in CIFAR10_COUNTS.items()}
    else:
        splits, source = _download(root), "the download"
    tensors = {}
    for split, (images, labels) in splits.items():
        _check_split(images, labels, split, source)
        digests = [hashlib.sha256(image.tobytes() + bytes([label])).digest() for image, label in zip(images, labels, strict=True)]
        order = np.argsort(digests)
        tensors[f"{split}_images"] = torch.from_numpy(images[order]).permute(0, 3, 1, 2).contiguous()
        tensors[f"{split}_labels"] = torch.from_numpy(labels[order])
    if (found := digest(tensors)) != CIFAR10_FINGERPRINT:
        raise ValueError(
            f"{source} has the counts and channel statistics of CIFAR-10 but is not CIFAR-10: some images or labels were"
            f" exchanged (fingerprint {found[:12]}, expected {CIFAR10_FINGERPRINT[:12]}). Remove it and {HOW_TO_GET_IT}"
        )
    return tensors


def _check_split(images: np.ndarray, labels: np.ndarray, split: str, source: Path | str) -> None:
    """ValueError unless `(N, 32, 32, 3)` and `(N,)` have CIFAR-10's counts per class and channel statistics."""
    counts, expected = np.bincount(labels, minlength=10).tolist(), CIFAR10_COUNTS[split] // 10
    if counts != [expected] * 10:
        found = ", ".join(f"{name} {count}" for name, count in zip(CIFAR10_CLASSES, counts, strict=True) if count != expected)
        raise ValueError(f"{source} has not {expected} {split} images of each class: {found}. Remove it and {HOW_TO_GET_IT}")
    if split != "train":
        return
    mean, std = images.mean(axis=(0, 1, 2)) / 255, images.std(axis=(0, 1, 2)) / 255
    if not (np.allclose(mean, CIFAR10_MEAN, atol=1e-6) and np.allclose(std, CIFAR10_STD, atol=1e-6)):
        raise ValueError(
            f"the {split} images of {source} have the channel means {mean.round(6).tolist()} and standard deviations"
            f" {std.round(6).tolist()}, expected {list(CIFAR10_MEAN)} and {list(CIFAR10_STD)}. Remove it and {HOW_TO_GET_IT}"
        )


def _read_archive(root: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    import torchvision

    try:
        parts = {split: torchvision.datasets.CIFAR10(root, train=split == "train") for split in CIFAR10_COUNTS}
    except RuntimeError as error:  # torchvision compares each file's MD5
        raise ValueError(
            f"{root / 'cifar-10-batches-py'} is incomplete or damaged (a file's MD5 is not the original's)."
            f" Remove it and {HOW_TO_GET_IT}"
        ) from error
    return {split: (part.data, np.array(part.targets)) for split, part in parts.items()}


def _read_folder(folder: Path, expected: int) -> tuple[np.ndarray, np.ndarray]:
    """Images `(N, 32, 32, 3)` uint8 and labels `(N,)` int64 of `folder/<class>/*.png`, the classes in alphabetical order."""
    found = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if found != sorted(CIFAR10_CLASSES):
        raise ValueError(
            f"{folder} has the class folders {', '.join(found) or '(none)'}, expected {', '.join(CIFAR10_CLASSES)}."
            f" Mend it, or {HOW_TO_GET_IT}"
        )
    files = [(path, label) for label, name in enumerate(CIFAR10_CLASSES) for path in sorted((folder / name).glob("*.png"))]
    labels = np.array([label for _, label in files], dtype=np.int64)
    if np.bincount(labels, minlength=10).tolist() != [expected // 10] * 10:
        _check_split(np.empty(0), labels, folder.name, folder)
    images = np.empty((expected, 32, 32, 3), dtype=np.uint8)
    for i, (path, _) in enumerate(tqdm(files, desc=f"reading {folder}", unit=" images", disable=None)):
        images[i] = _read_image(path)
    return images, labels


def _read_image(path: Path) -> np.ndarray:
    try:
        with Image.open(path) as image:
            if (image.size, image.mode) == ((32, 32), "RGB"):
                return np.asarray(image)
            what = f"{image.width} x {image.height} pixels, mode {image.mode}"
    except (OSError, SyntaxError, UnidentifiedImageError) as error:  # PIL's errors for a truncated or foreign file
        what = str(error)
    raise ValueError(f"{path} is not an image of 32 x 32 pixels, mode RGB ({what}). Replace it, or {HOW_TO_GET_IT}")


def _download(root: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The original archive, checked by its MD5, through a temporary folder: what is kept is the decoded copy."""
    import torchvision

    try:
        with tempfile.TemporaryDirectory() as folder, _network_timeout(20):
            torchvision.datasets.CIFAR10(folder, download=True)
            return _read_archive(Path(folder))
    except (OSError, RuntimeError) as error:
        raise FileNotFoundError(
            f"CIFAR-10 is not in {root} (expected cache/cifar10.safetensors, cifar-10-batches-py/ or cifar10/) and could not be"
            f" downloaded ({error}). On a machine with a network {HOW_TO_GET_IT}"
        ) from error


@contextmanager
def _network_timeout(seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


# --- batches on a device --------------------------------------------------------------------------------------------


class Batches:
    """The images of one split on one device: normalised batches, as they are or randomly cropped and mirrored.

    A crop is a window of the image's size in the image with `padding` black pixels around it (torchvision's RandomCrop);
    cropping and mirroring are one lookup for the whole batch.
    """

    def __init__(self, dataset: Dataset, images: Tensor, labels: Tensor, device: torch.device | str = "cpu", padding: int = 0):
        self.size = images.shape[-2:]
        channels_last = torch.nn.functional.pad(images, (padding,) * 4).permute(0, 2, 3, 1).contiguous()
        self.images, self.labels = channels_last.to(device), labels.to(device)
        self.padding = padding
        mean, std = (torch.tensor(values, device=device) for values in (dataset.mean, dataset.std))
        self.scale, self.offset = 1 / (255 * std), mean / std

    def __len__(self) -> int:
        return len(self.labels)

    def plain(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The images with the given indices, float32 `(B, C, H, W)`, and their labels `(B,)`."""
        corner = torch.full((len(index), 2), self.padding, device=index.device)
        return self.windows(index, corner, torch.zeros_like(index, dtype=torch.bool))

    def windows(self, index: Tensor, corner: Tensor, mirrored: Tensor) -> tuple[Tensor, Tensor]:
        """The windows whose upper left pixels are `corner` `(B, 2)` in the padded images, mirrored where told, and labels."""
        height, width = (torch.arange(size, device=index.device) for size in self.size)
        rows = corner[:, 0, None] + height  # (B, H)
        columns = corner[:, 1, None] + torch.where(mirrored[:, None], width.flip(0), width)  # (B, W)
        pixels = self.images[index[:, None, None], rows[:, :, None], columns[:, None, :]]  # (B, H, W, C)
        return (pixels * self.scale - self.offset).permute(0, 3, 1, 2), self.labels[index]

    def random_windows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Corners `(count, 2)` and mirrorings `(count,)`, drawn uniformly, on the generator's device."""
        corner = torch.randint(2 * self.padding + 1, (count, 2), generator=generator)
        return corner, torch.rand(count, generator=generator) < 0.5


# --- photographs ----------------------------------------------------------------------------------------------------


def load_photograph(name: str = "china", size: tuple[int, int] | None = None) -> Tensor:
    """One of scikit-learn's two photographs, `china` or `flower`: `(H, W, 3)`, float32 from 0 to 1.

    With `size` it is reduced to that height and width by averaging.
    """
    from sklearn.datasets import load_sample_image

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
