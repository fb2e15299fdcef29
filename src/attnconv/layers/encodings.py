"""Positional encodings (section 2.3, equation (9), section 4.3, appendix E).

Letters: N_h heads, D_p encoding dimension, n spatial dimensions, delta = k - q the offset from the
query pixel to the key pixel.

An encoding for position-only attention maps offsets `(..., n)` to scores `(N_h, ...)`. The scores
are the last term of equation (8), v^(h) . r_delta, up to a constant per head that the softmax
ignores. If each score is the sum of a row term and a column term, the attention is the product of a
row softmax and a column softmax; such an encoding is a `SeparableEncoding`.
"""

import math
from itertools import chain
from numbers import Real

import torch
from torch import Tensor, nn

from ..theory.encodings import CENTER_STD
from ..theory.grid import all_offsets, axis_offsets, relative_offsets
from ..theory.shapes import Float

ALPHA_FORMS = ("square", "direct")


class LearnedAbsoluteEncoding(nn.Module):
    """A learned absolute encoding P, with one trainable vector per pixel: `(*sizes, dim)`.

    The vectors are initialised from N(0, 0.02^2).
    """

    def __init__(self, *sizes: int, dim: int):
        super().__init__()
        self.vectors = nn.Parameter(0.02 * torch.randn(*sizes, dim))

    def forward(self) -> Tensor:
        return self.vectors


# --- position-only attention ----------------------------------------------------------------------


def tail_cutoff(dtype: torch.dtype, n: int) -> float:
    """Return how far a score may lie below the largest of n scores without being cut off.

    `softmax_without_tails` assigns probability zero to scores further below the largest one.
    """
    return math.log(4 * n / torch.finfo(dtype).eps)


def softmax_without_tails(
    scores: Float[Tensor, "*B keys"], n: int | None = None
) -> Float[Tensor, "*B keys"]:
    """Return the softmax over the last dimension, with negligible probabilities set to zero.

    Probabilities below `eps / (4 n)` times the largest one are cut off, where eps is the machine
    epsilon of the dtype and n is the number of scores. Pass `n` explicitly if some of the scores
    that would be cut off have already been omitted. The probabilities that are cut off sum to less
    than `eps / 4` times the largest one, so no sum of probabilities changes by more than its
    rounding error.

    The cutoff saves time, because processors are up to a hundred times slower on the subnormal
    numbers in the tails of a Gaussian. It is applied before the softmax, so the scores that are cut
    off have zero gradients. In float16, which has a small range, subnormal probabilities may
    remain. Exported graphs keep the tails, because the cutoff would fix the number of scores.
    """
    if torch.compiler.is_exporting():
        return scores.softmax(dim=-1)
    with torch.no_grad():
        cutoff = tail_cutoff(scores.dtype, n or scores.shape[-1])
        tails = scores < scores.amax(dim=-1, keepdim=True) - cutoff
    return scores.masked_fill(tails, -math.inf).softmax(dim=-1)


class PositionEncoding(nn.Module):
    """Base class for encodings whose scores depend only on the offset from query to key.

    A subclass sets `num_heads`, defines `scores`, and names in `DESCRIBED_BY` the attributes
    `(N_h, ...)` that describe its heads.
    """

    DESCRIBED_BY: tuple[str, ...] = ()
    num_heads: int

    def snapshot(self) -> dict[str, Tensor]:
        """Return detached copies of the tensors `(N_h, ...)` that describe the heads, by name."""
        return {name: getattr(self, name).detach().clone() for name in self.DESCRIBED_BY}

    def scores(self, delta: Tensor) -> Tensor:
        """Return the scores `(N_h, ...)` for the offsets `(..., n)`."""
        raise NotImplementedError

    def position_scores(self, *sizes: int) -> Tensor:
        """Return the scores of all query-key pairs on a grid: `(N_h, *sizes, *sizes)`."""
        return self.scores(relative_offsets(*sizes, device=self.device))

    def offset_scores(self, *sizes: int) -> Tensor:
        """Return the scores of all offsets between pixels of a grid: `(N_h, 2H - 1, 2W - 1)`."""
        return self.scores(all_offsets(*sizes, device=self.device))

    @property
    def device(self) -> torch.device:
        """The device on which the parameters and buffers are stored."""
        return next(chain(self.parameters(), self.buffers())).device


