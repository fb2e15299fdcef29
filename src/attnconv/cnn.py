"""A small convolutional network, accurate for its size, used in chapters 14 and 15.

The design follows cifar10-airbench (K. Jordan, 2024): whitened 2 x 2 patches, three groups of two
convolutions, and one linear layer.
"""

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

#: Channels of the first stage of the published ResNet18 and of the first group of this network.
WIDTH = 64
WHITENING_EPS = 5e-4  # added to the eigenvalues, the smallest of which are noise


class SmallCNN(nn.Module):
    """The CNN of chapters 14 and 15; it maps images `(B, C, H, W)` to logits `(B, num_classes)`.

    The first of its three groups of convolutions has `width` channels, and the other two have twice
    as many. For images of 32 x 32 pixels, the inputs of the groups have 31, 15 and 7 pixels per
    side, and the input of the final pooling has 3 pixels per side. Images have at least 9 pixels
    per side. Call `prepare` before training.
    """

    PREPARED_WITH = 5_000  # at most this many training images
    DIVISOR = 9  # the logits are divided by this number
    channels_last = True  # the memory layout in which its convolutions are fast

    def __init__(self, in_channels: int = 3, num_classes: int = 10, width: int = WIDTH):
        super().__init__()
        self.in_channels = in_channels
        patch = 4 * in_channels  # numbers in 2 x 2 pixels
        self.whitening = nn.Conv2d(in_channels, 2 * patch, kernel_size=2)
        self.whitening.weight.requires_grad_(False)
        nn.init.zeros_(cast(Tensor, self.whitening.bias))
        widths = (2 * patch, width, 2 * width, 2 * width)
        self.groups = nn.Sequential(*(_group(*sizes) for sizes in pairwise(widths)))
        self.classifier = nn.Linear(2 * width, num_classes, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        X = self.groups(nn.functional.gelu(self.whitening(images)))
        return self.classifier(X.amax(dim=(2, 3))) / self.DIVISOR

    @torch.no_grad()
    def prepare(self, images: Tensor) -> None:
        """Set the whitening filters of the first layer from normalised images `(N, C, H, W)`.

        The filters are the eigenvectors of the covariance matrix of 2 x 2 patches, each divided by
        the square root of its eigenvalue, together with their negatives.
        """
        patches = nn.functional.unfold(images.double(), kernel_size=2).movedim(1, 2).flatten(0, 1)
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (vectors / (values + WHITENING_EPS).sqrt()).T.flip(0)  # the largest first
        weight = self.whitening.weight
        weight.copy_(torch.cat([filters, -filters]).view_as(weight))


def _group(fan_in: int, fan_out: int) -> nn.Sequential:
    """Return two convolutions, each normalised and activated, with max-pooling after the first."""
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
    """Return a 3 x 3 convolution, initialised so that its outputs copy its inputs where possible.

    Each of the first `min(fan_in, fan_out)` outputs starts as a copy of one input.
    """
    layer = nn.Conv2d(fan_in, fan_out, kernel_size=3, padding=1, bias=False)
    nn.init.dirac_(layer.weight[: min(fan_in, fan_out)])
    return layer


def _norm(channels: int) -> nn.BatchNorm2d:
    """Return batch normalisation with a shift but no scale, and a short memory for short runs."""
    layer = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    layer.weight.requires_grad_(False)
    return layer
