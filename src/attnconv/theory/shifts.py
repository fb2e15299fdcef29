"""One-hot heads without their zeros: such a head is a shift of the image (Lemma 1).

Letters: B batch, C channels, H x W pixels, Q queries of them, N_h heads, G groups.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .shapes import Float

CHANNELS = 64  # at least so many enter a product of matrices: fewer would leave it half empty


def first_keys(maps: Float[Tensor, "N_h Q K"], stride: int) -> list[int] | None:
    """Of heads whose queries attend to one key each, `stride` apart: by head the first query's key.
    None unless all heads are so, exactly, in their dtype."""
    keys = maps.argmax(dim=-1) - stride * torch.arange(maps.shape[1], device=maps.device)
    one_key = (maps.amax(dim=-1) == 1).all() and maps.count_nonzero() == keys.numel()
    if not bool(one_key and (keys == keys[:, :1]).all()):
        return None
    return keys[:, 0].tolist()


def add_shifted(
    images: Float[Tensor, "H B W C"],
    corners: Sequence[Sequence[int]],
    queries: Sequence[int],
    stride: Sequence[int],
    matrices: Float[Tensor, "N_h G C_g O_g"],
) -> Float[Tensor, "{queries[0]} B {queries[1]} O"]:
    """What one-hot attention computes: the sum over the heads of the image from a head's corner on,
    every `stride`-th pixel, times its matrix. Of images with few channels some heads at a time; in
    half precision all, which rounds once."""
    rows, columns = (_places(count, step) for count, step in zip(queries, stride, strict=True))
    seen = [images[row:][rows, :, column:][:, :, columns] for row, column in corners]
    groups, together = matrices.shape[1], max(1, CHANNELS // images.shape[-1])
    together = len(seen) if images.element_size() == 2 else together
    total = None
    for first in range(0, len(seen), together):
        some, of_them = seen[first : first + together], matrices[first : first + together]
        shifted = torch.stack(some, dim=3) if len(some) > 1 else some[0].unsqueeze(3)
        blocks = shifted.flatten(0, 1).unflatten(-1, (groups, -1))  # (Q_1 B, Q_2, heads, G, C_g)
        total = _add_product(total, blocks, of_them)
    assert total is not None, "a layer has heads"
    return total.unflatten(0, (queries[0], -1))


def _places(count: int, step: int) -> slice:
    return slice(0, (count - 1) * step + 1, step)


def _add_product(total: Tensor | None, blocks: Tensor, matrices: Tensor) -> Tensor:
    """`total` `(N, Q, O)` plus the blocks `(N, Q, heads, G, C_g)` times `(heads, G, C_g, O_g)`."""
    if matrices.shape[1] == 1:  # one group: a product of matrices for each row of queries
        seen, matrix = blocks.flatten(2), matrices.flatten(0, 2).expand(len(blocks), -1, -1)
        return torch.bmm(seen, matrix) if total is None else torch.baddbmm(total, seen, matrix)
    product = torch.einsum("nqhgc,hgco->nqgo", blocks, matrices).flatten(2)
    return product if total is None else total + product
