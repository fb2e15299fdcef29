"""Heads that are shifts of one another: what one of them sees serves all (Lemma 1).

A quadratic head's probabilities p(k | q) depend on k and q + Delta alone. So on whole pixels, with
one alpha, each head sees at q what a head with its centre on the query sees at q + Delta; one-hot
heads see that pixel.

Letters: B batch, C channels, H x W pixels, Q queries of them, N_h heads, G groups.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..theory.encodings import QuadraticEncoding, softmax_without_tails
from ..theory.grid import axis_shifts
from ..theory.shapes import Float
from .windows import see_through

CHANNELS = 64  # at least so many enter a product of matrices: fewer would leave it half empty


class Shifts(NamedTuple):
    """`corners`: by head, where its first query looks. `views`: by axis the attention of a head
    with its centre on the query, `(size, size)`; None where that is the pixel alone."""

    corners: list[tuple[int, ...]]
    views: list[Tensor | None]


@torch.no_grad()
def as_shifts(
    encoding: QuadraticEncoding, queries: Sequence[range], sizes: Sequence[int]
) -> Shifts | None:
    """The heads as shifts of one, exactly, at the given queries along each axis of images of these
    sizes; None if they differ in alpha, or some query would look between pixels or outside."""
    centers, alpha = encoding.centers, encoding.alpha
    if not bool((centers == centers.round()).all() and (alpha == alpha[0]).all()):
        return None
    starts, ends = (torch.tensor([kept[i] for kept in queries]) for i in (0, -1))
    places = centers.long().cpu()
    if bool((places + starts < 0).any() or (places + ends >= torch.tensor(sizes)).any()):
        return None
    views: list[Tensor | None] = []
    for axis, size in enumerate(sizes):
        onto = axis_shifts(size, encoding.device) + places[0, axis].item()
        view = softmax_without_tails(encoding.axis_scores(axis, onto)[0])
        views.append(None if torch.equal(view, torch.eye(size).to(view)) else view)
    return Shifts([tuple(corner) for corner in (places + starts).tolist()], views)


def see(views: Sequence[Tensor | None], images: Float[Tensor, "H B W C"]) -> Tensor:
    """What a head with its centre on the query sees, `(H, B, W, C)`; a sequence is an image of one
    row."""
    *rows, columns = views
    if rows and rows[0] is not None:
        images = see_through(rows[0], images.reshape(1, len(images), -1)).view_as(images)
    if columns is not None:
        images = see_through(columns, images.flatten(0, 1)).view_as(images)
    return images


def add_shifted(
    images: Float[Tensor, "H B W C"],
    matrices: Float[Tensor, "N_h G C_g O_g"],
    corners: Sequence[Sequence[int]],
    queries: Sequence[int],
    stride: Sequence[int],
) -> Float[Tensor, "{queries[0]} B {queries[1]} O"]:
    """What one-hot heads compute: the sum over them of the image from a head's corner on, every
    `stride`-th pixel, times its matrix."""
    return _AddShifted.apply(images, matrices, corners, queries, stride)


class _AddShifted(torch.autograd.Function):
    """With a gradient that is a sum of shifts too; autograd's own fills an image with zeros for
    each head."""

    @staticmethod
    def forward(ctx, images, matrices, corners, queries, stride):
        ctx.save_for_backward(images, matrices)
        ctx.corners, ctx.stride = corners, stride
        return _sum_of_products(_seen(images, corners, queries, stride), matrices)

    @staticmethod
    def backward(ctx, *gradients):
        (gradient,), (images, matrices) = gradients, ctx.saved_tensors
        of_images = of_matrices = None
        if ctx.needs_input_grad[1]:
            queries = gradient.shape[0], gradient.shape[2]
            seen = _seen(images, ctx.corners, queries, ctx.stride)
            by_group = _by_group(gradient, matrices.shape[1])
            of_matrices = torch.stack(
                [_by_group(one, matrices.shape[1]).mT @ by_group for one in seen]
            )
        if ctx.needs_input_grad[0]:
            sizes = images.shape[0], images.shape[2]
            spread, corners = _spread(gradient, ctx.corners, ctx.stride, sizes)
            of_images = add_shifted(spread, matrices.mT, corners, sizes, (1, 1))
        return of_images, of_matrices, None, None, None


def _seen(images: Tensor, corners, queries, stride) -> list[Tensor]:
    """What each one-hot head sees: `(Q_1, B, Q_2, C)`, views of the images."""
    rows, columns = (
        slice(0, (count - 1) * step + 1, step) for count, step in zip(queries, stride, strict=True)
    )
    return [images[row:][rows, :, column:][:, :, columns] for row, column in corners]


def _by_group(X: Tensor, groups: int) -> Tensor:
    """`(Q_1, B, Q_2, C)` -> `(G, Q_1 B Q_2, C_g)`."""
    return X.reshape(-1, groups, X.shape[-1] // groups).transpose(0, 1)


def _spread(gradient: Tensor, corners, stride, sizes) -> tuple[Tensor, list[tuple[int, int]]]:
    """The gradient of the output with zeros between and around its pixels, and where in it each
    head's part of the images' gradient begins."""
    (rows, columns), (height, width) = stride, sizes
    q_1, batch, q_2, channels = gradient.shape
    last = [max(along) for along in zip(*corners, strict=True)]
    first = [min(along) for along in zip(*corners, strict=True)]
    spread = gradient.new_zeros(
        height + last[0] - first[0], batch, width + last[1] - first[1], channels
    )
    inside = spread[
        last[0] : last[0] + rows * q_1 : rows, :, last[1] : last[1] + columns * q_2 : columns
    ]
    inside[:] = gradient
    return spread, [(last[0] - row, last[1] - column) for row, column in corners]


def _sum_of_products(seen: list[Tensor], matrices: Tensor) -> Tensor:
    """The sum over heads of `(Q_1, B, Q_2, C)` times `(G, C_g, O_g)`: `(Q_1, B, Q_2, O)`. With few
    channels some heads at a time; in half precision all, which rounds once."""
    together = max(1, CHANNELS // seen[0].shape[-1])
    together = len(seen) if matrices.element_size() == 2 else together
    total = None
    for first in range(0, len(seen), together):
        some, of_them = seen[first : first + together], matrices[first : first + together]
        shifted = torch.stack(some, dim=3) if len(some) > 1 else some[0].unsqueeze(3)
        # (Q_1 B, Q_2, heads, G, C_g)
        blocks = shifted.flatten(0, 1).unflatten(-1, (matrices.shape[1], -1))
        total = _add_product(total, blocks, of_them)
    assert total is not None, "a layer has heads"
    return total.unflatten(0, seen[0].shape[:2])


def _add_product(total: Tensor | None, blocks: Tensor, matrices: Tensor) -> Tensor:
    """`total` `(N, Q, O)`, in place, plus the blocks `(N, Q, heads, G, C_g)` times `(heads, G, C_g,
    O_g)`."""
    if matrices.shape[1] == 1:  # one group: a product of matrices for each row of queries
        seen, matrix = blocks.flatten(2), matrices.flatten(0, 2).expand(len(blocks), -1, -1)
        if total is None:
            return torch.bmm(seen, matrix)
        return torch.baddbmm(total, seen, matrix, out=total)
    product = torch.einsum("nqhgc,hgco->nqgo", blocks, matrices).flatten(2)
    return product if total is None else total.add_(product)
