"""A small convolutional network, accurate for its size, used in chapters 14 and 15.

The design follows cifar10-airbench (K. Jordan, 2024): whitened 2 x 2 patches, three groups of two
convolutions, and one linear layer.
"""

from collections.abc import Collection
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from ..layers.conv import ConvAsAttention, convert_network
from ..theory.encodings import QuadraticEncoding
from .specs import FREED, WIDTH, Start

#: Initial alpha of movable heads, per squared pixel; a head on a pixel has 93 % of its mass there.
START_ALPHA = 4.0
MIDDLE = 15  # the middle group works on 15 x 15 pixels
WHITENING_EPS = 5e-4  # added to the eigenvalues, the smallest of which are noise


class SmallCNN(nn.Module):
    """The CNN of chapters 14 and 15; it maps images `(B, C, H, W)` to logits `(B, num_classes)`.

    The first of its three groups of convolutions has `width` channels, and the other two have twice
    as many. For images of 32 x 32 pixels, the inputs of the groups have 31, 15 and 7 pixels per
    side, and the input of the final pooling has 3 pixels per side. Call `prepare` before training.
    """

    SMALLEST = 9  # pixels per side, so that one pixel is left at the end
    PREPARED_WITH = 5_000  # at most this many training images
    DIVISOR = 9  # the logits are divided by this number
    channels_last = True  # the memory layout in which its convolutions are fast

    def __init__(self, in_channels: int = 3, num_classes: int = 10, width: int = WIDTH):
        super().__init__()
        self.in_channels, patch = in_channels, 4 * in_channels  # numbers in 2 x 2 pixels
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


def as_free_attention(
    cnn: nn.Module,
    alpha: float,
    random_places: bool = False,
    trained: Collection[str] = FREED,
    seed: int = 0,
) -> nn.Module:
    """Return a copy of a CNN with soft, trainable attention heads in place of its convolutions.

    The heads start with the given `alpha`. They are centred on the pixels of the kernel or, with
    `random_places`, at positions drawn uniformly (using `seed`) from the square that the kernel
    covers. Layers with frozen values keep their heads on the pixels, because their values fit no
    other positions. `trained` names the encoding parameters to be trained. The values are always
    initialised with the kernel's weights.
    """
    model = convert_network(cnn)
    generator = torch.Generator().manual_seed(seed)
    for layer in attention_layers(model):
        centers = layer.encoding.centers
        if random_places and layer.weight.requires_grad:
            lowest, highest = centers.amin(dim=0) - 0.5, centers.amax(dim=0) + 0.5
            share = torch.rand(centers.shape, generator=generator)
            centers = lowest + share.to(centers) * (highest - lowest)
        layer.encoding = QuadraticEncoding.from_alpha(centers.detach(), alpha)
        for name in trained:
            layer.encoding.get_parameter(name).requires_grad_()
    return model


def begin(cnn: nn.Module, start: Start, alpha: float, seed: int) -> nn.Module:
    """Return the initial network of an arm in chapter 15, given the CNN from which it starts."""
    if start.heads is None:
        return cnn
    return as_free_attention(cnn, alpha, start.heads == "random", start.freed, seed)


def attention_layers(model: nn.Module) -> list[ConvAsAttention]:
    """Return the attention layers of a converted network, in order."""
    return [module for module in model.modules() if isinstance(module, ConvAsAttention)]
