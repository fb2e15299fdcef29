"""The start of queries and keys in structured initialisation (Zheng et al., 2025).

Each head is to attend to one offset, from the position encoding P alone. Queries and keys are
therefore chosen so that the scores P W_query^T W_key P^T of the normalised encoding come as close
to S as their rank D_h allows, where S is 1 at each query's offset and 0 elsewhere. The part of S
that the leading D_h directions of P can express is U U^T S U U^T, where U (N, D_h) spans these
directions.

Written from these equations. The constants 7 and 18 (`IMPULSE_SCALE`), the choice of directions and
the assignment of heads to the nine offsets of a 3 x 3 kernel are those of the published code; they
were not checked against the text of the paper, whose abstract speaks of random impulse filters.

There are five differences from the code. It adds noise below one per cent to S; here there is none.
It draws the noise of the mimetic values from a uniform distribution; here it is normal. It keeps
the class token; our network has none. It is trained with another recipe. And its ViT-Tiny has heads
of 64 dimensions; ours have 12 dimensions for 64 tokens, so that they express only part of S.

Letters: N tokens, N_h heads, D hidden dimension, D_h dimension of a head.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

#: Frobenius norm of each head's queries, and of its keys, in the published code.
QUERY_KEY_NORM = 7.0


@torch.no_grad()
def start_impulse(model: Any, offsets: list[Tensor]) -> None:
    """Let the heads of a vision transformer with absolute positions attend to whole offsets.

    `offsets` `(N_h, 2)` is given for each layer. Only the weights of queries and keys change.
    """
    side = model.patch_embed.grid_size[0]
    for block, of_heads in zip(model.blocks, offsets, strict=True):
        dim = block.attn.head_dim
        queries, keys = zip(
            *(impulse_factors(model.pos_embed[0], offset, side, dim) for offset in of_heads),
            strict=True,
        )
        weight = block.attn.qkv.weight
        weight[: 2 * model.embed_dim] = torch.cat([*queries, *keys])


def impulse_factors(encoding: Tensor, offset: Tensor, side: int, dim: int) -> tuple[Tensor, Tensor]:
    """Return the weights of a head's queries and keys, `(D_h, D)` each, for one whole offset.

    `encoding` `(N, D)` is the position encoding of `side` x `side` tokens. See the module for the
    equations. Raises ValueError if `dim` exceeds the rank of the normalised encoding.
    """
    P = F.layer_norm(encoding, encoding.shape[-1:])
    U, S, Vh = torch.linalg.svd(P, full_matrices=False)
    if dim > (rank := int(torch.linalg.matrix_rank(P))):
        raise ValueError(f"got heads of {dim} dimensions, expected at most {rank}, the rank of P")
    inverse = Vh[:dim].T / S[:dim] @ U[:, :dim].T  # (D, N)
    left, middle, right = torch.linalg.svd(inverse @ shift_matrix(offset, side) @ inverse.T)
    root = middle[:dim].sqrt()
    factors = root * left[:, :dim], root * right[:dim].T
    queries, keys = (QUERY_KEY_NORM * (factor / factor.norm()).T for factor in factors)
    return queries, keys


def shift_matrix(offset: Tensor, side: int) -> Tensor:
    """Return S `(N, N)`: 1 where the key is at the query's offset, 0 elsewhere."""
    axis = torch.arange(side)
    tokens = torch.cartesian_prod(axis, axis)  # (N, 2), rows and columns
    return ((tokens - tokens[:, None]) == offset).all(dim=-1).float()
