"""Pixels and the offsets between them (sections 2.2 and 2.3 of the paper).

Letters: n spatial dimensions (1 for sequences, 2 for images), T pixels. Rows come before columns.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .shapes import Int


def pixels(*sizes: int, device: torch.device | None = None) -> Int[Tensor, "T n"]:
    """Return all pixel positions of a grid in row-major order: `(T, n)`, int64.

    `pixels(H, W)` lists the `T = H * W` positions p = (i, j) of an image, and `pixels(T)` those of
    a sequence.
    """
    if not sizes or any(size < 1 for size in sizes):
        raise ValueError(f"pixels() got the sizes {sizes}, expected one or more positive integers")
    return torch.cartesian_prod(*(torch.arange(size, device=device) for size in sizes)).reshape(
        -1, len(sizes)
    )


def offset_set(kernel_size: Sequence[int], dilation: int | Sequence[int] = 1) -> Int[Tensor, "T n"]:
    """Return a kernel's offsets Delta_K in row-major order: `(K_1 * ... * K_n, n)`, int64.

    Along an axis with K kernel pixels, the offsets are `-((K - 1) // 2), ..., K // 2`, multiplied
    by the dilation. For odd K, this is the paper's set. For even K, which the paper does not
    consider, it is the set that torch uses for `padding="same"` without dilation.
    """
    kernel_size = tuple(kernel_size)
    if isinstance(dilation, int):
        dilation = (dilation,) * len(kernel_size)
    axes = [
        d * torch.arange(-((k - 1) // 2), k // 2 + 1)
        for k, d in zip(kernel_size, dilation, strict=True)
    ]
    return torch.cartesian_prod(*axes).reshape(-1, len(axes))


def relative_offsets(*sizes: int, device: torch.device | None = None) -> Int[Tensor, "*Q_K n"]:
    """Return the offset k - q of each pair of pixels: `(*sizes, *sizes, n)`, query first, int64."""
    position = pixels(*sizes, device=device)
    delta = position[None, :, :] - position[:, None, :]  # (T, T, n)
    return delta.reshape(*sizes, *sizes, len(sizes))


def axis_offsets(size: int, device: torch.device | None = None) -> Int[Tensor, "{size} {size}"]:
    """Return the offsets k - q along one axis: `(size, size)`, query first, int64."""
    return relative_offsets(size, device=device).squeeze(-1)


def all_offsets(*sizes: int, device: torch.device | None = None) -> Int[Tensor, "*offsets n"]:
    """Return all offsets between grid pixels in ascending order: `(2H - 1, 2W - 1, n)`, int64."""
    extents = [2 * size - 1 for size in sizes]
    ends = torch.tensor(sizes, device=device) - 1
    return pixels(*extents, device=device).reshape(*extents, len(sizes)) - ends
