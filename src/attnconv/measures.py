"""Measure in one pass over attention maps how close the heads of a layer are to a convolution.

Letters: B images (or windows), N_h heads, H x W tokens, T = H * W, K x K kernel with offsets Delta,
delta = k - q. A query is interior if its whole kernel lies inside the image, as in Lemma 3.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .theory.expressivity import expect_maps, expect_probabilities
from .theory.grid import all_offsets, offset_set

#: Below this ratio of eigenvalues, normal equations lose too many digits.
WELL_CONDITIONED = 1e-11
#: A residual below this multiple of 1 + phi^T phi is computed again without cancellation.
CANCELLED = 1e-4


@dataclass(frozen=True)
class Measures:
    """The measures of `LayerReport`, in float64, except for the mean maps in float32.

    `mean` is `(N_h, H, W, H, W)`, `by_offset` is the result of `mean_by_offset` for the mean maps,
    and `mean_distance`, `off_convolution`, `kernels` and `residual` are those of the report.
    """

    mean: Tensor
    by_offset: Tensor
    mean_distance: Tensor
    off_convolution: Tensor
    kernels: Tensor
    residual: Tensor


def measure_maps(maps: Tensor, kernel_size: int) -> Measures:
    """Return the measures of attention maps `(B, N_h, H, W, H, W)` for a K x K kernel.

    The maps are read once, one row of queries at a time, and only that row is converted to float64.
    Raises ValueError for the wrong shape, a kernel larger than the grid, or maps that are not
    probabilities.
    """
    expect_maps(maps, (kernel_size, kernel_size))
    maps = maps.detach()
    images, heads, height, width = maps.shape[:4]
    interior = _Interior(height, width, kernel_size)
    mean = maps[0].float() if images == 1 else maps.new_empty(maps.shape[1:], dtype=torch.float32)
    # (interior row or not, column of the query, head, row of the offset, column of the key)
    sums = maps.new_zeros(2, width, heads, 2 * height - 1, width, dtype=torch.float64)
    grams = []  # A_q A_q^T of each interior query
    selected = []  # A_q at the pixels q + Delta
    for i in range(height):
        A = _row(maps, i)
        if not _are_probabilities(A):
            expect_probabilities(maps)
        total = A[0]
        if images > 1:
            total = A.sum(dim=0)
            mean[:, i] = (total / images).transpose(0, 1)
        sums[int(i in interior.rows), :, :, height - 1 - i : 2 * height - 1 - i] += total
        if i in interior.rows:
            A = interior.queries(A)
            grams.append(A @ A.mT)
            selected.append(interior.at_offsets(A, i))
    by_offset = _sum_by_column(sums.sum(dim=0), range(width))
    distances = all_offsets(height, width).double().norm(dim=-1)
    G, S = torch.stack(grams), torch.stack(selected)
    kernels, off_convolution = _nearest_convolution(
        _sum_by_column(sums[1], interior.columns), images * interior.counts(), G
    )
    return Measures(
        mean,
        by_offset / (images * _pairs(range(height), height)[:, None] * _pairs(range(width), width)),
        (by_offset * distances).sum(dim=(1, 2)) / (images * height * width),
        off_convolution,
        kernels,
        _residual(maps, interior, G, S).unflatten(0, (kernel_size, kernel_size)),
    )


def _row(maps: Tensor, i: int) -> Tensor:
    """Return the maps of a row of queries in float64, `(B, W, N_h, H, W)`."""
    row = maps[:, :, i].transpose(1, 2)
    return row.to(torch.float64, memory_format=torch.contiguous_format)


class _Interior:
    """The interior queries of a grid."""

    def __init__(self, height: int, width: int, kernel_size: int):
        self.height, self.width = height, width
        self.offsets = offset_set((kernel_size, kernel_size))
        (up, left), (down, right) = self.offsets[0].tolist(), self.offsets[-1].tolist()
        self.rows = range(-up, height - down)
        self.columns = range(-left, width - right)

    def queries(self, A: Tensor) -> Tensor:
        """Return the maps of a row's interior queries, `(B, Q, N_h, T)`, from `(B, W, N_h, H, W)`.

        Q counts the interior queries of the row.
        """
        return A[:, self.columns.start : self.columns.stop].flatten(3)

    def keys(self, i: int) -> Tensor:
        """Return the pixel q + Delta of each interior query of row i, as an index `(Q, K^2)`."""
        rows, columns = self.offsets.T
        return (i + rows) * self.width + torch.tensor(self.columns)[:, None] + columns

    def at_offsets(self, A: Tensor, i: int) -> Tensor:
        """Return what the interior queries of row i assign to q + Delta: `(B, Q, N_h, K^2)`."""
        return A.gather(-1, self.keys(i)[:, None].expand(*A.shape[:3], -1))

    def counts(self) -> Tensor:
        """Return how often each offset occurs between an interior query and a key."""
        of_columns = _pairs(self.columns, self.width)
        return _pairs(self.rows, self.height)[:, None] * of_columns


def _are_probabilities(A: Tensor) -> bool:
    off = (A.flatten(-2).sum(dim=-1) - 1).abs().max()
    return bool(off <= 1e-2) and bool(A.amin() >= 0)


def _pairs(queries: range, size: int) -> Tensor:
    """Return how many queries on one axis have a key at each offset from 1 - size to size - 1."""
    delta = torch.arange(1 - size, size)
    key = torch.tensor(queries)[:, None] + delta
    return ((key >= 0) & (key < size)).sum(dim=0).double()


def _sum_by_column(sums: Tensor, columns: range) -> Tensor:
    """Sum `(W, N_h, 2H - 1, W)` over the queries' columns by offset: `(N_h, 2H - 1, 2W - 1)`."""
    width = sums.shape[-1]
    by_offset = sums.new_zeros(*sums.shape[1:3], 2 * width - 1)
    for j in columns:
        by_offset[:, :, width - 1 - j : 2 * width - 1 - j] += sums[j]
    return by_offset


