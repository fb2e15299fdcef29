"""Theorem 1 for rotary encodings: heads whose scores are sums of cosines.

A rotary encoding (Su et al., 2021) turns each pair of entries of a query or key by an angle that is
linear in the pixel's position. Queries and keys that are the same at every pixel then have scores
that depend on the offset alone. `rotary_biases` chooses them so that the score of the offset delta
is

    A(delta) = s sum_j cos(theta_j . (delta - Delta)),

with its maximum at the head's offset Delta. It is the only maximum between the pixels of an H x W
image if no other offset u between two pixels is a common period: theta_j . u is a multiple of
2 pi for every j. The scale s makes the score of every other pixel lower by at least alpha, as in
Lemma 2. The paper does not state this theorem; the proof is in proofs/Rotary.v.

Letters: a frequency vector theta_j per pair, in radians per pixel, D_k = 2 J entries, N_h heads,
H x W pixels, T = H W. An encoding is axial if each theta_j has one component other than 0.
"""

import math

import torch
from torch import Tensor

from .attention import SCORES
from .grid import all_offsets, offset_set, pixels, relative_offsets
from .shapes import Float, Shaped
from .theorem1 import hard_alpha, on_padded_image

#: Below this share of its largest possible value, 2 J, a gap counts as 0.
RESONANCE = 1e-12


def axial_frequencies(dim: int, base: float = 100.0) -> Float[Tensor, "J 2"]:
    """Return the usual frequencies: `base^(-4 j / dim)`, for the rows, then for the columns.

    `dim` is D_k, a positive multiple of 4. float64, in radians per pixel.
    """
    if dim < 4 or dim % 4:
        raise ValueError(
            f"dim is {dim}, expected a positive multiple of 4 (two entries for each pair, and the"
            f" same number of pairs for rows and columns); pass {max(4, 4 * round(dim / 4))}, for"
            " example"
        )
    of_axis = base ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    zeros = torch.zeros_like(of_axis)
    rows, columns = torch.stack([of_axis, zeros], dim=1), torch.stack([zeros, of_axis], dim=1)
    return torch.cat([rows, columns])


def rotate(
    x: Float[Tensor, "*#B D_k"],
    position: Shaped[Tensor, "*#B 2"],
    frequencies: Float[Tensor, "J 2"],
) -> Float[Tensor, "*B D_k"]:
    """Turn the pairs (x_0, x_1), (x_2, x_3), ... of x by the angles theta_j . position.

    Raises ValueError unless x has two entries for each frequency vector.
    """
    if x.shape[-1] != 2 * len(frequencies):
        raise ValueError(
            f"the queries or keys have {x.shape[-1]} entries, expected {2 * len(frequencies)}: a"
            f" pair for each of the {len(frequencies)} frequency vectors; change either number"
        )
    angle = position.to(frequencies) @ frequencies.mT
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    first, second = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([cos * first - sin * second, sin * first + cos * second], dim=-1)
    return turned.flatten(-2)


def rotary_biases(
    centers: Float[Tensor, "N_h 2"],
    frequencies: Float[Tensor, "J 2"],
    height: int,
    width: int,
    alpha: float,
) -> tuple[Float[Tensor, "N_h D_k"], Float[Tensor, "1 D_k"]]:
    """Return queries and keys, the same at every pixel, that make head h attend to Delta^(h).

    Each pair of the key is sqrt(s) (1, 0), and the query is the key turned as at the position
    Delta^(h). With the scale s = alpha / `rotary_gap`, all pixels but the one at Delta^(h) have a
    score that is lower by at least alpha. Raises ValueError if the frequencies have a common period
    on the grid.
    """
    scale = alpha / rotary_gap(frequencies, height, width)
    key = centers.new_tensor([math.sqrt(scale), 0.0]).repeat(1, len(frequencies))
    return rotate(key, centers, frequencies), key


def rotary_scores(
    b_qry: Float[Tensor, "#N_h D_k"],
    b_key: Float[Tensor, "#N_h D_k"],
    frequencies: Float[Tensor, "J 2"],
    height: int,
    width: int,
) -> Float[Tensor, "N_h {height}*{width} {height}*{width}"]:
    """Return the scores of queries and keys that are constant before they are rotated."""
    position = pixels(height, width, device=b_qry.device)
    query = rotate(b_qry.unsqueeze(1), position, frequencies)
    key = rotate(b_key.unsqueeze(1), position, frequencies)
    return torch.einsum(SCORES, query, key)


def sum_of_cosines(
    offset: Shaped[Tensor, "*B 2"], frequencies: Float[Tensor, "J 2"]
) -> Float[Tensor, "*B"]:
    """Return sum_j cos(theta_j . offset), the score of a head with Delta = 0 and s = 1."""
    return (offset.to(frequencies) @ frequencies.mT).cos().sum(dim=-1)


