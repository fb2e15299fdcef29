"""Theorem 1 and its proof as code: a self-attention layer that computes a given convolution.

`heads_for` chooses the layer's parameters (Lemma 1 the values, Lemma 2 the scores), and
`convolution_by_attention` runs that layer densely, equation (4), on an image. How far a layer with
finite alpha is from the convolution: `softness_bound`; which alpha suffices: `sufficient_alpha`;
from which alpha on floating-point numbers show no difference: `hard_alpha`.

Letters: a kernel W is `(K_1, K_2, D_in, D_out)`, indexed by shift as in `attention.convolution`,
N_h = K_1 K_2 heads, H x W pixels, T of them in the padded image.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import multi_head_self_attention
from .encodings import quadratic_encoding, quadratic_target
from .grid import relative_shifts, shift_set
from .shapes import Float

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Heads(NamedTuple):
    """The parameters of the self-attention layer in Theorem 1, one head per shift of the kernel."""

    centers: Tensor  # Delta^(h), (N_h, 2), in pixels
    v: Tensor  # v^(h) of equation (9), (N_h, 3)
    W_val: Tensor  # (N_h, D_in, D_h), with D_h = D_out
    W_out: Tensor  # (N_h * D_h, D_out)


def heads_for(W: Float[Tensor, "K_1 K_2 D_in D_out"], alpha: float | None = None) -> Heads:
    """Return the parameters with which self-attention is the convolution with kernel W.

    Head h attends to the pixel at the shift Delta^(h), the more sharply the larger alpha is
    (Lemma 2, equation (9)), and applies the kernel's matrix at that shift,
    W^(h) = W_val^(h) W_out^(h) = W_{Delta^(h)} (Lemma 1, equation (11)). Without alpha,
    `hard_alpha` of the dtype is taken.
    """
    alpha = hard_alpha(W.dtype) if alpha is None else alpha
    centers = shift_set(W.shape[:2]).to(W)  # one head per shift
    v = quadratic_target(centers, torch.full_like(centers[:, 0], alpha))
    W_val = W.flatten(0, 1)
    W_out = torch.eye(W.shape[-1]).to(W).repeat(len(centers), 1)  # an identity for each head
    return Heads(centers, v, W_val, W_out)


def quadratic_scores(
    v: Float[Tensor, "N_h 3"], height: int, width: int
) -> Float[Tensor, "N_h {height}*{width} {height}*{width}"]:
    """Return the scores v^(h) . r_delta of all pairs of pixels. Equation (9), Lemma 2.

    They are the last term of equation (8); W_qry = W_key = 0 removes the others. For whole-numbered
    centres and alpha they are whole numbers, exact in float32 up to 2^24 and in float64 up to 2^53.
    """
    r = quadratic_encoding(relative_shifts(height, width).to(v))  # (H, W, H, W, 3)
    return torch.einsum("hp,qkp->hqk", v, r.flatten(2, 3).flatten(0, 1))


def convolution_by_attention(
    X: Float[Tensor, "*B H W D_in"],
    W: Float[Tensor, "K_1 K_2 D_in D_out"],
    b: Float[Tensor, "D_out"] | None = None,
    alpha: float | None = None,
) -> Float[Tensor, "*B H W D_out"]:
    """Return the convolution of an image, zero outside it, computed by self-attention. Theorem 1.

    Pad, attend, crop: at a border query (10) cannot hold, as the pixel to attend to is missing. In
    the padded image each pixel of X is an interior query.
    """
    heads = heads_for(W, alpha)
    height, width = X.shape[-3:-1]
    top, left = (-heads.centers.amin(dim=0)).int().tolist()
    bottom, right = heads.centers.amax(dim=0).int().tolist()
    padded = F.pad(X, (0, 0, left, right, top, bottom))
    sizes = padded.shape[-3:-1]
    A = quadratic_scores(heads.v, *sizes)
    Y = multi_head_self_attention(A, padded.flatten(-3, -2), heads.W_val, heads.W_out, b)
    return Y.unflatten(-2, sizes)[..., top : top + height, left : left + width, :]


def hard_alpha(dtype: torch.dtype) -> int:
    """Return the smallest whole alpha at which a neighbour's weight `e^-alpha` rounds to zero.

    The attention of a head with a whole-numbered centre inside the image is then one-hot in
    `dtype`: Lemma 2 without the limit.
    """
    if dtype not in DTYPES:
        raise TypeError(f"got {dtype}, expected one of {', '.join(map(str, DTYPES))}")
    info = torch.finfo(dtype)
    log_smallest = math.log(info.smallest_normal) + math.log(info.eps)  # subnormal
    return math.floor(math.log(2) - log_smallest) + 1


def softness_bound(
    W: Float[Tensor, "*K D_in D_out"], alpha: float, largest: float
) -> Float[Tensor, "D_out"]:
    """Return a bound on how far each output channel is from the convolution with kernel W.

    8 exp(-alpha) times `largest` times the sum of the channel's absolute weights, float64, for
    images whose pixels, padding included, are at most `largest` in size; rounding is left out.
    `theorem_1_gap` in proofs/.
    """
    norms = W.detach().double().abs().flatten(0, -2).sum(dim=0)
    return 8 * math.exp(-alpha) * largest * norms


def sufficient_alpha(W: Float[Tensor, "*K D_in D_out"], gap: float, largest: float) -> float:
    """Return an alpha from which on every output is less than `gap` > 0 from the convolution's.

    The arguments are those of `softness_bound`; 0 for a kernel of zeros. `theorem_1_alpha` in
    proofs/.
    """
    if not gap > 0:
        raise ValueError(f"gap is {gap!r}, expected a positive number")
    return math.log1p(float(softness_bound(W, 0.0, largest).max()) / gap)
