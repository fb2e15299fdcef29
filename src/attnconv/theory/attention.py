"""Literal implementations of equations (1) to (8) of the paper, with dense maps in any dtype.

All other implementations are checked against these functions.

Letters: B batch, T tokens, H x W pixels, N_h heads. Dimensions: D_in (input), D_out (output), D_h
(head), D_k (key), D_p (position). In scores and attention maps, query axes precede key axes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .grid import offset_set
from .shapes import Float

SCORES = "...qd,...kd->...qk"


def attention_scores(
    X: Float[Tensor, "*#B T D_in"],
    W_qry: Float[Tensor, "*#B D_in D_k"],
    W_key: Float[Tensor, "*#B D_in D_k"],
    P: Float[Tensor, "*#B T D_in"] | None = None,
) -> Float[Tensor, "*#B T T"]:
    """Return the attention scores A = (X + P) W_qry W_key^T (X + P)^T. Equation (3).

    Without P, the scores are X W_qry W_key^T X^T, as in equation (2).
    """
    X = X if P is None else X + P
    return torch.einsum(SCORES, X @ W_qry, X @ W_key)


def self_attention(
    X: Float[Tensor, "*B T D_in"],
    W_qry: Float[Tensor, "D_in D_k"],
    W_key: Float[Tensor, "D_in D_k"],
    W_val: Float[Tensor, "D_in D_h"],
    P: Float[Tensor, "*#B T D_in"] | None = None,
) -> Float[Tensor, "*B T D_h"]:
    """Return softmax(A) X W_val for one head, with A from `attention_scores`. Equation (1)."""
    return attention_scores(X, W_qry, W_key, P).softmax(dim=-1) @ X @ W_val


def multi_head_self_attention(
    A: Float[Tensor, "*#B N_h T T"],
    X: Float[Tensor, "*#B T D_in"],
    W_val: Float[Tensor, "N_h D_in D_h"],
    W_out: Float[Tensor, "N_h*D_h D_out"],
    b_out: Float[Tensor, "D_out"] | None = None,
) -> Float[Tensor, "*#B T D_out"]:
    """Return concat_h [softmax(A^(h)) X W_val^(h)] W_out + b_out. Equation (4)."""
    heads = A.softmax(dim=-1) @ X.unsqueeze(-3) @ W_val  # (..., N_h, T, D_h)
    concatenated = heads.movedim(-3, -2).flatten(-2)  # (..., T, N_h * D_h)
    output = concatenated @ W_out
    return output if b_out is None else output + b_out


def convolution(
    X: Float[Tensor, "*B H W D_in"],
    W: Float[Tensor, "K_1 K_2 D_in D_out"],
    b: Float[Tensor, "D_out"] | None = None,
) -> Float[Tensor, "*B H W D_out"]:
    """Return the zero-padded convolution of an image with kernel W, plus the bias b. Equation (5).

    W is indexed by offset, in the order of `offset_set`.
    """
    height, width = X.shape[-3:-1]
    kernel_size = W.shape[:2]
    offsets = offset_set(kernel_size).tolist()
    before = [-min(s[axis] for s in offsets) for axis in (0, 1)]
    after = [max(s[axis] for s in offsets) for axis in (0, 1)]
    padded = F.pad(X, (0, 0, before[1], after[1], before[0], after[0]))
    output = X.new_zeros(*X.shape[:-1], W.shape[-1])
    for (delta_1, delta_2), W_delta in zip(offsets, W.flatten(0, 1), strict=True):
        row, column = before[0] + delta_1, before[1] + delta_2
        output = output + padded[..., row : row + height, column : column + width, :] @ W_delta
    return output if b is None else output + b


def image_self_attention(
    A: Float[Tensor, "*B H W H W"],
    X: Float[Tensor, "*B H W D_in"],
    W_val: Float[Tensor, "D_in D_h"],
) -> Float[Tensor, "*B H W D_h"]:
    """Return sum_k softmax(A_q)_k X_k W_val of one head for each query pixel q. Equation (6)."""
    return torch.einsum("...ijkl,...kld->...ijd", spatial_softmax(A), X) @ W_val


def spatial_softmax(A: Float[Tensor, "*B H W"]) -> Float[Tensor, "*B H W"]:
    """Return the softmax of the scores over all key pixels, i.e. over the last two dimensions."""
    return A.flatten(-2).softmax(dim=-1).reshape(A.shape)


def absolute_score_terms(
    X: Float[Tensor, "*B T D_in"],
    P: Float[Tensor, "*#B T D_in"],
    W_qry: Float[Tensor, "D_in D_k"],
    W_key: Float[Tensor, "D_in D_k"],
) -> tuple[
    Float[Tensor, "*B T T"],
    Float[Tensor, "*B T T"],
    Float[Tensor, "*B T T"],
    Float[Tensor, "*#B T T"],
]:
    """Return the four terms of the scores with an absolute encoding P. Equation (7).

    Their sum is the result of `attention_scores` with P. In order, they are content-content,
    content-position, position-content and position-position, with the query named first.
    """
    X_qry, P_qry = X @ W_qry, P @ W_qry
    X_key, P_key = X @ W_key, P @ W_key
    return (
        torch.einsum(SCORES, X_qry, X_key),
        torch.einsum(SCORES, X_qry, P_key),
        torch.einsum(SCORES, P_qry, X_key),
        torch.einsum(SCORES, P_qry, P_key),
    )


def relative_score_terms(
    X: Float[Tensor, "*B T D_in"],
    r: Float[Tensor, "T T D_p"],
    W_qry: Float[Tensor, "D_k D_in"],
    W_key: Float[Tensor, "D_k D_in"],
    W_key_hat: Float[Tensor, "D_k D_p"],
    u: Float[Tensor, "D_k"],
    v: Float[Tensor, "D_k"],
) -> tuple[
    Float[Tensor, "*B T T"], Float[Tensor, "*B T T"], Float[Tensor, "*B 1 T"], Float[Tensor, "T T"]
]:
    """Return the four terms of one head's relative scores, in the paper's order. Equation (8).

    The terms broadcast, and their sum is A^rel. As in the equation, each row of X is a token, but
    the weights act on column vectors. `r` contains r_delta for every query-key pair.
    """
    X_qry, X_key, r_key = X @ W_qry.mT, X @ W_key.mT, r @ W_key_hat.mT
    return (
        torch.einsum(SCORES, X_qry, X_key),
        torch.einsum("...qd,qkd->...qk", X_qry, r_key),
        (X_key @ u).unsqueeze(-2),
        r_key @ v,
    )