def rotary_gap(frequencies: Float[Tensor, "J 2"], height: int, width: int) -> float:
    """Return the gap gamma: how far the second-best pixel's score is below the best, for s = 1.

    gamma is the minimum of sum_j (1 - cos(theta_j . u)) over the offsets u other than 0 between two
    pixels of an H x W image. Raises ValueError if it is 0, because a common period u makes the
    scores of delta and delta + u equal for all constant queries and keys.
    """
    if (height, width) == (1, 1):
        raise ValueError(
            "the image is 1 x 1, expected at least two pixels to tell apart; use a larger image"
        )
    offsets = all_offsets(height, width, device=frequencies.device).flatten(0, -2)
    offsets = offsets[len(offsets) // 2 + 1 :]  # the other half mirrors it, and 0 lies between
    # 1 - cos x = 2 sin^2(x / 2), which does not cancel for low frequencies
    angle = offsets.to(frequencies.double()) @ frequencies.double().mT
    gaps = 2 * (angle / 2).sin().square().sum(dim=-1)
    smallest = int(gaps.argmin())
    if gaps[smallest] <= RESONANCE * 2 * len(frequencies):
        raise ValueError(
            f"the frequencies have the common period {tuple(offsets[smallest].tolist())} on a grid"
            f" of {height} x {width} pixels, so no head can tell two pixels that far apart from"
            " each other; choose other frequencies, or a smaller grid"
        )
    return float(gaps[smallest])


def rotary_others(frequencies: Float[Tensor, "J 2"], height: int, width: int) -> int:
    """Return the factor R in the bound R exp(-alpha) on a head's attention outside its pixel.

    R counts the other pixels, H W - 1. The softmax of an axial encoding is a product of one along
    the rows and one along the columns, which reduces R to H + W - 2.
    """
    axial = bool((frequencies.count_nonzero(dim=1) <= 1).all())
    return height + width - 2 if axial else height * width - 1


def sufficient_rotary_alpha(
    frequencies: Float[Tensor, "J 2"], height: int, width: int, miss: float
) -> float:
    """Return an alpha for which a head gives less than `miss` to all other pixels together.

    This is ln(R / miss) with R from `rotary_others`. A head that gives less than `miss` to others
    needs at least ln(1 / miss - 1) wherever a pixel with the second-best score is in the image, so
    the result is at most twice what is necessary if `miss` <= 1 / (R + 2). Raises ValueError unless
    0 < `miss` < 1.
    """
    if not 0 < miss < 1:
        raise ValueError(
            f"miss is {miss!r}, expected a probability between 0 and 1; pass 0.001, for example"
        )
    return math.log(rotary_others(frequencies, height, width) / miss)


def hard_rotary_alpha(
    centers: Float[Tensor, "N_h 2"], frequencies: Float[Tensor, "J 2"], height: int, width: int
) -> int:
    """Return an alpha for which the heads are one-hot in the floating-point type of `centers`.

    It is `hard_alpha`, doubled as often as rounding of the scores requires, which is tried at every
    query whose target is in the image. Raises ValueError if four times are not enough.
    """
    delta = relative_offsets(height, width, device=centers.device).flatten(2, 3).flatten(0, 1)
    at_center = (delta == centers[:, None, None]).all(dim=-1)  # (N_h, T, T)
    interior = at_center.any(dim=-1)
    one_hot = at_center[interior].to(centers)
    alpha = hard_alpha(centers.dtype)
    for _ in range(3):
        biases = rotary_biases(centers, frequencies, height, width, alpha)
        probabilities = rotary_scores(*biases, frequencies, height, width).softmax(dim=-1)
        if torch.equal(probabilities[interior], one_hot):
            return alpha
        alpha *= 2
    raise ValueError(
        f"{centers.dtype} is too coarse for these frequencies on a grid of {height} x {width}"
        " pixels; use float32, more frequencies, or a smaller base"
    )


def convolution_by_rotary_attention(
    X: Float[Tensor, "*B H W D_in"],
    W: Float[Tensor, "K_1 K_2 D_in D_out"],
    frequencies: Float[Tensor, "J 2"],
    b: Float[Tensor, "D_out"] | None = None,
    alpha: float | None = None,
) -> Float[Tensor, "*B H W D_out"]:
    """Return the zero-padded convolution of an image, computed by attention with rotary encodings.

    As `theorem1.convolution_by_attention`, with the scores of `rotary_biases` instead of those of
    the quadratic encoding. The default `alpha` is `hard_rotary_alpha` of the padded image.
    """
    centers = offset_set(W.shape[:2]).to(W)

    def scores(height: int, width: int) -> Tensor:
        sharp = alpha
        if sharp is None:
            sharp = hard_rotary_alpha(centers, frequencies, height, width)
        biases = rotary_biases(centers, frequencies, height, width, sharp)
        return rotary_scores(*biases, frequencies, height, width)

    return on_padded_image(X, W, b, scores)
