"""A CNN as attention whose heads may move, for chapter 15; and the convolutions that it is nearest
to.

Letters: N_h heads, K x K kernel, C channels.
"""

import copy
from collections.abc import Collection

import torch
from torch import Tensor, nn

from ..layers.conv import ConvAsAttention, convert_network
from ..theory.encodings import QuadraticEncoding
from ..theory.grid import all_shifts, pixels
from .specs import FREED, Start

#: Of the heads that a convolution becomes, one over pixels squared: they give 93 % to their pixel.
START_ALPHA = 4.0
REACH = 8  # pixels, beyond which a head's mass is not followed


def as_free_attention(
    cnn: nn.Module,
    alpha: float,
    random_places: bool = False,
    trained: Collection[str] = FREED,
    seed: int = 0,
) -> nn.Module:
    """A copy of a CNN in which each convolution is self-attention with heads of this alpha, soft
    enough to have gradients.

    Heads stand on the pixels of their kernel or, with `random_places`, anywhere in the square that
    these pixels cover, drawn with `seed`, where a layer's values are trained: frozen ones fit their
    own pixels alone. `trained`: which parameters of their encoding are. The values are the kernel's
    either way.
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
    """What an arm of chapter 15 trains, from the CNN that it starts from."""
    if start.heads is None:
        return cnn
    return as_free_attention(cnn, alpha, start.heads == "random", start.freed, seed)


def attention_layers(model: nn.Module) -> list[ConvAsAttention]:
    """The layers of a converted network, first to last."""
    return [module for module in model.modules() if isinstance(module, ConvAsAttention)]


@torch.no_grad()
def effective_kernel(layer: ConvAsAttention) -> Tensor:
    """What the layer weighs at each shift away from borders, up to `REACH` pixels: the sum over the
    heads of probability times W^(h), `(2 REACH + 1, 2 REACH + 1, C_in, C_out)`, float64."""
    delta = all_shifts(REACH + 1, REACH + 1).to(layer.weight.device)
    scores = copy.deepcopy(layer.encoding).double().scores(delta)
    probabilities = scores.flatten(1).softmax(dim=1).view_as(scores)
    return torch.einsum("hij,hco->ijco", probabilities, layer.value_matrices().double())


def nearest_convolution(layer: ConvAsAttention) -> tuple[nn.Conv2d, float]:
    """The convolution of the layer's kernel size that is nearest to it away from borders, and how
    far it is: the norm of what the layer weighs at other shifts, relative to the norm of all.
    ValueError for strided, dilated or grouped layers, and those that pad each side otherwise."""
    pads = {before for before, _ in layer.padding} | {after for _, after in layer.padding}
    plain = {*layer.stride, *layer.dilation, layer.groups} == {1}
    if not plain or len(pads) > 1 or layer.padding_mode != "zeros":
        raise ValueError(
            f"got {layer}, expected a layer without stride, dilation and groups, padded alike with"
            " zeros"
        )
    kernel, (rows, columns) = effective_kernel(layer), layer.kernel_size
    top, left = REACH - (rows - 1) // 2, REACH - (columns - 1) // 2
    window = slice(top, top + rows), slice(left, left + columns)
    inside, outside = kernel[window], kernel.clone()
    outside[window] = 0
    conv = nn.Conv2d(layer.in_channels, layer.out_channels, (rows, columns), padding=pads.pop())
    conv.weight = nn.Parameter(inside.permute(3, 2, 0, 1).to(layer.weight))
    conv.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone())
    return conv, (outside.norm() / kernel.norm()).item()


def as_convolutions(model: nn.Module) -> tuple[nn.Module, list[float]]:
    """A copy of a network of such layers with the nearest convolution in place of each, and how far
    each layer is from it."""
    model, distances = copy.deepcopy(model), []
    for path, layer in list(model.named_modules()):
        if isinstance(layer, ConvAsAttention):
            conv, distance = nearest_convolution(layer)
            model.set_submodule(path, conv)
            distances.append(distance)
    return model, distances


def moved(centers: Tensor, at_first: Tensor) -> Tensor:
    """How far each head's centre `(..., 2)` is from where it began, in pixels: `(...)`."""
    return (centers - at_first).norm(dim=-1)


def growth(centers: Tensor, at_first: Tensor) -> tuple[Tensor, Tensor]:
    """How far a grid only grew or shrank: the factor by which the places `at_first` `(N_h, 2)` come
    nearest to `centers` `(..., N_h, 2)`, and the share of the squared distances moved that it
    explains (1: all; nan where nothing moved): `(...)` each."""
    factor = (centers * at_first).sum(dim=(-2, -1)) / at_first.square().sum()
    left = (centers - factor[..., None, None] * at_first).square().sum(dim=(-2, -1))
    return factor, 1 - left / (centers - at_first).square().sum(dim=(-2, -1))


def covered(centers: Tensor, kernel_size: int) -> int:
    """How many of a kernel's K x K pixels are the nearest pixel of some head's centre `(N_h, 2)`,
    the kernel being where `grid.shift_set` has it."""
    first = -((kernel_size - 1) // 2)
    kernel = {tuple(p) for p in (pixels(kernel_size, kernel_size) + first).tolist()}
    return len(kernel & {tuple(p) for p in centers.round().long().tolist()})


def mass_on_own_pixel(centers: Tensor, alpha: Tensor) -> Tensor:
    """The probability that each head of centres `(..., 2)` and alphas `(...)` gives to the pixel
    that is nearest to its centre, away from borders: `(...)`, float64. Equation (18), for centres
    anywhere."""
    centers, alpha = centers.double(), alpha.double()[..., None, None]
    near = torch.arange(-REACH, REACH + 1, device=centers.device)
    offset = near - (centers - centers.round()).unsqueeze(-1)  # (..., 2, 2 REACH + 1)
    shares = (-alpha * offset.square()).softmax(dim=-1)
    return shares[..., REACH].prod(dim=-1)