def _nearest_convolution(sums: Tensor, counts: Tensor, grams: Tensor) -> tuple[Tensor, Tensor]:
    """Return the kernel of the convolution nearest to each head, and the relative distance to it.

    The distance is ||A - C||_F / ||A||_F. Here, A is the attention of the interior queries, and C
    is the matrix nearest to A whose entries depend only on the offset: each entry is the mean of A
    over all images and pixel pairs with that offset. These means form the kernel.
    """
    means = sums / counts.clamp(min=1)
    squares = grams.diagonal(dim1=-2, dim2=-1).flatten(0, -2).sum(dim=0)
    # A - C is orthogonal to C, so ||A - C||^2 = ||A||^2 - ||C||^2
    of_convolution = (means.square() * counts).sum(dim=(1, 2))
    return means, (1 - of_convolution / squares).clamp(min=0).sqrt()


def _residual(maps: Tensor, interior: _Interior, grams: Tensor, selected: Tensor) -> Tensor:
    """Return the residual of Lemma 3 for each offset, `(K^2,)`, with one Phi for all queries.

    Phi solves the normal equations Phi (sum_q A_q A_q^T) = sum_q (A_q at q + Delta)^T. For each
    query, ||e_{q + Delta} - Phi A_q||^2 follows from the same two products. Where that would lose
    digits, the maps themselves are used.
    """
    G = grams.flatten(0, -3).sum(dim=0)
    values, vectors = torch.linalg.eigh(G)
    if bool(values[0] < WELL_CONDITIONED * values[-1]):
        return _distances(maps, interior, _combination(maps, interior))
    wanted = selected.flatten(0, -3).sum(dim=0)
    phi = (vectors @ ((vectors.mT @ wanted) / values[:, None])).mT  # (K^2, N_h)
    squares = 1 - 2 * (phi.mT * selected).sum(dim=-2) + ((phi @ grams) * phi).sum(dim=-1)
    residual = squares.flatten(0, -2).amax(dim=0).clamp(min=0).sqrt()
    if bool((residual < CANCELLED * (1 + phi.square().sum(dim=1))).any()):
        return _distances(maps, interior, phi)
    return residual


def _rows(maps: Tensor, interior: _Interior) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `(B, Q, N_h, T)` and the targets `(B, Q, K^2, T)` for each row of interior queries."""
    for i in interior.rows:
        A = interior.queries(_row(maps, i))
        keys = interior.keys(i)
        targets = A.new_zeros(*keys.shape, A.shape[-1]).scatter_(-1, keys[..., None], 1.0)
        yield A, targets.expand(len(A), -1, -1, -1)


def _combination(maps: Tensor, interior: _Interior) -> Tensor:
    """Return Phi, `(K^2, N_h)`, by a QR decomposition that never holds more than a row's maps."""
    heads = maps.shape[1]
    R = maps.new_zeros(0, heads + len(interior.offsets), dtype=torch.float64)
    equations = 0
    for A, targets in _rows(maps, interior):
        block = torch.cat([A, targets], dim=2).mT.flatten(0, 2)
        equations += len(block)
        R = torch.linalg.qr(torch.cat([R, block]), mode="r").R
    smallest = torch.finfo(R.dtype).eps * max(equations, heads)
    A, targets = R.split([heads, len(interior.offsets)], dim=1)
    return torch.linalg.lstsq(A, targets, rcond=smallest, driver="gelsd").solution.mT


def _distances(maps: Tensor, interior: _Interior, phi: Tensor) -> Tensor:
    """Return the largest ||e_{q + Delta} - Phi A_q|| over all queries for each offset, `(K^2,)`."""
    largest = [
        (targets - phi @ A).norm(dim=-1).flatten(0, 1).amax(dim=0)
        for A, targets in _rows(maps, interior)
    ]
    return torch.stack(largest).amax(dim=0)
