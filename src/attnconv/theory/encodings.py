"""Positional encodings (section 2.3, equation (9), appendix E).

Letters: D_p encoding dimension, n spatial dimensions, delta = k - q the offset from the query pixel
to the key pixel. A relative encoding maps offsets to vectors r_delta, and a head's score is
v . r_delta, the last term of equation (8).
"""

import torch
from torch import Tensor

from .grid import pixels
from .shapes import Float, Shaped

# Standard deviation of the initial centres, in pixels, in the published code (sqrt(2) in the text).
CENTER_STD = 2.0


# --- absolute encodings, equations (3) and (7) ----------------------------------------------------


def sinusoidal_encoding(*sizes: int, dim: int, base: float = 10_000.0) -> Tensor:
    """Return the fixed absolute encoding P of Vaswani et al. (2017): `(*sizes, dim)`, float32.

    The sines and cosines of the individual coordinates are concatenated. `dim` must be a multiple
    of twice the number of axes.
    """
    per_axis, rest = divmod(dim, 2 * len(sizes))
    if rest or not per_axis:
        raise ValueError(
            f"dim is {dim}, expected a positive multiple of {2 * len(sizes)} for {len(sizes)} axes"
        )
    frequency = base ** (-torch.arange(per_axis, dtype=torch.float64) / per_axis)
    angle = pixels(*sizes).unsqueeze(-1) * frequency  # (T, n, per_axis)
    waves = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return waves.reshape(*sizes, dim).float()


# --- the quadratic encoding, equation (9) ---------------------------------------------------------


def quadratic_encoding(delta: Shaped[Tensor, "*B n"]) -> Shaped[Tensor, "*B n+1"]:
    """Return the encoding r_delta = (||delta||^2, delta_1, ..., delta_n). Equation (9)."""
    return torch.cat([delta.square().sum(dim=-1, keepdim=True), delta], dim=-1)


def quadratic_target(
    centers: Float[Tensor, "*B n"], alpha: Float[Tensor, "*B"]
) -> Float[Tensor, "*B n+1"]:
    """Return v = -alpha (1, -2 Delta_1, ..., -2 Delta_n) for centres Delta. Equation (9)."""
    return -alpha.unsqueeze(-1) * torch.cat(
        [torch.ones_like(centers[..., :1]), -2 * centers], dim=-1
    )


# --- the generalised quadratic encoding, appendix E -----------------------------------------------


def generalized_quadratic_encoding(delta: Shaped[Tensor, "*B 2"]) -> Shaped[Tensor, "*B 5"]:
    """Return r_delta = (delta_1, delta_2, delta_1^2, delta_2^2, delta_1 delta_2). Appendix E."""
    delta_1, delta_2 = delta.unbind(dim=-1)
    return torch.stack(
        [delta_1, delta_2, delta_1.square(), delta_2.square(), delta_1 * delta_2], dim=-1
    )


def generalized_quadratic_target(
    centers: Float[Tensor, "*B 2"], precision: Float[Tensor, "*B 2 2"]
) -> Float[Tensor, "*B 5"]:
    """Return v from appendix E for heads with centres Delta and precision matrices `Sigma^-1`."""
    linear = (precision @ centers.unsqueeze(-1)).squeeze(-1)
    p_11, p_22, p_12 = precision[..., 0, 0], precision[..., 1, 1], precision[..., 0, 1]
    return 0.5 * torch.stack(
        [2 * linear[..., 0], 2 * linear[..., 1], -p_11, -p_22, -2 * p_12], dim=-1
    )
