"""The networks of chapter 15: a CNN whose heads can move."""

from collections.abc import Collection

import torch
from torch import nn

from attnconv.cnn import WIDTH, SmallCNN
from attnconv.layers.conv_as_attention import ConvAsAttention
from attnconv.layers.convert import convert_network
from attnconv.layers.encodings import QuadraticEncoding

from .arms import FREED, Start

#: Initial alpha of movable heads, per squared pixel; a head on a pixel has 93 % of its mass there.
START_ALPHA = 4.0


MIDDLE = 15  # the middle group works on 15 x 15 pixels


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
            layer.encoding.train_parameter(name)
    return model


def begin(cnn: nn.Module, start: Start, alpha: float, seed: int) -> nn.Module:
    """Return the initial network of an arm in chapter 15, given the CNN from which it starts."""
    if start.heads is None:
        return cnn
    return as_free_attention(cnn, alpha, start.heads == "random", start.freed, seed)


def attention_layers(model: nn.Module) -> list[ConvAsAttention]:
    """Return the attention layers of a converted network, in order."""
    return [module for module in model.modules() if isinstance(module, ConvAsAttention)]


def free_cnn(
    start: Start,
    in_channels: int = 3,
    num_classes: int = 10,
    width: int = WIDTH,
    start_alpha: float = START_ALPHA,
    seed: int = 0,
) -> nn.Module:
    """Return the network of an arm in chapter 15 that starts from an untrained `SmallCNN`.

    `seed` determines the initial positions of the heads if they are random.
    """
    return begin(SmallCNN(in_channels, num_classes, width), start, start_alpha, seed)
