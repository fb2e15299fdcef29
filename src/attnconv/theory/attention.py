"""Equations (1) to (8) of the paper, literally: dense, any dtype. The oracle that everything else
is checked against.

Letters: B batch, T tokens, H x W pixels, N_h heads, D_in, D_out, D_h (head), D_k (key) and D_p
(position) dimensions. Tokens are `(..., T, D)`, images `(..., H, W, D)`. Attention over an image is
`(..., H, W, H, W)`: query, then key.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .grid import shift_set

SCORES = "...qd,...kd->...qk"


def attention_scores(X: Tensor, W_qry: Tensor, W_key: Tensor, P: Tensor | None = None) -> Tensor:
    """Attention scores A = (X + P) W_qry W_key^T (X + P)^T: `(..., T, T)`. Equations (2), (3).

    X and P are `(..., T, D_in)`, W_qry and W_key `(D_in, D_k)`.
    """
    X = X if P is None else X + P
    return torch.einsum(SCORES, X @ W_qry, X @ W_key)


def self_attention(
    X: Tensor, W_qry: Tensor, W_key: Tensor, W_val: Tensor, P: Tensor | None = None
) -> Tensor:
    """softmax(A) X W_val for one head: `(..., T, D_h)`. Equation (1), W_val being `(D_in, D_h)`."""
    return attention_scores(X, W_qry, W_key, P).softmax(dim=-1) @ X @ W_val


def multi_head_self_attention(
    A: Tensor, X: Tensor, W_val: Tensor, W_out: Tensor, b_out: Tensor | None = None
) -> Tensor:
    """concat over heads of softmax(A^(h)) X W_val^(h), times W_out, plus b_out: `(..., T, D_out)`.
    Equation (4).

    A `(..., N_h, T, T)` scores, X `(..., T, D_in)`, W_val `(N_h, D_in, D_h)`, W_out
    `(N_h * D_h, D_out)`, b_out `(D_out,)`.
    """
    heads = A.softmax(dim=-1) @ X.unsqueeze(-3) @ W_val  # (..., N_h, T, D_h)
    concatenated = heads.movedim(-3, -2).flatten(-2)  # (..., T, N_h * D_h)
    output = concatenated @ W_out
    return output if b_out is None else output + b_out


def convolution(X: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """The convolution of an image, zero outside it: `(..., H, W, D_out)`. Equation (5).

    X is `(..., H, W, D_in)`; W `(K_1, K_2, D_in, D_out)` is indexed by shift, in the order of
    `shift_set`.
    """
    height, width = X.shape[-3:-1]
    kernel_size = W.shape[:2]
    shifts = shift_set(kernel_size).tolist()
    before = [-min(s[axis] for s in shifts) for axis in (0, 1)]
    after = [max(s[axis] for s in shifts) for axis in (0, 1)]
    padded = F.pad(X, (0, 0, before[1], after[1], before[0], after[0]))
    output = X.new_zeros(*X.shape[:-1], W.shape[-1])
    for (delta_1, delta_2), W_delta in zip(shifts, W.flatten(0, 1), strict=True):
        row, column = before[0] + delta_1, before[1] + delta_2
        output = output + padded[..., row : row + height, column : column + width, :] @ W_delta
    return output if b is None else output + b


def image_self_attention(A: Tensor, X: Tensor, W_val: Tensor) -> Tensor:
    """sum over key pixels k of softmax(A_q)_k X_k W_val: `(..., H, W, D_h)`. Equation (6).

    A `(..., H, W, H, W)` scores of one head, X `(..., H, W, D_in)`, W_val `(D_in, D_h)`.
    """
    return torch.einsum("...ijkl,...kld->...ijd", spatial_softmax(A), X) @ W_val


def spatial_softmax(A: Tensor) -> Tensor:
    """The softmax of scores `(..., H, W, H, W)` over the key pixels, its last two dimensions."""
    return A.flatten(-2).softmax(dim=-1).reshape(A.shape)


def absolute_score_terms(
    X: Tensor, P: Tensor, W_qry: Tensor, W_key: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four terms of equation (7), each `(..., T, T)`: content-content, content-position,
    position-content, position-position.

    Their sum is `attention_scores(X, W_qry, W_key, P)`.
    """
    X_qry, X_key, P_qry, P_key = X @ W_qry, X @ W_key, P @ W_qry, P @ W_key
    return (
        torch.einsum(SCORES, X_qry, X_key),
        torch.einsum(SCORES, X_qry, P_key),
        torch.einsum(SCORES, P_qry, X_key),
        torch.einsum(SCORES, P_qry, P_key),
    )


def relative_score_terms(
    X: Tensor, r: Tensor, W_qry: Tensor, W_key: Tensor, W_key_hat: Tensor, u: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four terms of equation (8) for one head, in the paper's order; their sum is A^rel.

    As in the equation, X holds row vectors and the weights act on columns: X `(..., T, D_in)`, r
    `(T, T, D_p)` holds r_delta for each query and key, W_qry and W_key are `(D_k, D_in)`, W_key_hat
    `(D_k, D_p)`, u and v `(D_k,)`. Terms one and two are `(..., T, T)`, three `(..., 1, T)` and
    four `(T, T)`; they broadcast.
    """
    X_qry, X_key, r_key = X @ W_qry.mT, X @ W_key.mT, r @ W_key_hat.mT
    return (
        torch.einsum(SCORES, X_qry, X_key),
        torch.einsum("...qd,qkd->...qk", X_qry, r_key),
        (X_key @ u).unsqueeze(-2),
        r_key @ v,
    )
