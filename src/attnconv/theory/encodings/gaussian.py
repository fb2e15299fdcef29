"""Gaussian heads: the quadratic encoding, equation (9), and its generalisation, appendix E."""

import math

import torch
from torch import Tensor, nn

from ..shapes import Float, Shaped
from .position import PositionEncoding, SeparableEncoding

# of the centres at the start, in pixels: the published code's; the text has sqrt(2)
CENTER_STD = 2.0
ALPHA_FORMS = ("square", "direct")


def quadratic_encoding(delta: Shaped[Tensor, "*B n"]) -> Shaped[Tensor, "*B n+1"]:
    """r_delta = (||delta||^2, delta_1, ..., delta_n), eq. (9): `(..., n)` -> `(..., n + 1)`."""
    return torch.cat([delta.square().sum(dim=-1, keepdim=True), delta], dim=-1)


def quadratic_target(
    centers: Float[Tensor, "*B n"], alpha: Float[Tensor, "*B"]
) -> Float[Tensor, "*B n+1"]:
    """v = -alpha (1, -2 Delta_1, ..., -2 Delta_n): centres `(..., n)`, alpha `(...)` ->
    `(..., n + 1)`. Equation (9)."""
    return -alpha.unsqueeze(-1) * torch.cat(
        [torch.ones_like(centers[..., :1]), -2 * centers], dim=-1
    )


class QuadraticEncoding(SeparableEncoding):
    """Isotropic Gaussian heads with centre Delta^(h) and width alpha^(h): scores -alpha ||delta -
    Delta||^2 (eq. 14 and 18).

    This is v . r_delta of equation (9) without its constant alpha ||Delta||^2; in this form no
    digits cancel, so it stays exact in half precision. Parameters: `centers` `(N_h, n)` in pixels
    and `spread` `(N_h,)` with alpha = spread^2 / 2, the form of the published code, which keeps
    alpha positive while it is trained; with `alpha_form="direct"` the spread is alpha itself,
    equation (9) as written, where training may turn it negative.

    At the start the centres are normal with standard deviation `center_std` and alpha = (1 + noise
    of 0.01)^2 / 2. The default 2.0 is the published code's; the paper's N(0, 2 I) would be sqrt(2).
    """

    def __init__(
        self,
        num_heads: int,
        num_axes: int = 2,
        center_std: float = CENTER_STD,
        alpha_form: str = "square",
    ):
        super().__init__()
        if alpha_form not in ALPHA_FORMS:
            raise ValueError(
                f"alpha_form is {alpha_form!r}, expected one of {', '.join(ALPHA_FORMS)}"
            )
        self.num_heads, self.alpha_form = num_heads, alpha_form
        self.centers = nn.Parameter(center_std * torch.randn(num_heads, num_axes))
        spread = 1 + 0.01 * torch.randn(num_heads)
        self.spread = nn.Parameter(spread if alpha_form == "square" else spread.square() / 2)

    @classmethod
    def from_alpha(cls, centers: Tensor, alpha: float) -> "QuadraticEncoding":
        """Heads with centres `(N_h, n)`, all of one alpha > 0. Not trained unless told to."""
        if not (isinstance(alpha, int | float) and 0 < alpha <= torch.finfo(centers.dtype).max / 2):
            raise ValueError(
                f"alpha is {alpha!r}, expected a positive finite number within the range of"
                f" {centers.dtype}"
            )
        # without heads yet, so that no random numbers are drawn
        encoding = cls(0, centers.shape[1])
        encoding.num_heads = len(centers)
        encoding.centers = nn.Parameter(centers.clone())
        encoding.spread = nn.Parameter(torch.full_like(centers[:, 0], math.sqrt(2 * alpha)))
        return encoding.requires_grad_(False)

    @property
    def alpha(self) -> Tensor:
        """`(N_h,)`, one over pixels squared."""
        return self.spread.square() / 2 if self.alpha_form == "square" else self.spread

    def snapshot(self) -> dict[str, Tensor]:
        """`centers` `(N_h, n)` in pixels and `alpha` `(N_h,)`."""
        return {"centers": self.centers.detach().clone(), "alpha": self.alpha.detach().clone()}

    def axis_scores(self, axis: int, delta: Tensor) -> Tensor:
        per_head = (-1,) + (1,) * delta.ndim
        center = self.centers[:, axis].view(per_head)
        return -self.alpha.view(per_head) * (delta.to(center.dtype) - center).square()


