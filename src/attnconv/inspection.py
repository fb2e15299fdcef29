"""Measure how close the attention of a vision transformer is to a convolution.

Letters: B images (or windows), N_h heads, H x W tokens, K x K kernel, delta = k - q.
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from .heads import Heads
from .layers.attention import PositionAttention
from .measures import measure_maps
from .networks import SelfAttentionNet
from .theory.expressivity import expect_probabilities
from .vit.capture import Images, LayerAttention, read_attention
from .vit.inputs import selected
from .vit.tokens import patches_of

#: A report on up to this many heads has one line per head; any other has one per layer.
HEADS_IN_FULL = 36
#: Explanation of the columns in a report's table.
LEGEND = (
    "offset: the best offset k - q of a head (row, column), or how many offsets of the kernel have"
    " a head with at least half of its mass there; mass: the mean attention on the best offset;"
    " distance: the mean |k - q| in tokens; off conv.: the relative distance to the nearest"
    " convolution, from 0 to 1; prefix: the mass on class and register tokens; residual: how far"
    " the heads are from selecting each offset of the kernel (Lemma 3), at the worst offset where"
    " heads are listed."
)
#: Default image side for this package's networks, in pixels.
IMAGE_SIZE = 32


@dataclass(frozen=True, eq=False)
class LayerReport:
    """The measures of one attention layer in the report of `inspect_attention`.

    The relative distance to the nearest convolution is `||A - C||_F / ||A||_F`. Here, A is the
    attention of the queries whose K x K kernel lies inside the image, as in Lemma 3. C is the
    matrix nearest to A whose entries depend only on the offset k - q: each entry is the mean of A
    over all images and pixel pairs with that offset. The distance is 0 for a head that attends to
    one offset of the kernel. It is also 0 for uniform attention, which is a convolution with a
    constant kernel that covers the whole image. It is near 1 if attention follows image content.
    For other softmax heads that depend only on positions, it is small but not 0, because they are
    renormalised near the border.

    Attributes:
        name: The name of the layer.
        maps: The attention averaged over the images, `(N_h, H, W, H, W)`.
        heads: The best offset of each head, `heads.offsets`, and the mean attention on it,
            `heads.mass`.
        mean_distance: The attention-weighted mean of the distance `|k - q|` in tokens, `(N_h,)`.
        off_convolution: The relative distance to the nearest convolution, `(N_h,)`.
        kernels: The kernel of the nearest convolution, `(N_h, 2H - 1, 2W - 1)`: the entries of C by
            offset, in ascending order, and 0 at any offset that does not occur for these queries.
        prefix_mass: The attention from patches to class, distillation and register tokens,
            `(N_h,)`, which `maps` excludes.
        residual: The residual of Lemma 3, `(K, K)`, with one mixture of heads for all images and
            queries.
    """

    name: str
    maps: Tensor
    heads: Heads
    mean_distance: Tensor
    off_convolution: Tensor
    kernels: Tensor
    prefix_mass: Tensor
    residual: Tensor

    @property
    def grid(self) -> tuple[int, int]:
        """The size (H, W) of the layer's image or window, in tokens."""
        return self.maps.shape[-2], self.maps.shape[-1]


@dataclass(frozen=True, eq=False, repr=False)
class AttentionReport:
    """The result of `inspect_attention`, with one report per layer; it prints as a table.

    Attributes:
        kernel_size: The side K of the kernel, in tokens.
        layers: The measures of each layer.
        skipped: What was not measured, and why: attention that is not among patches, such as
            attention pooling, and windows that contain padding or join opposite edges of the
            image.
    """

    kernel_size: int
    layers: tuple[LayerReport, ...]
    skipped: tuple[str, ...] = ()

    def table(self, by_head: bool | None = None) -> str:
        """Return a plain-text table, whose columns `LEGEND` explains.

        Args:
            by_head: Whether the table has one line per head, or one line of ranges per layer. By
                default, a report on up to 36 heads has one line per head.
        """
        lines = self._lines(by_head)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
            for line in lines
        )

    def __repr__(self) -> str:
        return "\n".join([self.table(), *(f"not measured: {reason}" for reason in self.skipped)])

    def _repr_html_(self) -> str:
        head, *body = (list(map(html.escape, line)) for line in self._lines(None))
        header = "".join(f'<th scope="col">{cell}</th>' for cell in head)
        rows = "".join(
            f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
            for name, *cells in body
        )
        table = f"<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"
        notes = [LEGEND, *(f"Not measured: {reason}." for reason in self.skipped)]
        return table + "".join(f"<p>{html.escape(note)}</p>" for note in notes)

    def _lines(self, by_head: bool | None) -> list[list[str]]:
        """Return the header and the rows of the table."""
        if by_head is None:
            by_head = sum(len(layer.maps) for layer in self.layers) <= HEADS_IN_FULL
        after = ["mass", "distance", "off conv.", "prefix", "residual"]
        if by_head:
            header = ["layer", "tokens", "head", "offset", *after]
            return [header, *(line for layer in self.layers for line in _by_head(layer))]
        header = ["layer", "tokens", "heads", f"offsets of {self.kernel_size**2}", *after]
        return [header, *(_by_layer(layer, self.kernel_size) for layer in self.layers)]