class SeparableEncoding(PositionEncoding):
    """Base class for encodings whose scores are sums of one term per axis.

    A subclass defines `axis_scores`.
    """

    def axis_scores(self, axis: int, delta: Tensor) -> Tensor:
        """Return one axis's term `(N_h, ...)` of the scores, given the offsets `(...)` along it."""
        raise NotImplementedError

    def scores(self, delta: Tensor) -> Tensor:
        first, *others = (self.axis_scores(n, along) for n, along in enumerate(delta.unbind(-1)))
        return sum(others, first)

    def position_scores(self, *sizes: int) -> Tensor:
        scores = torch.zeros((), device=self.device)
        for axis, size in enumerate(sizes):
            shape = [size if i == axis else 1 for i in range(len(sizes))]
            along = self.axis_scores(axis, axis_offsets(size, self.device))
            scores = scores + along.reshape(-1, *shape, *shape)
        return scores

    def axis_probabilities(self, *sizes: int) -> list[Tensor]:
        """Return each axis's factor of p(k | q): `(N_h, size, size)`, queries before keys."""
        deltas = [axis_offsets(size, self.device) for size in sizes]
        return [softmax_without_tails(self.axis_scores(n, delta)) for n, delta in enumerate(deltas)]


class RelativeBias(PositionEncoding):
    """The most general position-only encoding, with a trainable score for each head and offset.

    The parameter `table` is `(N_h, 2H - 1, 2W - 1)` for images of up to H x W pixels.
    """

    def __init__(self, table: Tensor):
        super().__init__()
        if table.ndim != 3 or table.shape[1] % 2 == 0 or table.shape[2] % 2 == 0:
            raise ValueError(
                f"got a table of shape {tuple(table.shape)}, expected (heads, 2H - 1, 2W - 1)"
            )
        self.num_heads = table.shape[0]
        self.table = nn.Parameter(table.clone())

    def scores(self, delta: Tensor) -> Tensor:
        rows, columns = self.table.shape[1:]
        i, j = delta[..., 0] + rows // 2, delta[..., 1] + columns // 2
        if min(int(i.min()), int(j.min())) < 0 or int(i.max()) >= rows or int(j.max()) >= columns:
            raise ValueError(
                f"got offsets up to {int(delta.abs().max())} pixels for a relative bias of"
                f" {rows} x {columns} offsets, which serves images up to {rows // 2 + 1} x"
                f" {columns // 2 + 1} pixels"
            )
        return self.table[:, i, j]


