"""Batches of a data set on a device: normalised, as they are or randomly cropped and mirrored."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .dataset import Dataset, Normaliser


class Batches:
    """The images of one split on one device: normalised batches, as they are or randomly cropped
    and mirrored.

    A crop is a window of the image's size in the image with `padding` black pixels around it
    (torchvision's RandomCrop); cropping and mirroring are one lookup for the whole batch.
    """

    def __init__(
        self,
        dataset: Dataset,
        images: Tensor,
        labels: Tensor,
        device: torch.device | str = "cpu",
        padding: int = 0,
    ):
        self.size, self.padding = images.shape[1:3], padding
        padded = torch.nn.functional.pad(images, (0, 0, *(padding,) * 4))
        self.images, self.labels = padded.to(device), labels.to(device)
        self.normalise = Normaliser(dataset.mean, dataset.std, device)

    def __len__(self) -> int:
        return len(self.labels)

    def plain(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The images with the given indices, float32 `(B, C, H, W)`, and their labels `(B,)`."""
        corner = torch.full((len(index), 2), self.padding, device=index.device)
        return self.windows(index, corner, torch.zeros_like(index, dtype=torch.bool))

    def windows(self, index: Tensor, corner: Tensor, mirrored: Tensor) -> tuple[Tensor, Tensor]:
        """The windows whose upper left pixels are `corner` `(B, 2)` in the padded images, mirrored
        where told, and labels."""
        height, width = (torch.arange(size, device=index.device) for size in self.size)
        rows = corner[:, 0, None] + height  # (B, H)
        # (B, W)
        columns = corner[:, 1, None] + torch.where(mirrored[:, None], width.flip(0), width)
        # (B, H, W, C)
        pixels = self.images[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return self.normalise(pixels), self.labels[index]

    def random_windows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Corners `(count, 2)` and mirrorings `(count,)`, drawn uniformly, on the generator's
        device."""
        corner = torch.randint(2 * self.padding + 1, (count, 2), generator=generator)
        return corner, torch.rand(count, generator=generator) < 0.5

    def shuffled(self, generator: torch.Generator, augment: bool) -> list[Tensor]:
        """An epoch's plan: all indices in random order and, for each, a corner and whether it is
        mirrored; without `augment` the images as they are."""
        order = torch.randperm(len(self), generator=generator)
        corner, mirrored = self.random_windows(len(self), generator)
        if not augment:
            corner, mirrored = torch.zeros_like(corner), torch.zeros_like(mirrored)
        return [part.to(self.labels.device) for part in (order, corner, mirrored)]


@dataclass(frozen=True)
class Split:
    """What a run is trained on and what it is tested on, of a data set, on one device."""

    dataset: Dataset
    train: Batches
    test: Batches

    @classmethod
    def of(cls, dataset: Dataset, parameters: Any, device: torch.device | str = "cpu") -> "Split":
        """As a run's parameters ask for it: `held_out`, `train_images`, `test_images`, and
        `augment` with its `padding`."""
        used = dataset.hold_out(parameters.held_out).subset(
            parameters.train_images, parameters.test_images
        )
        train = Batches(
            used,
            used.train_images,
            used.train_labels,
            device,
            padding=parameters.padding if parameters.augment else 0,
        )
        return cls(dataset, train, Batches(used, used.test_images, used.test_labels, device))