def _by_head(layer: LayerReport) -> Iterator[list[str]]:
    tokens = "{} x {}".format(*layer.grid)
    worst = f"{float(layer.residual.max()):.2f}"
    for head, offset in enumerate(layer.heads.offsets.tolist()):
        numbers = [f"{values[head]:.2f}" for values in _numbers_by_head(layer)]
        place = "({:+d}, {:+d})".format(*offset)
        yield [layer.name, tokens, f"{head + 1}", place, *numbers, worst]


def _by_layer(layer: LayerReport, kernel_size: int) -> list[str]:
    ranges = [
        f"{float(values.min()):.2f}-{float(values.max()):.2f}"
        for values in (*_numbers_by_head(layer), layer.residual)
    ]
    counts = [f"{len(layer.maps)}", f"{layer.heads.offsets_with_mass(kernel_size)}"]
    return [layer.name, "{} x {}".format(*layer.grid), *counts, *ranges]


def _numbers_by_head(layer: LayerReport) -> list[Tensor]:
    return [layer.heads.mass, layer.mean_distance, layer.off_convolution, layer.prefix_mass]


def inspect_attention(
    model: nn.Module | Tensor | Mapping[str, Any] | Sequence[Any],
    images: Images | None = None,
    kernel_size: int = 3,
    layers: Sequence[int] | None = None,
    *,
    grid: tuple[int, int] | None = None,
    prefix: int | None = None,
) -> AttentionReport:
    """Measure how close the attention of a vision transformer is to a K x K convolution.

    The measures are computed in float64. Each layer is measured as soon as it has run. Time and
    memory grow as B times the square of the number of tokens; a few images suffice.

    Args:
        model: A vision transformer of any library, a network from `build_model`, or attention maps.
            Maps are given for each layer, in a sequence or a mapping by layer name, as tensors or
            arrays with the query before the key: `(N_h, H, W, H, W)`, `(B, N_h, H, W, H, W)`, or
            `(B, N_h, T, T)` with T tokens, as transformers' `output_attentions=True` gives them. A
            single tensor has the layers as its first axis, except that `(B, N_h, T, T)` is one
            layer.
        images: The model's input, `(B, C, H', W')`, or a dict for timm's NaFlex models (with images
            of one size). Networks from `build_model` whose attention depends only on positions need
            none.
        kernel_size: The side K of the kernel, in tokens.
        layers: The numbers of the attention layers, starting at 0; None selects all.
        grid: The size `(H, W)` of the patches in maps of T tokens, by default a square.
        prefix: The number of class and register tokens, which are the first of the T tokens. By
            default, all tokens outside the `grid`, or none without a grid.

    Returns:
        A report with the measures of each layer; see `LayerReport`.

    Raises:
        ValueError: If images are missing, maps have the wrong shape or are not probabilities, the
            kernel is larger than a layer's grid, or a layer does not exist.
        TypeError: If the attention cannot be read.

    Example:
        A converted convolution has a head for each of the nine offsets of its kernel:

        >>> import attnconv, torch
        >>> layer = attnconv.conv_to_attention(torch.nn.Conv2d(3, 8, 3))
        >>> maps = attnconv.attention_probabilities(layer, 7, 7)
        >>> report = attnconv.inspect_attention([maps], kernel_size=3)
        >>> report.layers[0].heads.offsets_with_mass(3)
        9
    """
    measure = partial(_measure, kernel_size)
    if isinstance(model, nn.Module):
        if grid is not None or prefix is not None:
            raise ValueError(
                "grid and prefix describe maps (images, heads, tokens, tokens), but the model is a"
                f" {type(model).__name__}, whose grid is read from the model; leave them out"
            )
        images = _positions_only(model) if images is None else images
        reading = read_attention(model, images, layers, measure)
        return AttentionReport(kernel_size, tuple(reading.layers), reading.skipped)
    given = [partial(_given, name, maps, grid, prefix) for name, maps in _by_name(model)]
    return AttentionReport(kernel_size, tuple(measure(read()) for read in selected(given, layers)))


