"""A small convolutional network that is strong for its size, for chapters 14 and 15.

Its design is cifar10-airbench's (K. Jordan, 2024): whitened 2 x 2 patches, three groups of two
convolutions, one linear layer.
"""

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

MIDDLE = 15  # pixels a side at which the middle group works
WHITENING_EPS = 5e-4  # added to the eigenvalues, whose smallest are noise


class SmallCNN(nn.Module):
    """Images `(B, C, H, W)` -> logits `(B, num_classes)`; for 32 x 32 pixels the groups work at 31,
    15 and 7 pixels and the last pooling sees 3.

    `width`: channels of the first group, half those of the two others. Call `whiten` with training
    images before training.
    """

    SMALLEST = 9  # pixels a side, of which one is left in the end
    WHITENED_BY = 5_000  # training images

    def __init__(self, in_channels: int = 3, num_classes: int = 10, width: int = 64):
        super().__init__()
        self.in_channels, patch = in_channels, 4 * in_channels  # numbers in 2 x 2 pixels
        self.whitening = nn.Conv2d(in_channels, 2 * patch, kernel_size=2)
        self.whitening.weight.requires_grad_(False)
        nn.init.zeros_(cast(Tensor, self.whitening.bias))
        widths = (2 * patch, width, 2 * width, 2 * width)
        self.groups = nn.Sequential(
            *(_group(fan_in, fan_out) for fan_in, fan_out in pairwise(widths))
        )
        self.classifier = nn.Linear(2 * width, num_classes, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        X = self.groups(nn.functional.gelu(self.whitening(images)))
        return self.classifier(X.amax(dim=(2, 3))) / 9

    @torch.no_grad()
    def whiten(self, images: Tensor) -> None:
        """The first layer from normalised images `(N, C, H, W)`: eigenvectors of the covariance of
        their 2 x 2 patches over the roots of their eigenvalues, and the negatives of these."""
        patches = nn.functional.unfold(images.double(), kernel_size=2).movedim(1, 2).flatten(0, 1)
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (vectors / (values + WHITENING_EPS).sqrt()).T.flip(0)  # the largest first
        weight = self.whitening.weight
        weight.copy_(torch.cat([filters, -filters]).view_as(weight))


def _group(fan_in: int, fan_out: int) -> nn.Sequential:
    return nn.Sequential(
        _convolution(fan_in, fan_out),
        nn.MaxPool2d(2),
        _norm(fan_out),
        nn.GELU(),
        _convolution(fan_out, fan_out),
        _norm(fan_out),
        nn.GELU(),
    )


def _convolution(fan_in: int, fan_out: int) -> nn.Conv2d:
    """3 x 3, starting as the identity as far as its outputs have an input of their own."""
    layer = nn.Conv2d(fan_in, fan_out, kernel_size=3, padding=1, bias=False)
    nn.init.dirac_(layer.weight[: min(fan_in, fan_out)])
    return layer


def _norm(channels: int) -> nn.BatchNorm2d:
    """Batch normalisation with a shift but no scale, with a short memory, since runs are short."""
    layer = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    layer.weight.requires_grad_(False)
    return layer
