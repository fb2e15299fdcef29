"""Measure whether movable heads stay on a convolution's grid (chapter 15).

Letters: n saved steps of training, N_h heads, K x K kernel, C channels. Functions that take a
record measure its layers with 3 x 3 kernels: all but the first, whose kernels are 2 x 2.
"""

import copy
from statistics import mean

import torch
from torch import Tensor, nn

from attnconv.layers.conv_as_attention import ConvAsAttention
from attnconv.theory.grid import all_offsets, offset_set

from ...heads import lemma_3_residual
from ...runs.record import RunRecord

KERNEL = 3  # pixels per side
REACH = 8  # distance in pixels beyond which a head's mass is neglected


def distance_moved(centers: Tensor, start: Tensor) -> Tensor:
    """Return the distance `(...)`, in pixels, of centres `(..., 2)` from their starting points."""
    return (centers - start).norm(dim=-1)


def growth(centers: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Fit the factor by which a grid of heads has grown, using least squares.

    `centers` has the shape `(..., N_h, 2)`, and `start` has the shape `(N_h, 2)`. Returns the
    factor and the share of the squared displacements that it explains (1: all; NaN if nothing
    moved), each of shape `(...)`.
    """
    factor = (centers * start).sum(dim=(-2, -1)) / start.square().sum()
    left = (centers - factor[..., None, None] * start).square().sum(dim=(-2, -1))
    return factor, 1 - left / (centers - start).square().sum(dim=(-2, -1))


def pixels_occupied(centers: Tensor, kernel_size: int) -> int:
    """Count the pixels of a K x K kernel that are nearest to the centre of at least one head.

    `centers` has the shape `(N_h, 2)`, and the kernel's pixels are those of `grid.offset_set`.
    """
    kernel = {tuple(shift) for shift in offset_set((kernel_size, kernel_size)).tolist()}
    return len(kernel & {tuple(pixel) for pixel in centers.round().long().tolist()})


def mass_on_nearest_pixel(centers: Tensor, alpha: Tensor) -> Tensor:
    """Return the probability that each head assigns to the pixel nearest to its centre.

    `centers` has the shape `(..., 2)`; `alpha` has the shape `(...)`, as does the float64 result.
    This is equation (18) for arbitrary centres, away from borders.
    """
    centers, alpha = centers.double(), alpha.double()[..., None, None]
    near = torch.arange(-REACH, REACH + 1, device=centers.device)
    offset = near - (centers - centers.round()).unsqueeze(-1)  # (..., 2, 2 REACH + 1)
    shares = (-alpha * offset.square()).softmax(dim=-1)
    return shares[..., REACH].prod(dim=-1)


# --- measures of a run record ---------------------------------------------------------------------


def kernel_layers(record: RunRecord, name: str) -> list[Tensor]:
    """Return the tensor `name` of each 3 x 3 layer: `centers` `(n, 9, 2)` or `alpha` `(n, 9)`."""
    return [values for values in record.history.layers(name) if values.shape[1] == KERNEL**2]


def pixels_occupied_by_layer(record: RunRecord) -> list[list[int]]:
    """Return how many of the nine kernel pixels are occupied in each layer at each saved step."""
    layers = kernel_layers(record, "centers")
    return [[pixels_occupied(centers, KERNEL) for centers in moments] for moments in layers]


def mean_pixels_occupied(record: RunRecord, moment: int = -1) -> float:
    """Return the number of occupied kernel pixels at a saved step, averaged over the layers."""
    return mean(counts[moment] for counts in pixels_occupied_by_layer(record))


def distinct_pixels_by_layer(record: RunRecord) -> list[int]:
    """Count the distinct pixels nearest to each layer's trained heads, even outside the kernel."""
    return [len(centers[-1].round().unique(dim=0)) for centers in kernel_layers(record, "centers")]


def growth_by_layer(record: RunRecord) -> list[tuple[Tensor, Tensor]]:
    """Return each layer's growth factor and the share of the motion it explains, each `(n,)`."""
    return [growth(centers, centers[0]) for centers in kernel_layers(record, "centers")]


def distance_moved_by_layer(record: RunRecord) -> list[Tensor]:
    """Return each head's distance in pixels from its initial position, `(n, 9)` per layer."""
    return [distance_moved(centers, centers[0]) for centers in kernel_layers(record, "centers")]


def median_distance_moved(record: RunRecord) -> float:
    """Return the median distance that heads moved during training, averaged over the layers."""
    return mean(distances[-1].median().item() for distances in distance_moved_by_layer(record))


def mass_on_nearest_pixel_by_layer(record: RunRecord) -> list[Tensor]:
    """Return each head's mass on the pixel nearest to its centre, `(n, 9)` per layer."""
    centers, alphas = (kernel_layers(record, name) for name in ("centers", "alpha"))
    return [mass_on_nearest_pixel(*layer) for layer in zip(centers, alphas, strict=True)]


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
    pads = {pad for before_after in layer.pads for pad in before_after}
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
    """Replace the attention layers of a converted network with their nearest convolutions.

    Returns a modified copy of the network and the distance of each layer from its convolution.
    """
    model, distances = copy.deepcopy(model), []
    for path, layer in list(model.named_modules()):
        if isinstance(layer, ConvAsAttention):
            conv, distance = nearest_convolution(layer)
            model.set_submodule(path, conv)
            distances.append(distance)
    return model, distances
