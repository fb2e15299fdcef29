"""Heads that are shifts of one another and share a single average of the image (Lemma 1).

The probabilities p(k | q) of a quadratic head depend only on k and q + Delta. With integer centres
and a common alpha, the average of each head at q therefore equals the average at q + Delta of a
head centred on the query. A one-hot head selects the pixel at q + Delta.

Letters: B batch, C channels, H x W pixels, Q query pixels, N_h heads, G groups.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from ..theory.grid import axis_offsets
from ..theory.shapes import Float
from ..theory.theorem1 import hard_alpha
from .encodings import QuadraticEncoding, softmax_without_tails, tail_cutoff
from .tiles import banded_matmul, one_by_one
from .values import can_be_read

CHANNELS = 64  # smaller matrix products are inefficient
IN_CACHE = 2**18  # numbers that a processor's cache holds


class Shifts(NamedTuple):
    """Heads represented as shifts of one head that is centred on the query."""

    # for each head, the pixel on which the attention of the first query is centred
    corners: list[tuple[int, ...]]
    # for each axis, the attention of the head that is centred on the query, `(size, size)`; None if
    # it is one-hot
    probabilities: list[Tensor | None]


def is_one_hot(alpha: Float[Tensor, "N_h"], size: int) -> bool:
    """Return whether heads centred on pixels are one-hot along an axis of `size` pixels.

    In such heads, the neighbours' probabilities are cut off as tails or round to zero. With
    `size=1`, the function tests whether heads are one-hot up to rounding on images of any size,
    that is, whether the four neighbours' probabilities sum to less than the dtype's eps.
    """
    least = float(alpha.min())
    return least > tail_cutoff(alpha.dtype, size) or least >= hard_alpha(alpha.dtype)


@torch.no_grad()
def as_shifts(
    encoding: QuadraticEncoding, queries: Sequence[range], sizes: Sequence[int]
) -> Shifts | None:
    """Return the heads of an encoding as shifts of one head, or None if this would not be exact.

    `queries` are the queries kept along each axis of images of the given `sizes`. The result is
    None if the alphas differ, or if q + Delta is not a pixel of the image for some query and head.
    """
    centers = encoding.centers
    alpha = encoding.alpha
    if not bool((centers == centers.round()).all() and (alpha == alpha[0]).all()):
        return None
    starts, ends = (torch.tensor([kept[i] for kept in queries], device="cpu") for i in (0, -1))
    places = centers.long().cpu()
    last = torch.tensor(sizes, device="cpu") - 1
    if bool((places + starts < 0).any() or (places + ends > last).any()):
        return None
    probabilities: list[Tensor | None] = []
    for size in sizes:
        if is_one_hot(alpha, size):  # no matrix is needed
            probabilities.append(None)
        else:
            delta = axis_offsets(size, encoding.device).to(alpha)
            probabilities.append(softmax_without_tails(-alpha[0] * delta.square()))
    return Shifts([tuple(corner) for corner in (places + starts).tolist()], probabilities)


def average(probabilities: Sequence[Tensor | None], images: Float[Tensor, "H B W C"]) -> Tensor:
    """Return the weighted averages `(H, B, W, C)` of a head that is centred on the query.

    `probabilities` are as in `Shifts`. A sequence is passed as an image with one row.
    """
    *rows, columns = probabilities
    if rows and rows[0] is not None:
        images = banded_matmul(rows[0], images.reshape(1, len(images), -1)).view_as(images)
    if columns is not None:
        images = banded_matmul(columns, images.flatten(0, 1)).view_as(images)
    return images


def add_shifted(
    images: Float[Tensor, "H B W C"],
    matrices: Float[Tensor, "N_h G C_g O_g"],
    corners: Sequence[Sequence[int]],
    queries: Sequence[int],
    stride: Sequence[int],
) -> Float[Tensor, "{queries[0]} B {queries[1]} O"]:
    """Return the output of one-hot heads, without the bias, as a sum of shifted images.

    Each head contributes every `stride`-th pixel of the image, starting at the head's corner,
    multiplied by the head's matrix.
    """
    differentiated = any(map(_is_differentiated, (images, matrices)))
    add = _AddShifted.apply if differentiated else _AddShifted.forward  # `apply` takes 0.3 ms
    total = add(images, matrices, corners, queries, stride)
    return _by_query(total, queries[0], images.shape[1])


def _is_differentiated(X: Tensor) -> bool:
    """Return whether a derivative, or another transform of `torch.func`, of X may be asked for."""
    if not can_be_read(X) or unpack_dual(X).tangent is not None:
        return True
    return X.requires_grad and torch.is_grad_enabled()


def _by_query(total: Tensor, rows: int, batch: int) -> Float[Tensor, "Q_1 B Q_2 O"]:
    """Return a result of `_AddShifted` by queries."""
    return total.unflatten(0, (rows, batch)) if total.ndim == 3 else total.permute(2, 0, 3, 1)


class _AddShifted(torch.autograd.Function):
    """The sum of shifted images, with a gradient that is also a sum of shifted images.

    Autograd's own gradient would allocate an all-zero image for each head. The result is
    `(Q_1 B, Q_2, O)` or `(B, O, Q_1, Q_2)`, whichever the products write.
    """

    @staticmethod
    def forward(images, matrices, corners, queries, stride):
        if _uses_ranges(images, matrices):
            return _sum_of_ranges(images.permute(1, 3, 0, 2), matrices, corners, queries, stride)
        return _sum_of_products(_shifted(images.contiguous(), corners, queries, stride), matrices)

    @staticmethod
    def setup_context(ctx, inputs, output):
        images, matrices, ctx.corners, ctx.queries, ctx.stride = inputs
        ctx.save_for_backward(images, matrices)
        ctx.save_for_forward(images, matrices)

    @staticmethod
    def jvp(ctx, *tangents):
        images, matrices = ctx.saved_tensors
        of_images, of_matrices = tangents[:2]
        terms = ((of_images, matrices), (images, of_matrices))
        how = ctx.corners, ctx.queries, ctx.stride
        apply = _AddShifted.apply
        return sum(apply(X, W, *how) for X, W in terms if X is not None and W is not None)

    @staticmethod
    def vmap(info, in_dims, *inputs):
        def add(images: Tensor, matrices: Tensor) -> Tensor:
            return _AddShifted.apply(images, matrices, *inputs[2:])

        return one_by_one(add, info, in_dims[:2], *inputs[:2])

    @staticmethod
    def backward(ctx, *gradients):
        images, matrices = ctx.saved_tensors
        gradient = _by_query(gradients[0], ctx.queries[0], images.shape[1])
        of_images = of_matrices = None
        if ctx.needs_input_grad[1]:
            how = ctx.corners, ctx.queries, ctx.stride
            by_ranges = _uses_ranges(images, matrices)
            correlate = _correlate_ranges if by_ranges else _correlate
            of_matrices = correlate(images, gradient, matrices.shape[1], *how)
        if ctx.needs_input_grad[0]:
            sizes = images.shape[0], images.shape[2]
            spread, corners = _spread(gradient, ctx.corners, ctx.stride, sizes)
            of_images = add_shifted(spread, matrices.mT, corners, sizes, (1, 1))
        return of_images, of_matrices, None, None, None


def _shifted(images: Tensor, corners, queries, stride) -> list[Tensor]:
    """Return one shifted view of the images for each head: `(Q_1, B, Q_2, C)`."""
    rows, columns = (
        slice(0, (count - 1) * step + 1, step) for count, step in zip(queries, stride, strict=True)
    )
    return [images[row:][rows, :, column:][:, :, columns] for row, column in corners]


def _by_group(X: Tensor, groups: int) -> Tensor:
    """Reshape `(Q_1, B, Q_2, C)` to `(G, Q_1 B Q_2, C_g)`, one matrix per group."""
    return X.reshape(-1, groups, X.shape[-1] // groups).transpose(0, 1)


def _spread(gradient: Tensor, corners, stride, sizes) -> tuple[Tensor, list[tuple[int, int]]]:
    """Return the output's gradient with zeros between and around its pixels, and the new corners.

    Each head's part of the gradient with respect to the images starts at the head's new corner.
    """
    rows, columns = stride
    height, width = sizes
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


def _uses_ranges(images: Tensor, matrices: Tensor) -> bool:
    """Return whether the sum is computed by `_sum_of_ranges` instead of `_sum_of_products`.

    It is much faster for groups, and for a single head unless the images are channels-last. Other
    layers keep exactly the convolution's number of products. In half precision, the sum would be
    rounded once per head.
    """
    heads, groups = matrices.shape[:2]
    if matrices.element_size() == 2:
        return False
    return groups > 1 or (heads == 1 and images.stride(-1) != 1)


def _sum_of_ranges(
    images: Float[Tensor, "B C H W"], matrices: Tensor, corners, queries, stride
) -> Float[Tensor, "B O {queries[0]} {queries[1]}"]:
    """Return the sum over heads of shifted images times `(N_h, G, C_g, O_g)`, without copies.

    In an image whose rows lie one after the other, the pixels that a head's queries attend to form
    one range, with some pixels between the rows that no query attends to. Their products are
    dropped at the end. A stride splits the image into one image for each remainder.
    """
    batch = len(images)
    groups, _, outputs = matrices.shape[1:]
    ranges, width = _ranges(images, groups, corners, queries, stride)
    total = images.new_empty(batch, groups * outputs, queries[0], width)
    sums = total.view(batch * groups, outputs, queries[0] * width)[..., : ranges[0].shape[-1]]
    by_head = matrices.mT.contiguous().unsqueeze(1).expand(-1, batch, -1, -1, -1).flatten(1, 2)
    _add_products(sums, ranges, by_head)
    if width == queries[1]:
        return total
    # not a view, even if it is empty; see `_sum_of_products`
    return total[..., : queries[1]].clone(memory_format=torch.contiguous_format)


def _ranges(
    images: Float[Tensor, "B C H W"], groups: int, corners, queries, stride
) -> tuple[list[Tensor], int]:
    """Return each head's range of pixels `(B G, C_g, P)`, and the pixels from row to row."""
    phases = _phases(images, stride)  # (B, C, s_1 s_2, H / s_1, W / s_2)
    width = phases.shape[-1]
    flat = phases.flatten(3).unflatten(1, (groups, -1)).flatten(0, 1)
    count = (queries[0] - 1) * width + queries[1]
    rows, columns = stride
    ranges = []
    for row, column in corners:
        start = row // rows * width + column // columns
        phase = row % rows * columns + column % columns
        ranges.append(flat[:, :, phase, start : start + count])
    return ranges, width


