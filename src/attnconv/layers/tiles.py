"""Attention in tiles: the queries of a tile are multiplied only with the keys in its window.

The support of the heads is the set of keys with nonzero probability, stored as one query-by-key
mask per axis for all heads together.

Letters: N_h heads, H x W pixels, Q queries, K keys, B batch, D channels.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..theory.grid import axis_offsets
from ..theory.shapes import Bool, Float
from .encodings import tail_cutoff
from .values import can_be_read, only_shapes_are_known

SIDES = (8, 16, 32)  # side of a tile, in queries
SMALLEST = 32  # pixels along an axis below which tiles are not worthwhile
A_TILE = 2_000_000  # number of products that take as long as the overhead of one tile

Support = tuple[Bool[Tensor, "Q_1 H"], Bool[Tensor, "Q_2 W"]]


def support_of_factors(
    rows: Float[Tensor, "N_h Q_1 H"], columns: Float[Tensor, "N_h Q_2 W"]
) -> Support:
    """Return the support of separable heads as one mask per axis, given their factors."""
    return (rows != 0).any(dim=0), (columns != 0).any(dim=0)


@torch.no_grad()
def support_of_scores(offset_scores: Float[Tensor, "N_h rows columns"]) -> Support:
    """Return a superset of the heads' support, given their scores for all offsets.

    Outside this superset, `softmax_without_tails` sets every probability to zero. The scores are
    `(N_h, 2H - 1, 2W - 1)`.
    """
    height, width = ((extent + 1) // 2 for extent in offset_scores.shape[1:])
    largest = _largest_per_query(_largest_per_query(offset_scores, 1), 2).flatten(1)  # (N_h, T)
    lowest = largest.amin(dim=1) - tail_cutoff(offset_scores.dtype, height * width)
    kept = (offset_scores >= lowest.view(-1, 1, 1)).any(dim=0)
    along = ((kept.any(dim=1), height), (kept.any(dim=0), width))
    rows, columns = (mask[axis_offsets(size, mask.device) + size - 1] for mask, size in along)
    return rows, columns


def _largest_per_query(offset_scores: Tensor, axis: int) -> Tensor:
    """Return the largest score of each query along an axis with n queries and 2n - 1 offsets."""
    n = (offset_scores.shape[axis] + 1) // 2
    before = offset_scores.narrow(axis, 0, n).flip(axis).cummax(axis).values  # keys up to the query
    after = offset_scores.narrow(axis, n - 1, n).cummax(axis).values.flip(axis)
    return torch.maximum(before, after)


class Tile(NamedTuple):
    """Consecutive queries along one axis and the smallest range of keys covering their support."""

    queries: slice
    keys: slice

    @property
    def counts(self) -> tuple[int, int]:
        """The number of queries and the number of keys."""
        return self.queries.stop - self.queries.start, self.keys.stop - self.keys.start


def tiles_may_pay(height: int, width: int) -> bool:
    """Return whether tiles may save time at the given image size (never in a recorded graph)."""
    return not only_shapes_are_known() and max(height, width) >= SMALLEST


def tiles_of(support: Bool[Tensor, "Q K"], side: int) -> list[Tile]:
    """Return tiles of `side` queries along one axis, each with the keys that cover its support."""
    first = support.int().argmax(dim=1).tolist()
    end = (support.shape[1] - support.flip(1).int().argmax(dim=1)).tolist()
    runs = [slice(start, min(start + side, len(first))) for start in range(0, len(first), side)]
    return [Tile(run, slice(min(first[run]), max(end[run]))) for run in runs]


def best_tiles(support: Support, products: int, separable: bool) -> list[list[Tile]] | None:
    """Return the cheapest tiles along both axes, or None if whole maps should be used.

    Tiles are used if they cost less than half as much as whole maps. `products` is the number of
    products for each query-key pair, summed over heads, images and channels.
    """
    unknown = not all(map(can_be_read, support))
    if unknown or not tiles_may_pay(*(mask.shape[1] for mask in support)):
        return None

    def cost(tiles: list[list[Tile]]) -> int:
        rows, columns = ([tile.counts for tile in along] for along in tiles)
        row_pairs, column_pairs = (sum(q * k for q, k in along) for along in (rows, columns))
        pairs = row_pairs * column_pairs  # for dense maps
        if separable:  # first the queries' rows for all columns of keys, then their columns
            pairs = row_pairs * sum(k for _, k in columns) + sum(q for q, _ in rows) * column_pairs
        return products * pairs + A_TILE * len(rows) * len(columns)

    whole = [[Tile(slice(0, len(mask)), slice(0, mask.shape[1]))] for mask in support]
    best = min(([tiles_of(mask, side) for mask in support] for side in SIDES), key=cost)
    return best if 2 * cost(best) < cost(whole) else None


def in_tiles(
    tiles: Sequence[Sequence[Tile]],
    X: Float[Tensor, "H W B D"],
    compute: Callable[[Tile, Tile, Tensor], Tensor],
) -> Float[Tensor, "Q_1 Q_2 B D_out"]:
    """Return the results of `compute(rows, columns, keys)` for all tiles as a single tensor."""
    strips = []
    for rows in tiles[0]:
        strip = X[rows.keys]
        line = [compute(rows, columns, strip[:, columns.keys]) for columns in tiles[1]]
        strips.append(torch.cat(line, dim=1))
    return torch.cat(strips)


def one_by_one(
    function: Callable[..., Tensor], info: Any, in_dims: Sequence[int | None], *inputs: Tensor
) -> tuple[Tensor, int]:
    """Return `function` of each of the tensors that `torch.func.vmap` has batched, and axis 0."""
    along = [
        [X] * info.batch_size if dim is None else X.unbind(dim)
        for X, dim in zip(inputs, in_dims, strict=True)
    ]
    return torch.stack([function(*each) for each in zip(*along, strict=True)]), 0


def banded_matmul(
    probabilities: Float[Tensor, "Q K"], X: Float[Tensor, "N K D"]
) -> Float[Tensor, "N Q D"]:
    """Return `probabilities @ X` for probabilities whose nonzero entries lie in a band.

    The product is differentiable only with respect to X.
    """
    return _BandedMatmul.apply(probabilities.to(X.dtype), X)


class _BandedMatmul(torch.autograd.Function):
    """A tiled product and its gradient (autograd would allocate a full X for each tile)."""

    @staticmethod
    def forward(probabilities, X):
        tiles = tiles_of(probabilities != 0, max(SIDES))
        return torch.cat([probabilities[tile] @ X[:, tile.keys] for tile in tiles], dim=1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def jvp(ctx, *tangents):
        return banded_matmul(ctx.saved_tensors[0], tangents[1])

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return one_by_one(banded_matmul, info, in_dims, *inputs)

    @staticmethod
    def backward(ctx, *gradients):
        return None, banded_matmul(ctx.saved_tensors[0].mT, *gradients)
