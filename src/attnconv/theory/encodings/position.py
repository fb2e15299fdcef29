"""What all encodings for position-only attention share, and the most general of them."""

import math

import torch
from torch import Tensor, nn

from ..grid import all_shifts, axis_shifts, relative_shifts
from ..shapes import Bool, Float


def reach(dtype: torch.dtype, n: int) -> float:
    """How far below the largest of n scores another may lie for its probability not to be cut off.
    See `softmax_without_tails`."""
    return math.log(4 * n / torch.finfo(dtype).eps)


def softmax_without_tails(
    scores: Float[Tensor, "*B seen"], n: int | None = None
) -> Float[Tensor, "*B seen"]:
    """The softmax over the last dimension, n numbers (or those of n that are not cut off), with
    the probabilities below eps / (4 n) of the largest exactly zero.

    Together they are less than a quarter of the last digit of the largest one, so no sum of the
    probabilities changes by more than its rounding (eps: the spacing of the dtype's numbers at 1).
    What they would cost is much: processors are up to a hundred times slower with subnormal
    numbers, in which a Gaussian's tails end. Cut off before the softmax, they are zero in the
    gradients too. In float16, whose range is short, subnormal probabilities may remain.
    """
    with torch.no_grad():
        lowest = scores.amax(dim=-1, keepdim=True) - reach(scores.dtype, n or scores.shape[-1])
        tails = scores < lowest
    return scores.masked_fill(tails, -math.inf).softmax(dim=-1)


class PositionEncoding(nn.Module):
    """Scores that depend on the shift alone. A subclass sets `num_heads` and defines `scores`."""

    num_heads: int

    def snapshot(self) -> dict[str, Tensor]:
        """What a figure needs to draw the heads, detached: few numbers per head, the head first."""
        raise NotImplementedError

    def scores(self, delta: Tensor) -> Tensor:
        """Scores `(N_h, ...)` of the shifts `(..., n)`."""
        raise NotImplementedError

    def position_scores(self, *sizes: int) -> Tensor:
        """Scores for each query and key pixel of a grid: `(N_h, *sizes, *sizes)`."""
        return self.scores(relative_shifts(*sizes, device=self.device))

    def shift_scores(self, *sizes: int) -> Tensor:
        """Scores for each shift between two pixels of a grid: `(N_h, 2H - 1, 2W - 1)`."""
        return self.scores(all_shifts(*sizes, device=self.device))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


class SeparableEncoding(PositionEncoding):
    """Scores that are a sum of one term per axis. A subclass defines `axis_scores`."""

    def axis_scores(self, axis: int, delta: Tensor) -> Tensor:
        """The term `(N_h, ...)` that one axis contributes, for shifts `(...)` along it."""
        raise NotImplementedError

    def scores(self, delta: Tensor) -> Tensor:
        first, *others = (self.axis_scores(n, along) for n, along in enumerate(delta.unbind(-1)))
        return sum(others, first)

    def position_scores(self, *sizes: int) -> Tensor:
        scores = torch.zeros((), device=self.device)
        for axis, size in enumerate(sizes):
            shape = [size if i == axis else 1 for i in range(len(sizes))]
            scores = scores + self.axis_scores(axis, axis_shifts(size, self.device)).reshape(
                -1, *shape, *shape
            )
        return scores

    def axis_probabilities(self, *sizes: int) -> list[Tensor]:
        """Per axis the attention along it, `(N_h, size, size)`; p(k | q) is their product."""
        shifts = (axis_shifts(size, self.device) for size in sizes)
        return [
            softmax_without_tails(self.axis_scores(axis, delta))
            for axis, delta in enumerate(shifts)
        ]


class RelativeBias(PositionEncoding):
    """The most general position-only scores: one free number per head and shift, `table`
    `(N_h, 2H - 1, 2W - 1)`."""

    def __init__(self, table: Tensor):
        super().__init__()
        if table.ndim != 3 or table.shape[1] % 2 == 0 or table.shape[2] % 2 == 0:
            raise ValueError(
                f"got a table of shape {tuple(table.shape)}, expected (heads, 2H - 1, 2W - 1)"
            )
        self.num_heads = table.shape[0]
        self.table = nn.Parameter(table.clone())

    def scores(self, delta: Tensor) -> Tensor:
        rows, columns = self.table.shape[1:]
        i, j = delta[..., 0] + rows // 2, delta[..., 1] + columns // 2
        if min(int(i.min()), int(j.min())) < 0 or int(i.max()) >= rows or int(j.max()) >= columns:
            raise ValueError(
                f"shifts up to {int(delta.abs().max())} pixels were asked of a relative bias of"
                f" {rows} x {columns} shifts, which serves images up to {rows // 2 + 1} x"
                f" {columns // 2 + 1} pixels"
            )
        return self.table[:, i, j]


@torch.no_grad()
def keys_in_reach(
    shift_scores: Float[Tensor, "N_h rows columns"],
) -> tuple[Bool[Tensor, "H H"], Bool[Tensor, "W W"]]:
    """Of all heads together, query by key along each axis: outside of these rows and columns every
    probability is cut off. From the scores of all shifts, `(N_h, 2H - 1, 2W - 1)`."""
    height, width = ((extent + 1) // 2 for extent in shift_scores.shape[1:])
    largest = _over_queries(_over_queries(shift_scores, 1), 2).flatten(1)  # (N_h, T)
    lowest = largest.amin(dim=1) - reach(shift_scores.dtype, height * width)
    seen = (shift_scores >= lowest.view(-1, 1, 1)).any(dim=0)
    along = ((seen.any(dim=1), height), (seen.any(dim=0), width))
    rows, columns = (mask[axis_shifts(size, mask.device) + size - 1] for mask, size in along)
    return rows, columns


def _over_queries(shift_scores: Tensor, axis: int) -> Tensor:
    """Along one axis the largest score that each query meets: 2n - 1 shifts -> n queries."""
    n = (shift_scores.shape[axis] + 1) // 2
    before = shift_scores.narrow(axis, 0, n).flip(axis).cummax(axis).values  # keys up to the query
    after = shift_scores.narrow(axis, n - 1, n).cummax(axis).values.flip(axis)
    return torch.maximum(before, after)
