"""Labelled images and batches of them on a device.

Letters: N images, B images in a batch, C channels, H x W pixels. Images are channels-last; only
`Normaliser` returns them channels-first, as torch's networks expect.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..store import tensor_digest


@dataclass(frozen=True)
class DataSpec:
    """A data set's display name, and the side (in pixels) and number of channels of its images."""

    label: str
    image_size: int
    channels: int


#: The data sets by name.
DATASETS = {"digits": DataSpec("digits", 8, 1), "cifar10": DataSpec("CIFAR-10", 32, 3)}


class Normaliser:
    """A callable that normalises uint8 images `(..., H, W, C)` to float32 `(..., C, H, W)`.

    It subtracts `mean` and divides by `std`; both are per channel, on a scale where white is 1.
    """

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], device: torch.device | str = "cpu"
    ):
        center, width = (torch.tensor(values, device=device) for values in (mean, std))
        self.scale = 1 / (255 * width)
        self.offset = center / width

    def __call__(self, images: Tensor) -> Tensor:
        return (images * self.scale - self.offset).movedim(-1, -3)


@dataclass(frozen=True)
class Dataset:
    """A data set of labelled images, with a training split and a test split.

    `*_images` are `(N, H, W, C)`, uint8, and `*_labels` are `(N,)`, int64; `mean` and `std` are per
    channel, on a scale where white is 1.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalise(self, images: Tensor) -> Tensor:
        """Normalise uint8 images `(..., H, W, C)` to float32 `(..., C, H, W)`."""
        return Normaliser(self.mean, self.std, images.device)(images)

    def subset(self, train: int | None = None, test: int | None = None) -> "Dataset":
        """Return the data set with only the first images of each split.

        `train` and `test` are the numbers of images to keep; None keeps all. Raises ValueError if a
        split has fewer images.
        """
        for split, count in {"train": train, "test": test}.items():
            size = len(getattr(self, f"{split}_labels"))
            if count is not None and not 1 <= count <= size:
                raise ValueError(
                    f"{split}_images = {count}: expected 1 to {size}, the size of {self.name}"
                )
        return replace(
            self,
            train_images=self.train_images[:train],
            train_labels=self.train_labels[:train],
            test_images=self.test_images[:test],
            test_labels=self.test_labels[:test],
        )

    def hold_out(self, count: int) -> "Dataset":
        """Return the data set with its last `count` training images in place of the test images.

        Such a split allows choices to be made without using the test images. A `count` of 0 changes
        nothing. Raises ValueError if no training images would be left.
        """
        if not count:
            return self
        rest = len(self.train_labels) - count
        if rest <= 0:
            raise ValueError(
                f"held_out = {count}: expected less than the {len(self.train_labels)} training"
                f" images of {self.name}"
            )
        return replace(
            self.subset(train=rest),
            test_images=self.train_images[rest:],
            test_labels=self.train_labels[rest:],
        )

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 digest of images and labels in hexadecimal, independent of their source."""
        return tensor_digest(self.to_tensors())

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tensors to be stored, by name: images `(N, C, H, W)` and labels `(N,)`."""
        return {
            "train_images": self.train_images.permute(0, 3, 1, 2).contiguous(),
            "test_images": self.test_images.permute(0, 3, 1, 2).contiguous(),
            "train_labels": self.train_labels,
            "test_labels": self.test_labels,
        }


class Batches:
    """Normalised batches of one split on one device, plain or randomly cropped and mirrored.

    For a crop, the image is padded with `padding` black pixels on each side and a window of the
    original size is cut out, as in torchvision's RandomCrop. Cropping and mirroring take a single
    lookup for the whole batch.
    """

    def __init__(
        self,
        dataset: Dataset,
        images: Tensor,
        labels: Tensor,
        device: torch.device | str = "cpu",
        padding: int = 0,
    ):
        self.size = images.shape[1:3]
        self.padding = padding
        self.images = torch.nn.functional.pad(images, (0, 0, *(padding,) * 4)).to(device)
        self.labels = labels.to(device)
        self.normalise = Normaliser(dataset.mean, dataset.std, device)

    def __len__(self) -> int:
        return len(self.labels)

    def plain(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return float32 images `(B, C, H, W)` and labels `(B,)` for the given indices."""
        corner = torch.full((len(index), 2), self.padding, device=index.device)
        return self.windows(index, corner, torch.zeros_like(index, dtype=torch.bool))

    def windows(self, index: Tensor, corner: Tensor, mirrored: Tensor) -> tuple[Tensor, Tensor]:
        """Return windows of the images with the given indices, and the images' labels.

        `corner` `(B, 2)` is the upper-left pixel of each window in its padded image, and `mirrored`
        `(B,)` tells whether each window is mirrored. The shapes are those of `plain`.
        """
        height, width = (torch.arange(size, device=index.device) for size in self.size)
        rows = corner[:, 0, None] + height  # (B, H)
        # (B, W)
        columns = corner[:, 1, None] + torch.where(mirrored[:, None], width.flip(0), width)
        # (B, H, W, C)
        pixels = self.images[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return self.normalise(pixels), self.labels[index]

    def random_windows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw uniformly random `corner` `(count, 2)` and `mirrored` `(count,)` for `windows`."""
        corner = torch.randint(2 * self.padding + 1, (count, 2), generator=generator)
        return corner, torch.rand(count, generator=generator) < 0.5

    def shuffled(self, generator: torch.Generator, augment: bool) -> list[Tensor]:
        """Draw the arguments of `windows` for one epoch, with all indices in random order.

        Without `augment`, the images are neither cropped nor mirrored.
        """
        order = torch.randperm(len(self), generator=generator)
        corner, mirrored = self.random_windows(len(self), generator)
        windows = (corner, mirrored) if augment else map(torch.zeros_like, (corner, mirrored))
        return [part.to(self.labels.device) for part in (order, *windows)]


@dataclass(frozen=True)
class Split:
    """The training and test batches of a run, on one device."""

    dataset: Dataset
    train: Batches
    test: Batches

    @classmethod
    def of(cls, dataset: Dataset, parameters: Any, device: torch.device | str = "cpu") -> "Split":
        """Split a data set according to the parameters of a run.

        The parameters used are `held_out`, `train_images`, `test_images`, `augment` and `padding`.
        """
        used = dataset.hold_out(parameters.held_out)
        used = used.subset(parameters.train_images, parameters.test_images)
        padding = parameters.padding if parameters.augment else 0
        train = Batches(used, used.train_images, used.train_labels, device, padding)
        return cls(dataset, train, Batches(used, used.test_images, used.test_labels, device))
