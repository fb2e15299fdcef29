"""Measure whether movable heads stay on a convolution's grid (chapter 15).

Letters: L layers with 3 x 3 kernels (all but the first, whose kernels are 2 x 2), n saved steps of
training, N_h = 9 heads, K x K kernel, C channels. Centres are in pixels from the query.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attnconv.layers.conv_as_attention import ConvAsAttention
from attnconv.theory.grid import all_offsets, offset_set

from ...heads import lemma_3_residual
from ...runs.record import RunRecord

KERNEL = 3  # pixels per side
REACH = 8  # distance in pixels beyond which a head's mass is neglected


def kernel_layers(record: RunRecord, name: str) -> Tensor:
    """Return a tensor of the 3 x 3 layers: `centers` `(L, n, 9, 2)` or `alpha` `(L, n, 9)`."""
    layers = record.history.layers(name)
    return torch.stack([values for values in layers if values.shape[1] == KERNEL**2])


def centers_of(runs: Sequence[RunRecord]) -> Tensor:
    """Return the centres of the heads in several runs, `(runs, L, n, 9, 2)`."""
    return torch.stack([kernel_layers(record, "centers") for record in runs])


def distance_moved(centers: Tensor) -> Tensor:
    """Return how far heads are from their first centres: `(..., n, 9, 2)` to `(..., n, 9)`."""
    return (centers - centers[..., :1, :, :]).norm(dim=-1)


def median_distance_moved(centers: Tensor) -> float:
    """Return the median distance that a layer's heads have moved in the end, averaged over all."""
    return distance_moved(centers)[..., -1, :].median(dim=-1).values.mean().item()


def growth(centers: Tensor) -> tuple[Tensor, Tensor]:
    """Fit the factor by which a grid of heads has grown, using least squares.

    `centers` has the shape `(..., n, 9, 2)`. Returns the factor and the share of the squared
    displacements that it explains (1: all; NaN if nothing moved), each of shape `(..., n)`.
    """
    start = centers[..., :1, :, :]
    factor = (centers * start).sum(dim=(-2, -1)) / start.square().sum(dim=(-2, -1))
    left = (centers - factor[..., None, None] * start).square().sum(dim=(-2, -1))
    return factor, 1 - left / (centers - start).square().sum(dim=(-2, -1))


def pixels_occupied(centers: Tensor) -> Tensor:
    """Count the pixels of a 3 x 3 kernel that are nearest to a head: `(..., 9, 2)` to `(...)`."""
    pixels = offset_set((KERNEL, KERNEL)).to(centers)
    nearest = centers.round().unsqueeze(-3) == pixels.unsqueeze(-2)  # (..., 9 pixels, 9 heads, 2)
    return nearest.all(dim=-1).any(dim=-1).sum(dim=-1)


def mass_on_nearest_pixel(centers: Tensor, alpha: Tensor) -> Tensor:
    """Return the probability that each head assigns to the pixel nearest to its centre.

    `centers` has the shape `(..., 2)`; `alpha` has the shape `(...)`, as does the float64 result.
    This is equation (18) for arbitrary centres, away from borders.
    """
    centers = centers.double()
    near = torch.arange(-REACH, REACH + 1, device=centers.device)
    offset = near - (centers - centers.round()).unsqueeze(-1)  # (..., 2, 2 REACH + 1)
    shares = (-alpha.double()[..., None, None] * offset.square()).softmax(dim=-1)
    return shares[..., REACH].prod(dim=-1)


def mean_mass_on_nearest_pixel(runs: Sequence[RunRecord], moment: int) -> float:
    """Return the mass on a head's nearest pixel at a saved step, averaged over heads and runs."""
    alphas = torch.stack([kernel_layers(record, "alpha") for record in runs])
    return mass_on_nearest_pixel(centers_of(runs), alphas)[:, :, moment].mean().item()


def distinct_pixels_by_layer(record: RunRecord) -> list[int]:
    """Count the distinct pixels nearest to each layer's trained heads, even outside the kernel."""
    layers = kernel_layers(record, "centers")[:, -1].round()
    return [len(centers.unique(dim=0)) for centers in layers]


def lemma_3_residual_by_layer(record: RunRecord) -> list[float]:
    """Return the largest residual of Lemma 3 for each trained layer."""
    return [
        lemma_3_residual(encoding, *record.grid, KERNEL).max().item()
        for encoding in record.history.encodings()
        if encoding.num_heads == KERNEL**2
    ]


# --- the nearest convolution ----------------------------------------------------------------------


@torch.no_grad()
def effective_kernel(layer: ConvAsAttention) -> Tensor:
    """Return the weights that a layer applies at each offset, away from borders.

    The weight of an offset is the sum over heads h of the probability of the offset times W^(h).
    The result `(2 REACH + 1, 2 REACH + 1, C_in, C_out)`, in float64, covers offsets of up to
    `REACH` pixels.
    """
    delta = all_offsets(REACH + 1, REACH + 1).to(layer.weight.device)
    scores = copy.deepcopy(layer.encoding).double().scores(delta)
    probabilities = scores.flatten(1).softmax(dim=1).view_as(scores)
    return torch.einsum("hij,hco->ijco", probabilities, layer.value_matrices().double())


def nearest_convolution(layer: ConvAsAttention) -> tuple[nn.Conv2d, float]:
    """Return the nearest convolution with a layer's kernel size, and its distance from the layer.

    The distance is the norm of the weights that the layer applies outside the kernel, relative to
    the norm of all its weights, away from borders. Raises ValueError for layers with stride,
    dilation, groups or unequal padding.
    """
    pads = {pad for before_after in layer.pads(layer.kernel_size) for pad in before_after}
    plain = {*layer.stride, *layer.dilation, layer.groups} == {1}
    if not plain or len(pads) > 1 or layer.padding_mode != "zeros":
        raise ValueError(
            f"got {layer}, expected a layer without stride, dilation and groups, padded alike with"
            " zeros"
        )
    kernel = effective_kernel(layer)
    first = [REACH - (size - 1) // 2 for size in layer.kernel_size]
    window = tuple(slice(i, i + size) for i, size in zip(first, layer.kernel_size, strict=True))
    outside = kernel.clone()
    outside[window] = 0
    rows, columns = layer.kernel_size
    conv = nn.Conv2d(layer.in_channels, layer.out_channels, (rows, columns), padding=pads.pop())
    conv.weight = nn.Parameter(kernel[window].permute(3, 2, 0, 1).to(layer.weight))
    conv.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone())
    return conv, (outside.norm() / kernel.norm()).item()


def as_convolutions(model: nn.Module) -> tuple[nn.Module, list[float]]:
    """Replace the attention layers of a converted network with their nearest convolutions.

    Returns a modified copy of the network and the distance of each layer from its convolution.
    """
    model = copy.deepcopy(model)
    distances = []
    for path, layer in list(model.named_modules()):
        if isinstance(layer, ConvAsAttention):
            conv, distance = nearest_convolution(layer)
            model.set_submodule(path, conv)
            distances.append(distance)
    return model, distances