def _correlate_ranges(
    images: Float[Tensor, "H B W C"],
    gradient: Float[Tensor, "Q_1 B Q_2 O"],
    groups: int,
    corners,
    queries,
    stride,
) -> Float[Tensor, "N_h G C_g O_g"]:
    """Return the gradient of the matrices, for the sum of ranges."""
    ranges, width = _ranges(images.permute(1, 3, 0, 2), groups, corners, queries, stride)
    spread = F.pad(gradient.permute(1, 3, 0, 2), (0, width - queries[1]))
    spread = spread.flatten(2).unflatten(1, (groups, -1)).flatten(0, 1)[..., : ranges[0].shape[-1]]
    by_image = torch.stack([pixels @ spread.mT for pixels in ranges])
    return by_image.unflatten(1, (-1, groups)).sum(1)


def _correlate(images: Tensor, gradient: Tensor, groups: int, corners, queries, stride) -> Tensor:
    """Return the gradient of the matrices, for the sum of products."""
    by_group = _by_group(gradient, groups)
    shifted = _shifted(images, corners, queries, stride)
    return torch.stack([_by_group(one, groups).mT @ by_group for one in shifted])


def _add_products(
    sums: Float[Tensor, "N O_g P"], ranges: list[Tensor], by_head: Float[Tensor, "N_h N O_g C_g"]
) -> None:
    """Write the sum over heads of matrices times ranges `(N, C_g, P)`, one piece at a time."""
    if by_head.shape[-1] == 1:  # a single channel is scaled
        multiply, add = torch.mul, torch.addcmul
    else:
        multiply, add = torch.bmm, torch.baddbmm
    for piece in _pieces(sums):
        total = sums[piece]
        images, _, pixels = piece
        for head, (X, matrices) in enumerate(zip(ranges, by_head, strict=True)):
            factors = matrices[images], X[images, :, pixels]
            if head:
                add(total, *factors, out=total)
            else:
                multiply(*factors, out=total)