class QuadraticEncoding(SeparableEncoding):
    """The quadratic encoding, whose heads are isotropic Gaussians. Equations (14) and (18).

    The scores -alpha ||delta - Delta||^2 equal v . r_delta of equation (9), minus the constant
    alpha ||Delta||^2. This form avoids cancellation in half precision. The parameters are `centers`
    `(N_h, n)`, the centres Delta^(h) in pixels, and `spread` `(N_h,)`. As in the published code,
    alpha = spread^2 / 2, so alpha never becomes negative. With `alpha_form="direct"`,
    `spread` is alpha itself, as in equation (9), and may become negative in training.

    The centres are initialised from a normal distribution with standard deviation `center_std`, and
    alpha is initialised as (1 + noise)^2 / 2, where the noise has standard deviation 0.01. The
    default `center_std` follows the published code; the paper's N(0, 2 I) corresponds to sqrt(2).
    """

    DESCRIBED_BY = ("centers", "alpha")
    centers: Tensor
    spread: Tensor

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
        self.num_heads = num_heads
        self.alpha_form = alpha_form
        self.centers = nn.Parameter(center_std * torch.randn(num_heads, num_axes))
        spread = 1 + 0.01 * torch.randn(num_heads)
        self.spread = nn.Parameter(spread if alpha_form == "square" else spread.square() / 2)

    @classmethod
    def from_alpha(cls, centers: Tensor, alpha: float) -> "QuadraticEncoding":
        """Return an encoding with centres `(N_h, n)` and the same alpha > 0 for all heads.

        The centres and `spread` are buffers, which optimizers do not see, until `requires_grad_`
        makes them parameters. Raises ValueError if alpha is not positive or is too large for the
        centres' dtype.
        """
        largest = torch.finfo(centers.dtype).max / 2
        if not (isinstance(alpha, Real) and 0 < float(alpha) <= largest):
            raise ValueError(
                f"alpha is {alpha!r}, expected a positive finite number within the range of"
                f" {centers.dtype}"
            )
        # created without heads, so that no random numbers are drawn
        encoding = cls(0, centers.shape[1])
        encoding.num_heads = len(centers)
        del encoding.centers, encoding.spread
        encoding.register_buffer("centers", centers.detach().clone())
        spread = torch.full_like(encoding.centers[:, 0], math.sqrt(2 * alpha))
        encoding.register_buffer("spread", spread)
        return encoding

    def requires_grad_(self, requires_grad: bool = True) -> "QuadraticEncoding":
        """Train the centres and alpha from now on, or stop training them."""
        if requires_grad:
            for name in list(dict(self.named_buffers())):
                self.train_parameter(name)
        return super().requires_grad_(requires_grad)

    def train_parameter(self, name: str) -> None:
        """Make `centers` or `spread` a parameter that is trained."""
        setattr(self, name, nn.Parameter(getattr(self, name).detach()))

    @property
    def alpha(self) -> Tensor:
        """The sharpness alpha^(h) of each head, `(N_h,)`, in inverse squared pixels."""
        return self.spread.square() / 2 if self.alpha_form == "square" else self.spread

    def axis_scores(self, axis: int, delta: Tensor) -> Tensor:
        per_head = (-1,) + (1,) * delta.ndim
        center = self.centers[:, axis].view(per_head)
        return -self.alpha.view(per_head) * (delta.to(center.dtype) - center).square()


class GeneralizedQuadraticEncoding(PositionEncoding):
    """The generalised quadratic encoding, whose heads are anisotropic Gaussians. Equation (19).

    The scores are `-1/2 (delta - Delta)^T Sigma^-1 (delta - Delta)`. The parameters are `centers`
    `(N_h, 2)` in pixels and `root` `(N_h, 2, 2)`, the matrices S in `Sigma^-1 = S S^T`. This form
    keeps `Sigma^-1` positive semi-definite. S is initialised as I plus noise of standard deviation
    0.01, as in the published code (the paper's N(0, 0.01 I) corresponds to 0.1). Because of the
    cross term delta_1 delta_2, the attention of these heads is not separable.
    """

    DESCRIBED_BY = ("centers", "precision")

    def __init__(self, num_heads: int, center_std: float = CENTER_STD):
        super().__init__()
        self.num_heads = num_heads
        self.centers = nn.Parameter(center_std * torch.randn(num_heads, 2))
        self.root = nn.Parameter(torch.eye(2) + 0.01 * torch.randn(num_heads, 2, 2))

    @property
    def precision(self) -> Tensor:
        """The heads' precision matrices `Sigma^-1`, `(N_h, 2, 2)`, in inverse squared pixels."""
        return self.root @ self.root.mT

    def select(self, heads: Tensor) -> "GeneralizedQuadraticEncoding":
        """Return a copy of the encoding with only the heads at the given indices."""
        # created without heads, so that no random numbers are drawn
        encoding = GeneralizedQuadraticEncoding(0)
        encoding.num_heads = len(heads)
        encoding.centers = nn.Parameter(self.centers.detach()[heads].clone())
        encoding.root = nn.Parameter(self.root.detach()[heads].clone())
        return encoding

    def scores(self, delta: Tensor) -> Tensor:
        per_head = (-1,) + (1,) * (delta.ndim - 1) + (2,)
        offset = delta.to(self.centers.dtype) - self.centers.view(per_head)  # (N_h, ..., 2)
        return -0.5 * torch.einsum("h...i,hij->h...j", offset, self.root).square().sum(dim=-1)


