"""Lemma 3 (appendix D): test whether attention maps can express every K x K convolution.

Letters: N_h heads, K_1 x K_2 kernel, Q query pixels, T = H * W key pixels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .grid import offset_set, pixels
from .shapes import Float, Int


class Expressivity(NamedTuple):
    """The result of `expresses_convolution`.

    Attributes:
        expresses: Whether the maps express all convolutions of the kernel size.
        residual: How far the heads are from selecting the pixel at each offset, at the worst query,
            `(K_1, K_2)`.
    """

    expresses: bool
    residual: Tensor


class HeadCombination(NamedTuple):
    """The result of `head_combination`: combinations of heads and their residuals."""

    phi: Tensor  # (K_1 * K_2, N_h), or (B * Q, K_1 * K_2, N_h) when each query has its own
    # (B * Q, K_1 * K_2): || e_{q + Delta} - Phi A_q || for each query of each image and each offset
    residual: Tensor


def offset_targets(
    height: int, width: int, kernel_size: Sequence[int], border: str = "interior"
) -> tuple[Int[Tensor, "Q 2"], Float[Tensor, "Q K T"]]:
    """Return the query pixels and their one-hot target maps, the rows of E_q in Lemma 3.

    The target for query q and offset Delta is e_{q + Delta}, in float64. `border="interior"` keeps
    only the queries whose whole kernel lies inside the image: those that the paper keeps when it
    pads and crops. `border="zero"` keeps all queries; a target outside the image is an all-zero
    map, as in a zero-padded convolution.
    """
    if border not in ("interior", "zero"):
        raise ValueError(f"border is {border!r}, expected 'interior' or 'zero'")
    offsets = offset_set(kernel_size)
    queries = pixels(height, width)
    keys = queries.unsqueeze(1) + offsets  # (T, K^2, 2)
    inside = ((keys >= 0) & (keys < torch.tensor([height, width]))).all(dim=-1)
    targets = torch.zeros(*inside.shape, height * width, dtype=torch.float64)
    # omega, the pixel indexing of Lemma 3
    flat = (keys[..., 0] * width + keys[..., 1]).clamp(0, height * width - 1)
    targets.scatter_(-1, flat.unsqueeze(-1), inside.unsqueeze(-1).double())
    kept = inside.all(dim=-1) if border == "interior" else slice(None)
    return queries[kept], targets[kept]


def head_combination(
    probabilities: Tensor,
    kernel_size: int | Sequence[int],
    shared: bool = True,
    border: str = "interior",
) -> HeadCombination:
    """Return the combinations of heads that come closest to selecting each offset of a kernel.

    The combinations are the rows of Phi, which solves E_q = Phi A_q in the least-squares sense.
    Here, A contains the probabilities, `(N_h, H, W, H, W)`, or `(B, N_h, H, W, H, W)` for several
    images, and E_q contains the targets from `offset_targets`. If the solution is exact, a layer
    with the values W^SA = W^conv Phi computes the convolution W^conv. The paper's proof of Lemma 3
    uses one Phi per query (`shared=False`), but a layer has one set of values for all queries. It
    therefore needs a single Phi for all queries of all images (`shared=True`).
    """
    kernel_size = _pair(kernel_size)
    height, width = _check(probabilities, kernel_size)
    queries, targets = offset_targets(height, width, kernel_size, border)
    maps = probabilities.detach().double().cpu().reshape(-1, *probabilities.shape[-5:])
    A = maps[:, :, queries[:, 0], queries[:, 1]].flatten(3)  # (B, N_h, Q, T)
    A = A.movedim(1, 2).flatten(0, 1)  # (B * Q, N_h, T): further images are further queries
    targets = targets.repeat(len(maps), 1, 1)
    heads = A.mT  # (B * Q, T, N_h)
    wanted = targets.mT  # (B * Q, T, K^2)
    if shared:  # one system of B * Q * T equations
        heads = heads.flatten(0, 1)
        wanted = wanted.flatten(0, 1)
    phi = torch.linalg.lstsq(heads, wanted, driver="gelsd").solution.mT
    return HeadCombination(phi, (targets - phi @ A).norm(dim=-1))


def expresses_convolution(
    probabilities: Tensor,
    kernel_size: int | Sequence[int],
    tol: float = 1e-5,
    shared: bool = True,
    border: str = "interior",
) -> Expressivity:
    """Return whether attention maps can express all convolutions of a kernel size. Lemma 3.

    The residual of an offset is the largest distance, over the query pixels of all images, between
    the offset's one-hot map and the combination of heads that `head_combination` chooses for it. A
    residual is 0 if the combination equals the one-hot map, and about 1 if no head attends to the
    offset. If queries share one combination, it can exceed 1, because the combination is fitted to
    all of them and the largest distance counts.

    Args:
        probabilities: The maps, constructed or trained, `(N_h, H, W, H, W)`, or
            `(B, N_h, H, W, H, W)` for several images.
        kernel_size: K for a kernel of K x K pixels, or `(K_1, K_2)`.
        tol: The largest residual of maps that express the convolutions.
        shared: Whether all queries share one combination of heads; see `head_combination`.
        border: "interior" or "zero", the queries near the border that count; see `offset_targets`.

    Returns:
        The answer, and the residual of each offset, `(K_1, K_2)`.

    Raises:
        ValueError: If the maps have the wrong shape or are not probabilities, the kernel does not
            fit into the image, or the border is unknown.

    Example:
        >>> import attnconv, torch
        >>> layer = attnconv.conv_to_attention(torch.nn.Conv2d(3, 8, 3))
        >>> maps = attnconv.attention_probabilities(layer, 7, 7)
        >>> attnconv.expresses_convolution(maps, kernel_size=3).expresses
        True
        >>> attnconv.expresses_convolution(maps[:8], 3).expresses  # one head less
        False
    """
    combination = head_combination(probabilities, kernel_size, shared, border)
    residual = combination.residual.amax(dim=0).reshape(_pair(kernel_size))
    return Expressivity(bool((residual <= tol).all()), residual)


def _pair(kernel_size: int | Sequence[int]) -> tuple[int, ...]:
    return (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)


def expect_probabilities(maps: Tensor) -> None:
    """Raise ValueError unless maps `(..., H, W)` contain finite probabilities that sum to 1."""
    expected = (
        "expected probabilities, which are not negative and sum to 1 (apply the softmax first)"
    )
    if not bool(torch.isfinite(maps).all()):
        raise ValueError(f"the attention maps contain NaN or infinite numbers, {expected}")
    sums = maps.detach().double().sum(dim=(-2, -1))
    if bool(((sums - 1).abs() > 1e-2).any()) or bool((maps < 0).any()):
        raise ValueError(
            f"the maps sum to {float(sums.min()):.3g} ... {float(sums.max()):.3g} over the key"
            f" pixels, {expected}"
        )


def expect_maps(maps: Tensor, kernel_size: tuple[int, ...]) -> None:
    """Raise ValueError unless maps have the shape of attention and the kernel fits into the image.

    The shape is `(N_h, H, W, H, W)` or `(B, N_h, H, W, H, W)`.
    """
    shape = tuple(maps.shape)
    if len(shape) not in (5, 6) or shape[-4:-2] != shape[-2:] or not maps.numel():
        raise ValueError(
            f"got attention maps of shape {shape}, expected (heads, H, W, H, W) or"
            " (images, heads, H, W, H, W)"
        )
    if len(kernel_size) != 2 or any(
        not 1 <= k <= extent for k, extent in zip(kernel_size, shape[-2:], strict=True)
    ):
        raise ValueError(
            f"kernel_size is {kernel_size}, expected two sizes from 1 to the image's {shape[-2:]}"
        )


def _check(probabilities: Tensor, kernel_size: tuple[int, ...]) -> tuple[int, int]:
    expect_maps(probabilities, kernel_size)
    expect_probabilities(probabilities)
    return probabilities.shape[-2], probabilities.shape[-1]