def _pieces(sums: Float[Tensor, "N O_g P"]) -> list[tuple[slice, slice, slice]]:
    """Return the parts of sums that are written one after the other: few images, or few pixels."""
    images, outputs, pixels = sums.shape
    if sums.device.type != "cpu":
        return [(slice(None), slice(None), slice(None))]
    few_images = max(1, IN_CACHE // (outputs * pixels))
    few_pixels = max(1, IN_CACHE // outputs)
    return [
        (slice(image, image + few_images), slice(None), slice(pixel, pixel + few_pixels))
        for image in range(0, images, few_images)
        for pixel in range(0, pixels, few_pixels)
    ]


def _phases(images: Float[Tensor, "B C H W"], stride) -> Tensor:
    """Return the pixels with each remainder by the strides: `(B, C, s_1 s_2, H / s_1, W / s_2)`."""
    rows, columns = stride
    height, width = images.shape[2:]
    if height % rows or width % columns:
        images = F.pad(images, (0, -width % columns, 0, -height % rows))
    by_remainder = images.unflatten(3, (-1, columns)).unflatten(2, (-1, rows))
    return by_remainder.permute(0, 1, 3, 5, 2, 4).flatten(2, 3).contiguous()


def _sum_of_products(shifted: list[Tensor], matrices: Tensor) -> Tensor:
    """Return the sum over heads of `(Q_1, B, Q_2, C)` times `(G, C_g, O_g)`: `(Q_1 B, Q_2, O)`.

    With few channels, several heads share one product. All heads do if there are fewer pixels than
    outputs, so that copies of the pixels cost little, and in half precision, so that the sum is
    rounded only once.
    """
    rows, batch, columns, channels = shifted[0].shape
    few_pixels = rows * batch * columns < matrices.shape[1] * matrices.shape[3]
    together = max(1, CHANNELS // channels)
    if few_pixels or matrices.element_size() == 2:
        together = len(shifted)
    total = None
    for first in range(0, len(shifted), together):
        some = shifted[first : first + together]
        of_them = matrices[first : first + together]
        stacked = torch.stack(some, dim=3) if len(some) > 1 else some[0].unsqueeze(3)
        # (Q_1 B, Q_2, heads, G, C_g)
        blocks = stacked.flatten(0, 1).unflatten(-1, (matrices.shape[1], -1))
        total = _add_product(total, blocks, of_them)
    assert total is not None, "a layer has heads"
    return total  # not a view, because views from a custom function cannot be changed in place


def _add_product(total: Tensor | None, blocks: Tensor, matrices: Tensor) -> Tensor:
    """Add the product of blocks and matrices to `total` `(N, Q, O)` in place, and return the sum.

    The blocks are `(N, Q, heads, G, C_g)` and the matrices are `(heads, G, C_g, O_g)`.
    """
    if matrices.shape[1] == 1:  # one group: a product of matrices for each row of queries
        rows = blocks.flatten(2)
        matrix = matrices.flatten(0, 2)
        if total is None:
            return rows @ matrix  # contiguous rows are one matrix
        return torch.baddbmm(total, rows, matrix.expand(len(blocks), -1, -1), out=total)
    product = torch.einsum("nqhgc,hgco->nqgo", blocks, matrices).flatten(2)
    return product.clone() if total is None else total.add_(product)