# --- the generalised quadratic encoding, appendix E -----------------------------------------------


def generalized_quadratic_encoding(delta: Shaped[Tensor, "*B 2"]) -> Shaped[Tensor, "*B 5"]:
    """r_delta = (delta_1, delta_2, delta_1^2, delta_2^2, delta_1 delta_2): `(..., 2)` ->
    `(..., 5)`. Appendix E."""
    delta_1, delta_2 = delta.unbind(dim=-1)
    return torch.stack(
        [delta_1, delta_2, delta_1.square(), delta_2.square(), delta_1 * delta_2], dim=-1
    )


def generalized_quadratic_target(
    centers: Float[Tensor, "*B 2"], precision: Float[Tensor, "*B 2 2"]
) -> Float[Tensor, "*B 5"]:
    """v of appendix E for centres `(..., 2)`, precision `Sigma^-1` `(..., 2, 2)`: `(..., 5)`."""
    linear = (precision @ centers.unsqueeze(-1)).squeeze(-1)
    p_11, p_22, p_12 = precision[..., 0, 0], precision[..., 1, 1], precision[..., 0, 1]
    return 0.5 * torch.stack(
        [2 * linear[..., 0], 2 * linear[..., 1], -p_11, -p_22, -2 * p_12], dim=-1
    )


class GeneralizedQuadraticEncoding(PositionEncoding):
    """Gaussian heads of any shape: scores `-1/2 (delta - Delta)^T Sigma^-1 (delta - Delta)`.
    Equation (19).

    Parameters: `centers` `(N_h, 2)` in pixels and `root` S `(N_h, 2, 2)` with `Sigma^-1 = S S^T`,
    so that it stays positive semi-definite. At the start S = I + noise of standard deviation 0.01
    (published code; the paper's N(0, 0.01 I) would be 0.1). The cross term makes the attention of
    these heads not separable.
    """

    def __init__(self, num_heads: int, center_std: float = CENTER_STD):
        super().__init__()
        self.num_heads = num_heads
        self.centers = nn.Parameter(center_std * torch.randn(num_heads, 2))
        self.root = nn.Parameter(torch.eye(2) + 0.01 * torch.randn(num_heads, 2, 2))

    @property
    def precision(self) -> Tensor:
        """`Sigma^-1`, `(N_h, 2, 2)`, one over pixels squared."""
        return self.root @ self.root.mT

    def select(self, heads: Tensor) -> "GeneralizedQuadraticEncoding":
        """A copy with the heads of the given indices only."""
        # without heads yet, so that no random numbers are drawn
        encoding = GeneralizedQuadraticEncoding(0)
        encoding.num_heads = len(heads)
        encoding.centers = nn.Parameter(self.centers.detach()[heads].clone())
        encoding.root = nn.Parameter(self.root.detach()[heads].clone())
        return encoding

    def snapshot(self) -> dict[str, Tensor]:
        """`centers` `(N_h, 2)` in pixels and `precision` `(N_h, 2, 2)`."""
        return {
            "centers": self.centers.detach().clone(),
            "precision": self.precision.detach().clone(),
        }

    def scores(self, delta: Tensor) -> Tensor:
        per_head = (-1,) + (1,) * (delta.ndim - 1) + (2,)
        offset = delta.to(self.centers.dtype) - self.centers.view(per_head)  # (N_h, ..., 2)
        return -0.5 * torch.einsum("h...i,hij->h...j", offset, self.root).square().sum(dim=-1)