def _positions_only(model: nn.Module) -> Tensor:
    """Return an image for a network whose attention does not depend on the image."""
    ours = model.attentions if isinstance(model, SelfAttentionNet) else []
    positions = [layer for layer in ours if isinstance(layer, PositionAttention)]
    if not isinstance(model, SelfAttentionNet) or len(positions) < len(ours):
        raise ValueError(
            f"the attention of {type(model).__name__} depends on the image, but images is None;"
            " expected the images (B, C, H, W) that the model takes, normalised as in training"
        )
    side = IMAGE_SIZE
    if embedding := getattr(positions[0].encoding, "embedding", None):
        side = embedding.sizes[0] * model.pooling  # the encoding was learned for a fixed size
    return model.embedding.weight.new_zeros(1, model.in_channels, side, side)


def _by_name(maps: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the maps of each layer."""
    if isinstance(maps, Mapping):
        yield from maps.items()
        return
    for number, of_layer in enumerate([maps] if getattr(maps, "ndim", 0) == 4 else maps, start=1):
        yield f"layer {number}", of_layer


def _given(
    name: str, maps: Any, grid: tuple[int, int] | None, prefix: int | None
) -> LayerAttention:
    """Return given maps of a layer as those that are read from a model."""
    if maps is None:
        raise ValueError(
            f"the maps of {name} are None, expected probabilities; in transformers, build the model"
            " with attn_implementation='eager' and call it with output_attentions=True"
        )
    maps = torch.as_tensor(maps).detach().cpu()
    maps = maps.float() if maps.element_size() < 4 else maps
    if maps.ndim == 4 and maps.shape[2] == maps.shape[3]:
        expect_probabilities(maps.unsqueeze(-1))
        of_patches = patches_of(name, maps, _grid_of(name, maps.shape[-1], grid, prefix))
        return LayerAttention(name, *of_patches)
    if maps.ndim not in (5, 6):
        raise ValueError(
            f"got maps of shape {tuple(maps.shape)} for a layer, expected (heads, H, W, H, W),"
            " (images, heads, H, W, H, W) or (images, heads, tokens, tokens), in a list with one"
            " element for each layer"
        )
    if grid is not None or prefix is not None:
        raise ValueError(
            f"grid and prefix describe maps (images, heads, tokens, tokens), but {name} has maps of"
            f" shape {tuple(maps.shape)}, which state their grid; leave them out"
        )
    maps = maps.unsqueeze(0) if maps.ndim == 5 else maps
    return LayerAttention(name, maps, torch.zeros(maps.shape[1]))


def _grid_of(
    name: str, tokens: int, grid: tuple[int, int] | None, prefix: int | None
) -> tuple[int, int]:
    """Return the grid of a layer's patches, or raise ValueError if it is unknown."""
    given = f"grid is {grid} and prefix is {prefix}"
    if grid is None:
        prefix = prefix or 0
        side = isqrt(max(tokens - prefix, 0))
        grid = (side, side)
    before = tokens - grid[0] * grid[1]
    if min(grid) < 1 or before < 0 or prefix not in (None, before):
        side = isqrt(tokens)
        raise ValueError(
            f"{name} has {tokens} tokens, but {given}; expected a grid (H, W) and a number of class"
            f" and register tokens in front of it that add up, prefix + H * W = {tokens}, such as"
            f" grid=({side}, {side}), prefix={tokens - side**2}"
        )
    return grid


def _measure(kernel_size: int, layer: LayerAttention) -> LayerReport:
    try:
        found = measure_maps(layer.maps, kernel_size)
    except ValueError as error:
        raise ValueError(
            f"cannot measure {layer.name}: {error}; `layers` selects other layers"
        ) from None
    height, width = layer.maps.shape[-2:]
    middle = layer.maps[:, :, height // 2, width // 2].mean(dim=0, dtype=torch.float64)
    return LayerReport(
        layer.name,
        found.mean,
        Heads(middle, found.by_offset),
        found.mean_distance,
        found.off_convolution,
        found.kernels,
        layer.prefix_mass,
        found.residual,
    )
