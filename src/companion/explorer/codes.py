"""Maps in 8 bits, for some of their query pixels, so that a page with them stays small.

Letters: N_h heads, Q query pixels, H x W tokens.
"""

from collections.abc import Mapping
from itertools import product

import torch
from torch import Tensor

#: Size limit in bytes for all maps of a page, before they are encoded as text.
ALL_MAPS = 6_000_000
#: A probability below exp(-RANGE) times the largest one of its map is stored as zero.
RANGE = 17.0


def queries_per_axis(layers: Mapping[tuple[int, int], int]) -> int:
    """Return how many queries along each axis fit in a page, for all layers alike.

    `layers` has the number of heads of all layers of each size `(H, W)`. A layer with fewer tokens
    along an axis has all of them as queries.
    """

    def size(count: int) -> int:
        grids = ((min(h, count) * min(w, count), h * w, heads) for (h, w), heads in layers.items())
        return sum(queries * tokens * heads for queries, tokens, heads in grids)

    counts = range(max(map(max, layers)), 1, -1)
    return next((count for count in counts if size(count) <= ALL_MAPS), 1)


def maps_in_bytes(maps: Tensor, count: int) -> dict[str, Tensor]:
    """Return maps `(N_h, H, W, H, W)` for a grid of at most `count` x `count` queries, in 8 bits.

    `queries` `(Q, 2)` lists these pixels, `codes` `(N_h, Q, H, W)` has bytes, and `logarithms`
    `(N_h, Q, 2)` the smallest and the largest logarithm that they stand for. Code 0 is a
    probability of 0, and the codes from 1 to 255 are evenly spaced logarithms, so that a
    probability is exact within 4 %.
    """
    rows, columns = (_spread(size, count) for size in maps.shape[-2:])
    queries = torch.tensor(list(product(rows, columns)))
    logarithms = maps[:, rows][:, :, columns].flatten(1, 2).log()  # (N_h, Q, H, W)
    high = logarithms.amax(dim=(-2, -1))
    known = logarithms.where(logarithms >= high[..., None, None] - RANGE, torch.inf)
    low = known.amin(dim=(-2, -1))
    step = ((high - low) / 254).clamp(min=torch.finfo(high.dtype).tiny)[..., None, None]
    codes = 1 + ((known - low[..., None, None]) / step).round()
    codes = codes.where(known.isfinite(), 0.0).to(torch.uint8)
    return {"queries": queries, "codes": codes, "logarithms": torch.stack([low, high], dim=-1)}


def _spread(size: int, count: int) -> list[int]:
    """Return at most `count` of the numbers below `size`, evenly spread."""
    count = min(size, count)
    return [(2 * n + 1) * size // (2 * count) for n in range(count)]
