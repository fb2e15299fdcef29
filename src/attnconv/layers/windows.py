"""Attention that is zero outside a window, without its zeros: the queries of a tile of the image
meet the keys that they see, and no others.

Letters: N_h heads, H x W pixels, Q queries, K keys, B batch, D channels.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..theory.shapes import Bool, Float

SIDES = (8, 16, 32)  # of a tile, in queries
SMALLEST = 32  # pixels along an axis, below which tiles do not pay
A_TILE = 2_000_000  # products that take as long as a tile takes besides its own


# what the heads see at most, query by key: along the rows and along the columns
Masks = tuple[Bool[Tensor, "Q_1 H"], Bool[Tensor, "Q_2 W"]]


class Tile(NamedTuple):
    """A run of queries along one axis, and the keys from the first that one of them sees to the
    last."""

    queries: slice
    keys: slice

    @property
    def counts(self) -> tuple[int, int]:
        return self.queries.stop - self.queries.start, self.keys.stop - self.keys.start


def worth_a_look(height: int, width: int) -> bool:
    """Whether tiles may pay on images of this size. A compiler cannot look at numbers."""
    return max(height, width) >= SMALLEST and not torch.compiler.is_compiling()


def tiles_of(seen: Bool[Tensor, "Q K"], side: int) -> list[Tile]:
    """All queries, `side` by `side`, with the keys that `seen` says they may see."""
    first = seen.int().argmax(dim=1).tolist()
    end = (seen.shape[1] - seen.flip(1).int().argmax(dim=1)).tolist()
    runs = [slice(start, min(start + side, len(first))) for start in range(0, len(first), side)]
    return [Tile(run, slice(min(first[run]), max(end[run]))) for run in runs]


def best_tiles(seen: Masks, products: int, separable: bool) -> list[list[Tile]] | None:
    """Along both axes the tiles that cost least, by counted products; None where whole maps cost
    less than twice as much. `products`: of one query with one key, over heads, images and channels.
    """

    def cost(tiles: list[list[Tile]]) -> int:
        rows, columns = ([tile.counts for tile in along] for along in tiles)
        row_pairs, column_pairs = (sum(q * k for q, k in along) for along in (rows, columns))
        pairs = row_pairs * column_pairs  # densely
        if separable:  # first the queries' rows for all columns of keys, then their columns
            pairs = row_pairs * sum(k for _, k in columns) + sum(q for q, _ in rows) * column_pairs
        return products * pairs + A_TILE * len(rows) * len(columns)

    whole = [[Tile(slice(0, len(mask)), slice(0, mask.shape[1]))] for mask in seen]
    best = min(([tiles_of(mask, side) for mask in seen] for side in SIDES), key=cost)
    return best if 2 * cost(best) < cost(whole) else None


def in_tiles(
    tiles: Sequence[Sequence[Tile]],
    X: Float[Tensor, "H W B D"],
    see: Callable[[Tile, Tile, Tensor], Tensor],
) -> Float[Tensor, "Q_1 Q_2 B D_out"]:
    """What `see(rows, columns, keys)` gives for each tile and the part of X that it sees, put
    together."""
    strips = []
    for rows in tiles[0]:
        strip = X[rows.keys]
        line = [see(rows, columns, strip[:, columns.keys]) for columns in tiles[1]]
        strips.append(torch.cat(line, dim=1))
    return torch.cat(strips)


def see_through(
    probabilities: Float[Tensor, "Q K"], X: Float[Tensor, "N K D"]
) -> Float[Tensor, "N Q D"]:
    """One head along one axis: the products of `probabilities` with what is not zero of them.
    Differentiable in X alone."""
    return _SeeThrough.apply(probabilities.to(X.dtype), X)


class _SeeThrough(torch.autograd.Function):
    """With a gradient that has no zeros in it either; autograd's own fills an X for each tile."""

    @staticmethod
    def forward(ctx, probabilities, X):
        ctx.save_for_backward(probabilities)
        tiles = tiles_of(probabilities != 0, max(SIDES))
        return torch.cat([probabilities[tile] @ X[:, tile.keys] for tile in tiles], dim=1)

    @staticmethod
    def backward(ctx, *gradients):
        return None, see_through(ctx.saved_tensors[0].mT, *gradients)
