"""What all encodings for position-only attention share, and the most general of them."""

import math

import torch
from torch import Tensor, nn

from ..grid import axis_shifts, relative_shifts
from ..shapes import Float


def softmax_without_tails(scores: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
    """The softmax over the last dimension, n numbers, with the probabilities below eps / (4 n) of
    the largest exactly zero.

    Together they are less than a quarter of the last digit of the largest one, so no sum of the
    probabilities changes by more than its rounding (eps: the spacing of the dtype's numbers at 1).
    What they would cost is much: processors are up to a hundred times slower with subnormal
    numbers, in which a Gaussian's tails end. Cut off before the softmax, they are zero in the
    gradients too. In float16, whose range is short, subnormal probabilities may remain.
    """
    reach = math.log(4 * scores.shape[-1] / torch.finfo(scores.dtype).eps)
    with torch.no_grad():
        tails = scores < scores.amax(dim=-1, keepdim=True) - reach
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
