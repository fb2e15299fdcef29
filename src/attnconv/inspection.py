"""Measure how close the attention of a vision transformer is to a convolution.

Letters: B images (or windows), N_h heads, H x W tokens, K x K kernel, delta = k - q.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .heads import Heads, mean_by_offset
from .layers.attention import PositionAttention
from .networks import SelfAttentionNet
from .theory.expressivity import expresses_convolution
from .theory.grid import offset_set, pixels, relative_offsets
from .vit.capture import LayerAttention, attention_of, chosen_layers

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

    `maps` `(N_h, H, W, H, W)` is the attention averaged over the images. `heads.offsets` is each
    head's best offset, and `heads.mass` is the mean attention on it. Three measures have the shape
    `(N_h,)`: `mean_distance`, the attention-weighted mean of the distance `|k - q|` in tokens;
    `off_convolution`, the relative distance to the nearest convolution; and `prefix_mass`, the
    attention from patches to class, distillation and register tokens, which `maps` excludes.
    `kernels` `(N_h, 2H - 1, 2W - 1)` contains the kernel of the convolution nearest to each head
    (see `nearest_kernels`). `residual` `(K, K)` is the residual of Lemma 3, with one mixture of
    heads for all images and queries.
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
    """The result of `inspect_attention`, with one report per layer; it prints as a table."""

    kernel_size: int
    layers: tuple[LayerReport, ...]

    def table(self, by_head: bool | None = None) -> str:
        """Return a plain-text table with one line per head, or one line of ranges per layer.

        By default, a report on up to 36 heads has one line per head. `LEGEND` explains the columns.
        """
        lines = self._lines(by_head)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
            for line in lines
        )

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        head, *body = (list(map(html.escape, line)) for line in self._lines(None))
        header = "".join(f'<th scope="col">{cell}</th>' for cell in head)
        rows = "".join(
            f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
            for name, *cells in body
        )
        table = f"<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"
        return f"{table}<p>{html.escape(LEGEND)}</p>"

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
    model: nn.Module | Tensor | Sequence[Tensor],
    images: Tensor | None = None,
    kernel_size: int = 3,
    layers: Sequence[int] | None = None,
) -> AttentionReport:
    """Measure how close the attention of a vision transformer is to a K x K convolution.

    `model` is a timm vision transformer, a network from `build_model`, or attention maps. Maps are
    a tensor `(L, N_h, H, W, H, W)` or `(L, B, N_h, H, W, H, W)`, with the query before the key, or
    a sequence with the maps of each layer, which may differ in size. `images` `(B, C, H', W')` are
    the model's input; networks from `build_model` whose attention depends only on positions need
    none. `layers` selects attention layers by number, starting at 0; None selects all. See
    `LayerReport` for the measures, which are computed in float64. Time and memory grow as B times
    the square of the number of tokens; a few images suffice.

    Raises ValueError if images are missing, maps have the wrong shape or are not probabilities, the
    kernel is larger than a layer's grid, or a layer does not exist; TypeError if the attention
    cannot be read.
    """
    chosen = _attention(model, images, layers)
    return AttentionReport(kernel_size, tuple(_measure(each, kernel_size) for each in chosen))


def _attention(
    model: nn.Module | Tensor | Sequence[Tensor],
    images: Tensor | None,
    layers: Sequence[int] | None,
) -> list[LayerAttention]:
    """Return the attention of the chosen layers of a model, or of given maps."""
    if not isinstance(model, nn.Module):
        found = [_given(number, maps) for number, maps in enumerate(model, start=1)]
        return chosen_layers(found, layers)
    if images is not None:
        return attention_of(model, images, layers)
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
    weight = model.embedding.weight
    image = weight.new_zeros(1, model.in_channels, side, side)
    return attention_of(model, image, layers)


def _given(number: int, maps: Tensor) -> LayerAttention:
    if maps.ndim not in (5, 6):
        raise ValueError(
            f"got maps of shape {tuple(maps.shape)} for a layer, expected (heads, H, W, H, W) or"
            " (images, heads, H, W, H, W), preceded by the axis of the layers"
        )
    maps = (maps.unsqueeze(0) if maps.ndim == 5 else maps).detach().cpu()
    return LayerAttention(f"layer {number}", maps, torch.zeros(maps.shape[1]))


def _measure(layer: LayerAttention, kernel_size: int) -> LayerReport:
    try:
        residual = expresses_convolution(layer.maps, kernel_size).residual  # rejects invalid maps
    except ValueError as error:
        raise ValueError(
            f"cannot measure {layer.name}: {error}; `layers` selects other layers"
        ) from None
    mean = layer.maps.mean(dim=0, dtype=torch.float64)
    height, width = mean.shape[-2:]
    distance = relative_offsets(height, width).double().norm(dim=-1)  # (H, W, H, W)
    kernels, off_convolution = nearest_kernels(layer.maps, kernel_size)
    return LayerReport(
        layer.name,
        mean.float(),
        Heads(mean[:, height // 2, width // 2], mean_by_offset(mean)),
        (mean * distance).sum(dim=(3, 4)).mean(dim=(1, 2)),
        off_convolution,
        kernels,
        layer.prefix_mass,
        residual,
    )


def nearest_kernels(maps: Tensor, kernel_size: int = 3) -> tuple[Tensor, Tensor]:
    """Return the kernel of the convolution nearest to each head, and the relative distance to it.

    `maps` have the shape `(B, N_h, H, W, H, W)`, the kernels `(N_h, 2H - 1, 2W - 1)` and the
    distances `(N_h,)`. The distance is `||A - C||_F / ||A||_F`. Here, A is the attention of the
    queries whose K x K kernel lies inside the image, as in Lemma 3. C is the matrix nearest to A
    whose entries depend only on the offset k - q: each entry is the mean of A over all images and
    pixel pairs with that offset. These means form the kernel, which lists the offsets in ascending
    order and is 0 at any offset that does not occur for these queries.

    The distance is 0 for a head that attends to one offset of the kernel. It is also 0 for uniform
    attention, which is a convolution with a constant kernel that covers the whole image. It is near
    1 if attention follows image content. For other softmax heads that depend only on positions, it
    is small but not 0, because they are renormalised near the border.
    """
    height, width = maps.shape[-2:]
    queries = pixels(height, width)
    offsets = offset_set((kernel_size, kernel_size))
    first = queries + offsets[0]
    last = queries + offsets[-1]
    inside = (first >= 0) & (last <= torch.tensor([height - 1, width - 1]))
    rows, columns = queries[inside.all(dim=1)].T
    delta = relative_offsets(height, width)[rows, columns].flatten(0, 2)
    number = (delta[:, 0] + height - 1) * (2 * width - 1) + delta[:, 1] + width - 1
    total, squares = torch.zeros(()), torch.zeros(())
    for image in maps:
        A = image[:, rows, columns].double().flatten(1)  # (N_h, Q * T)
        total, squares = total + A, squares + A.square().sum(dim=1)
    sides = 2 * height - 1, 2 * width - 1
    counts = len(maps) * torch.bincount(number, minlength=sides[0] * sides[1]).double()
    sums = total.new_zeros(len(total), len(counts)).index_add(1, number, total)
    means = sums / counts.clamp(min=1)  # C, by offset
    # A - C is orthogonal to C, so ||A - C||^2 = ||A||^2 - ||C||^2
    distance = (1 - (means.square() @ counts) / squares).clamp(min=0).sqrt()
    return means.unflatten(1, sides), distance
