"""Labelled images, and the two data sets of this project as such.

Letters: N images, C channels, H x W pixels.
Images are channels-last; `Normaliser` alone gives them as torch's networks want them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..store import digest


@dataclass(frozen=True)
class DataSpec:
    """What a data set is: its name in prose, pixels a side, channels."""

    label: str
    image_size: int
    channels: int


#: The data sets by name.
DATASETS = {"digits": DataSpec("digits", 8, 1), "cifar10": DataSpec("CIFAR-10", 32, 3)}


class Normaliser:
    """uint8 images `(..., H, W, C)` -> float32 `(..., C, H, W)` as networks take them, `mean`
    removed and divided by `std`."""

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], device: torch.device | str = "cpu"
    ):
        """`mean`, `std`: per channel, white being 1."""
        center, width = (torch.tensor(values, device=device) for values in (mean, std))
        self.scale, self.offset = 1 / (255 * width), center / width

    def __call__(self, images: Tensor) -> Tensor:
        return (images * self.scale - self.offset).movedim(-1, -3)


@dataclass(frozen=True)
class Dataset:
    """Labelled images: `*_images` `(N, H, W, C)` uint8, `*_labels` `(N,)` int64; `mean`, `std` per
    channel, white being 1."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalise(self, images: Tensor) -> Tensor:
        """uint8 `(..., H, W, C)` -> float32 `(..., C, H, W)`; see `Normaliser`."""
        return Normaliser(self.mean, self.std, images.device)(images)

    def subset(self, train: int | None = None, test: int | None = None) -> "Dataset":
        """The first `train` and `test` images (None: all). ValueError for more than there are."""
        for count, labels, name in (
            (train, self.train_labels, "train"),
            (test, self.test_labels, "test"),
        ):
            if count is not None and not 1 <= count <= len(labels):
                raise ValueError(
                    f"{name}_images = {count}: expected 1 to {len(labels)}, what {self.name} has"
                )
        first = {
            "train_images": self.train_images[:train],
            "train_labels": self.train_labels[:train],
        }
        return replace(
            self, **first, test_images=self.test_images[:test], test_labels=self.test_labels[:test]
        )

    def hold_out(self, count: int) -> "Dataset":
        """The last `count` training images in place of the test images, so that a choice never
        meets these. 0: as it is."""
        if not count:
            return self
        if count >= len(self.train_labels):
            raise ValueError(
                f"held_out = {count}: expected less than the {len(self.train_labels)} training"
                f" images of {self.name}"
            )
        rest = len(self.train_labels) - count
        test = {"test_images": self.train_images[rest:], "test_labels": self.train_labels[rest:]}
        return replace(
            self,
            train_images=self.train_images[:rest],
            train_labels=self.train_labels[:rest],
            **test,
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of images and labels, in hexadecimal: equal for equal data, wherever it was read
        from."""
        return digest(self.to_tensors())

    def to_tensors(self) -> dict[str, Tensor]:
        """Images and labels by name, as they are kept and fingerprinted: the images
        `(N, C, H, W)`."""
        images = {
            name: getattr(self, name).permute(0, 3, 1, 2).contiguous()
            for name in ("train_images", "test_images")
        }
        return images | {"train_labels": self.train_labels, "test_labels": self.test_labels}
