"""Theorem 1 and its proof as code: a self-attention layer that computes a given convolution.

Theorem 1: a multi-head self-attention layer with N_h heads of dimension D_h, D_out outputs and a
relative positional encoding of dimension D_p >= 3 can express any convolution with a kernel of
sqrt(N_h) x sqrt(N_h) pixels and min(D_h, D_out) output channels.

Proof: `lemma_1` chooses the values for heads that each attend to one offset, as in equation (10):
softmax(A^(h))_qk is 1 if k = q + Delta^(h), and 0 otherwise. `lemma_2` chooses scores whose softmax
satisfies (10) up to any given error. `convolution_by_attention` applies the resulting layer,
equation (4), to an image.

Error bounds: `softness_bound` bounds the error for a finite sharpness alpha of the heads,
`sufficient_alpha` returns an alpha for a given error, and `hard_alpha` returns an alpha for which
floating-point attention satisfies (10) exactly.

Letters: a kernel W is `(K_1, K_2, D_in, D_out)`, indexed by offset as in `attention.convolution`,
N_h = K_1 K_2 heads, H x W pixels, T pixels of the padded image.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import multi_head_self_attention
from .encodings import quadratic_encoding, quadratic_target
from .grid import offset_set, relative_offsets
from .shapes import Float

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class HeadParameters(NamedTuple):
    """The parameters of the layer in Theorem 1, which has one head per kernel offset."""

    centers: Tensor  # Delta^(h), (N_h, 2), in pixels
    v: Tensor  # v^(h) of equation (9), (N_h, 3)
    W_val: Tensor  # (N_h, D_in, D_h), with D_h = D_out
    W_out: Tensor  # (N_h * D_h, D_out)


def lemma_1(W: Float[Tensor, "K_1 K_2 D_in D_out"]) -> tuple[Tensor, Tensor]:
    """Return `W_val` and `W_out` for heads that each attend to one offset of the kernel.

    Under equation (10), the layer's output at q is the sum over heads of X_{q + Delta^(h)} W^(h),
    where W^(h) = W_val^(h) W_out^(h) (equation 11). This sum is the convolution if W^(h) is the
    kernel's matrix at the offset Delta^(h). Here, W_val^(h) is that matrix and W_out^(h) is the
    identity, so `W_val` is `(N_h, D_in, D_out)` and `W_out` is `(N_h * D_out, D_out)`.
    """
    W_val = W.flatten(0, 1)
    return W_val, torch.eye(W.shape[-1]).to(W).repeat(len(W_val), 1)


def lemma_2(centers: Float[Tensor, "N_h 2"], alpha: float) -> Float[Tensor, "N_h 3"]:
    """Return vectors v^(h) that make each head h attend to the offset Delta^(h). Equation (9).

    The score of an offset delta, v^(h) . r_delta, is -alpha ||delta - Delta^(h)||^2 up to a
    constant. The larger alpha is, the closer the softmax is to the one-hot attention of equation
    (10).
    """
    return quadratic_target(centers, torch.full_like(centers[:, 0], alpha))


def heads_for(W: Float[Tensor, "K_1 K_2 D_in D_out"], alpha: float | None = None) -> HeadParameters:
    """Return parameters for which self-attention computes the convolution with kernel W.

    There is one head per offset. The default `alpha` is `hard_alpha(W.dtype)`.
    """
    centers = offset_set(W.shape[:2]).to(W)
    v = lemma_2(centers, hard_alpha(W.dtype) if alpha is None else alpha)
    return HeadParameters(centers, v, *lemma_1(W))


def quadratic_scores(
    v: Float[Tensor, "N_h 3"], height: int, width: int
) -> Float[Tensor, "N_h {height}*{width} {height}*{width}"]:
    """Return the scores v^(h) . r_delta for all pairs of pixels. Equation (9), Lemma 2.

    They are the last term of equation (8); W_qry = W_key = 0 removes the other terms. For integer
    centres and alpha, they are integers, exact in float32 up to 2^24 and in float64 up to 2^53.
    """
    r = quadratic_encoding(relative_offsets(height, width).to(v))  # (H, W, H, W, 3)
    return torch.einsum("hp,qkp->hqk", v, r.flatten(2, 3).flatten(0, 1))


def convolution_by_attention(
    X: Float[Tensor, "*B H W D_in"],
    W: Float[Tensor, "K_1 K_2 D_in D_out"],
    b: Float[Tensor, "D_out"] | None = None,
    alpha: float | None = None,
) -> Float[Tensor, "*B H W D_out"]:
    """Return the zero-padded convolution of an image, computed by self-attention. Theorem 1.

    The layer has the parameters from `heads_for` and the output bias b. Equation (10) cannot hold
    for a border query whose target pixel is missing. The image is therefore padded, so that every
    pixel of X is an interior query, and the output is cropped.
    """
    heads = heads_for(W, alpha)
    return on_padded_image(X, W, b, lambda *sizes: quadratic_scores(heads.v, *sizes))


def on_padded_image(
    X: Float[Tensor, "*B H W D_in"],
    W: Float[Tensor, "K_1 K_2 D_in D_out"],
    b: Float[Tensor, "D_out"] | None,
    scores: Callable[[int, int], Tensor],
) -> Float[Tensor, "*B H W D_out"]:
    """Apply a layer with the values of `lemma_1` to the padded image, and crop its output.

    `scores` returns the heads' scores `(N_h, T, T)` on an image of the given height and width.
    """
    centers = offset_set(W.shape[:2])
    height, width = X.shape[-3:-1]
    top, left = (-centers.amin(dim=0)).tolist()
    bottom, right = centers.amax(dim=0).tolist()
    padded = F.pad(X, (0, 0, left, right, top, bottom))
    sizes = padded.shape[-3:-1]
    Y = multi_head_self_attention(scores(*sizes), padded.flatten(-3, -2), *lemma_1(W), b)
    return Y.unflatten(-2, sizes)[..., top : top + height, left : left + width, :]


def hard_alpha(dtype: torch.dtype) -> int:
    """Return the smallest integer alpha for which a neighbour's weight `e^-alpha` rounds to zero.

    A head whose centre is a pixel of the image then has one-hot attention, so Lemma 2 holds without
    taking a limit. A positive number rounds to zero if it is less than s / 2, where s is the
    smallest subnormal number, so alpha must exceed ln 2 - ln s.

    Args:
        dtype: The dtype of the attention, one of torch's floating-point types of 16 bits or more.

    Returns:
        The value of alpha, in inverse squared pixels.

    Raises:
        TypeError: If the dtype is any other.

    Example:
        >>> import attnconv, torch
        >>> attnconv.hard_alpha(torch.float32)
        104
    """
    if dtype not in DTYPES:
        raise TypeError(f"got {dtype}, expected one of {', '.join(map(str, DTYPES))}")
    info = torch.finfo(dtype)
    log_smallest = math.log(info.smallest_normal) + math.log(info.eps)  # subnormal
    return math.floor(math.log(2) - log_smallest) + 1


def softness_bound(
    W: Float[Tensor, "*K D_in D_out"], alpha: float, largest: float
) -> Float[Tensor, "D_out"]:
    """Return a bound on the error of each output channel of `convolution_by_attention`.

    The bound, in float64, is 8 exp(-alpha) times `largest` times the sum of the channel's absolute
    weights. It holds for images whose values, including the padding, are at most `largest` in
    absolute value, and it ignores rounding. The proof (`theorem_1_gap` in proofs/) uses two facts:
    a head's attention to pixels other than its centre sums to at most 4 exp(-alpha), and moving a
    mass m changes the head's average by at most 2 m `largest`. Raises ValueError unless alpha,
    `largest` and the kernel are finite and alpha and `largest` are nonnegative.
    """
    for name, value in {"alpha": alpha, "largest": largest}.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} is {value!r}, expected a finite number, 0 or more")
    if not W.isfinite().all():
        raise ValueError("the kernel has infinite or NaN weights, expected finite ones")
    norms = W.detach().double().abs().flatten(0, -2).sum(dim=0)
    return 8 * math.exp(-alpha) * largest * norms


def sufficient_alpha(W: Float[Tensor, "*K D_in D_out"], gap: float, largest: float) -> float:
    """Return an alpha for which the error of `convolution_by_attention` is less than `gap`.

    The bound holds for every output channel. See `softness_bound` for the other arguments. Any
    larger alpha also suffices (`theorem_1_alpha` in proofs/). The result is 0 for an all-zero
    kernel. Raises ValueError unless `gap` > 0, `largest` >= 0 and all arguments are finite.
    """
    if not 0 < gap < math.inf:
        raise ValueError(f"gap is {gap!r}, expected a finite number above 0")
    return math.log1p(float(softness_bound(W, 0.0, largest).max()) / gap)