# --- learned relative encodings, section 4.3 ------------------------------------------------------


class LearnedOffsetEmbedding(nn.Module):
    """A learned encoding r_delta, with one vector for each row offset and each column offset.

    The module maps offsets `(..., 2)` to encodings `(..., 2 * dim)`, which concatenate the vectors
    of the row offset delta_1 and the column offset delta_2. It covers all offsets in images of up
    to `height` x `width` pixels. See section 4.3.
    """

    def __init__(self, height: int, width: int, dim: int):
        super().__init__()
        self.sizes = (height, width)
        self.dim = dim
        self.axes = nn.ModuleList(nn.Embedding(2 * size - 1, dim) for size in self.sizes)

    def axis(self, axis: int, delta: Tensor) -> Tensor:
        """Return the vectors `(..., dim)` for the offsets `(...)` along one axis.

        On the CPU, raises ValueError if an offset is at least as large as the image.
        """
        size = self.sizes[axis]
        # On other devices, reading a number would have to wait for the computation.
        reading_is_free = delta.device.type == "cpu" and not torch.compiler.is_compiling()
        if reading_is_free and delta.numel() and int(delta.abs().max()) >= size:
            raise ValueError(
                f"got an offset of {int(delta.abs().max())} pixels along axis {axis} for an"
                f" encoding learned for {size} pixels (offsets up to {size - 1}); build it for the"
                " larger image"
            )
        return self.axes[axis](delta + size - 1)

    def forward(self, delta: Tensor) -> Tensor:
        return torch.cat([self.axis(0, delta[..., 0]), self.axis(1, delta[..., 1])], dim=-1)


class LearnedRelativeEncoding(SeparableEncoding):
    """The learned 2D relative encoding for position-only attention. Section 4.3.

    The scores v^(h) . r_delta are the last term of equation (8). The embedding has `dim` numbers
    for each row offset and each column offset: floor(D_p / 2) = 200 in the paper, and 400 in the
    published code and by default in `build_model`. v^(h) has a row part and a column part, stored
    in `targets` as two weight matrices `(N_h, dim)`. Layers may share one embedding r_delta, as in
    section 2.3; the published code uses one per layer.
    """

    def __init__(self, num_heads: int, embedding: LearnedOffsetEmbedding):
        super().__init__()
        self.num_heads = num_heads
        self.embedding = embedding
        self.targets = nn.ModuleList(
            nn.Linear(embedding.dim, num_heads, bias=False) for _ in range(2)
        )

    def axis_scores(self, axis: int, delta: Tensor) -> Tensor:
        return self.targets[axis](self.embedding.axis(axis, delta)).movedim(-1, 0)

    @torch.no_grad()
    def snapshot(self) -> dict[str, Tensor]:
        """Return the `row_scores` `(N_h, 2H - 1)` and `column_scores` `(N_h, 2W - 1)` by offset."""
        sizes = self.embedding.sizes
        deltas = (torch.arange(1 - size, size, device=self.device) for size in sizes)
        rows, columns = (self.axis_scores(axis, delta) for axis, delta in enumerate(deltas))
        return {"row_scores": rows.clone(), "column_scores": columns.clone()}


def learned_offset_scores(
    queries: Float[Tensor, "B N_h H W D_k"], embedding: LearnedOffsetEmbedding
) -> tuple[Float[Tensor, "B N_h H W H"], Float[Tensor, "B N_h H W W"]]:
    """Return the key-row and key-column parts of q . r_delta, the second term of equation (8).

    The two parts for a key sum to q . r_delta. They are not scaled.
    """
    offsets = (axis_offsets(size, queries.device) for size in queries.shape[2:4])
    row, column = (embedding.axis(axis, delta) for axis, delta in enumerate(offsets))
    q_row, q_column = queries.split(embedding.dim, dim=-1)
    return torch.einsum("bhijd,ikd->bhijk", q_row, row), torch.einsum(
        "bhijd,jld->bhijl", q_column, column
    )
