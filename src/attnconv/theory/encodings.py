"""Positional encodings (section 2.3, equation (9), appendix E).

Letters: N_h heads, D_p encoding dimension, n spatial dimensions, delta = k - q the shift from query to key pixel.

An encoding for position-only attention turns shifts `(..., n)` into scores `(N_h, ...)`: the last term of equation (8),
v^(h) . r_delta, up to a constant per head that the softmax ignores. Where the score is a row term plus a column term the
attention is a product of a row and a column softmax; such an encoding is a `SeparableEncoding`.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .grid import axis_shifts, pixels, relative_shifts

CENTER_STD = 2.0  # of the centres at the start, in pixels: the published code's; the text has sqrt(2)


def softmax_without_tails(scores: Tensor) -> Tensor:
    """The softmax over the last dimension, n numbers, with the probabilities below eps / (4 n) of the largest exactly zero.

    Together they are less than a quarter of the last digit of the largest one, so no sum of the probabilities changes by more
    than its rounding (eps: the spacing of the dtype's numbers at 1). What they would cost is much: processors are up to a hundred
    times slower with subnormal numbers, in which a Gaussian's tails end. Cut off before the softmax, they are zero in the
    gradients too. In float16, whose range is short, subnormal probabilities may remain.
    """
    reach = math.log(4 * scores.shape[-1] / torch.finfo(scores.dtype).eps)
    with torch.no_grad():
        tails = scores < scores.amax(dim=-1, keepdim=True) - reach
    return scores.masked_fill(tails, -math.inf).softmax(dim=-1)


class PositionEncoding(nn.Module):
    """Scores that depend on the shift alone. A subclass sets `num_heads` and defines `scores`."""

    num_heads: int

    def snapshot(self) -> dict[str, Tensor]:
        """What a figure needs to draw the heads, detached: few numbers per head, the head first."""
        raise NotImplementedError

    def scores(self, delta: Tensor) -> Tensor:
        """Scores `(N_h, ...)` of the shifts `(..., n)`."""
        raise NotImplementedError

    def position_scores(self, *sizes: int) -> Tensor:
        """Scores for each query and key pixel of a grid: `(N_h, *sizes, *sizes)`."""
        return self.scores(relative_shifts(*sizes, device=self.device))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


class SeparableEncoding(PositionEncoding):
    """Scores that are a sum of one term per axis. A subclass defines `axis_scores`."""

    def axis_scores(self, axis: int, delta: Tensor) -> Tensor:
        """The term `(N_h, ...)` that one axis contributes, for shifts `(...)` along it."""
        raise NotImplementedError

    def scores(self, delta: Tensor) -> Tensor:
        return sum(self.axis_scores(axis, delta[..., axis]) for axis in range(delta.shape[-1]))

    def position_scores(self, *sizes: int) -> Tensor:
        scores = torch.zeros((), device=self.device)
        for axis, size in enumerate(sizes):
            shape = [size if i == axis else 1 for i in range(len(sizes))]
            scores = scores + self.axis_scores(axis, axis_shifts(size, self.device)).reshape(-1, *shape, *shape)
        return scores

    def axis_probabilities(self, *sizes: int) -> list[Tensor]:
        """Per axis the attention along it, `(N_h, size, size)`: p(k | q) is the product over the axes, exactly."""
        shifts = (axis_shifts(size, self.device) for size in sizes)
        return [softmax_without_tails(self.axis_scores(axis, delta)) for axis, delta in enumerate(shifts)]


# --- the quadratic encoding, equation (9) ---------------------------------------------------------------------------


def quadratic_encoding(delta: Tensor) -> Tensor:
    """r_delta = (||delta||^2, delta_1, ..., delta_n): `(..., n)` -> `(..., n + 1)`. Equation (9)."""
    return torch.cat([delta.square().sum(dim=-1, keepdim=True), delta], dim=-1)


def quadratic_target(centers: Tensor, alpha: Tensor) -> Tensor:
    """v = -alpha (1, -2 Delta_1, ..., -2 Delta_n): centres `(..., n)`, alpha `(...)` -> `(..., n + 1)`. Equation (9)."""
    return -alpha.unsqueeze(-1) * torch.cat([torch.ones_like(centers[..., :1]), -2 * centers], dim=-1)


ALPHA_FORMS = ("square", "direct")


class QuadraticEncoding(SeparableEncoding):
    """Isotropic Gaussian heads with centre Delta^(h) and width alpha^(h): scores -alpha ||delta - Delta||^2 (eq. 14 and 18).

    This is v . r_delta of equation (9) without its constant alpha ||Delta||^2; in this form no digits cancel, so it stays
    exact in half precision. Parameters: `centers` `(N_h, n)` in pixels and `spread` `(N_h,)` with alpha = spread^2 / 2,
    the form of the published code, which keeps alpha positive while it is trained; with `alpha_form="direct"` the spread is
    alpha itself, equation (9) as written, where training may turn it negative.

    At the start the centres are normal with standard deviation `center_std` and alpha = (1 + noise of 0.01)^2 / 2. The default
    2.0 is the published code's; the paper's N(0, 2 I) would be sqrt(2).
    """

    def __init__(self, num_heads: int, num_axes: int = 2, center_std: float = CENTER_STD, alpha_form: str = "square"):
        super().__init__()
        if alpha_form not in ALPHA_FORMS:
            raise ValueError(f"alpha_form is {alpha_form!r}, expected one of {', '.join(ALPHA_FORMS)}")
        self.num_heads, self.alpha_form = num_heads, alpha_form
        self.centers = nn.Parameter(center_std * torch.randn(num_heads, num_axes))
        spread = 1 + 0.01 * torch.randn(num_heads)
        self.spread = nn.Parameter(spread if alpha_form == "square" else spread.square() / 2)

    @classmethod
    def from_alpha(cls, centers: Tensor, alpha: float) -> "QuadraticEncoding":
        """Heads with the given centres `(N_h, n)`, all of the same alpha > 0. Not trained unless told to."""
        if not (isinstance(alpha, int | float) and 0 < alpha <= torch.finfo(centers.dtype).max / 2):
            raise ValueError(f"alpha is {alpha!r}, expected a positive finite number within the range of {centers.dtype}")
        encoding = cls(0, centers.shape[1])  # without heads yet, so that no random numbers are drawn
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


# --- the generalised quadratic encoding, appendix E -----------------------------------------------------------------


def generalized_quadratic_encoding(delta: Tensor) -> Tensor:
    """r_delta = (delta_1, delta_2, delta_1^2, delta_2^2, delta_1 delta_2): `(..., 2)` -> `(..., 5)`. Appendix E."""
    delta_1, delta_2 = delta.unbind(dim=-1)
    return torch.stack([delta_1, delta_2, delta_1.square(), delta_2.square(), delta_1 * delta_2], dim=-1)


def generalized_quadratic_target(centers: Tensor, precision: Tensor) -> Tensor:
    """v of appendix E for centres Delta `(..., 2)` and precision `Sigma^-1`, `(..., 2, 2)`: `(..., 5)`."""
    linear = (precision @ centers.unsqueeze(-1)).squeeze(-1)
    p_11, p_22, p_12 = precision[..., 0, 0], precision[..., 1, 1], precision[..., 0, 1]
    return 0.5 * torch.stack([2 * linear[..., 0], 2 * linear[..., 1], -p_11, -p_22, -2 * p_12], dim=-1)


class GeneralizedQuadraticEncoding(PositionEncoding):
    """Gaussian heads of any shape: scores `-1/2 (delta - Delta)^T Sigma^-1 (delta - Delta)`. Equation (19).

    Parameters: `centers` `(N_h, 2)` in pixels and `root` S `(N_h, 2, 2)` with `Sigma^-1 = S S^T`, so that it stays positive
    semi-definite. At the start S = I + noise of standard deviation 0.01 (published code; the paper's N(0, 0.01 I) would
    be 0.1). The cross term makes the attention of these heads not separable.
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
        encoding = GeneralizedQuadraticEncoding(0)  # without heads yet, so that no random numbers are drawn
        encoding.num_heads = len(heads)
        encoding.centers = nn.Parameter(self.centers.detach()[heads].clone())
        encoding.root = nn.Parameter(self.root.detach()[heads].clone())
        return encoding

    def snapshot(self) -> dict[str, Tensor]:
        """`centers` `(N_h, 2)` in pixels and `precision` `(N_h, 2, 2)`."""
        return {"centers": self.centers.detach().clone(), "precision": self.precision.detach().clone()}

    def scores(self, delta: Tensor) -> Tensor:
        per_head = (-1,) + (1,) * (delta.ndim - 1) + (2,)
        offset = delta.to(self.centers.dtype) - self.centers.view(per_head)  # (N_h, ..., 2)
        return -0.5 * torch.einsum("h...i,hij->h...j", offset, self.root).square().sum(dim=-1)


# --- learned relative encodings, section 4.3 ------------------------------------------------------------------------


class LearnedShiftEmbedding(nn.Module):
    """r_delta = concat(row vector of delta_1, column vector of delta_2): shifts `(..., 2)` -> `(..., 2 * dim)`. Section 4.3.

    One learned vector of `dim` numbers for each row shift and each column shift of images up to `height` x `width`.
    """

    def __init__(self, height: int, width: int, dim: int):
        super().__init__()
        self.sizes, self.dim = (height, width), dim
        self.axes = nn.ModuleList(nn.Embedding(2 * size - 1, dim) for size in self.sizes)

    def axis(self, axis: int, delta: Tensor) -> Tensor:
        """The vectors `(..., dim)` of the shifts `(...)` along one axis."""
        size = self.sizes[axis]
        looking_is_free = delta.device.type == "cpu" and not torch.compiler.is_compiling()  # elsewhere it would wait
        if looking_is_free and delta.numel() and int(delta.abs().max()) >= size:
            raise ValueError(
                f"a shift of {int(delta.abs().max())} pixels along axis {axis} was asked of an encoding learned for {size} pixels"
                f" (shifts up to {size - 1}); build it for the larger image"
            )
        return self.axes[axis](delta + size - 1)

    def forward(self, delta: Tensor) -> Tensor:
        return torch.cat([self.axis(0, delta[..., 0]), self.axis(1, delta[..., 1])], dim=-1)


class LearnedRelativeEncoding(SeparableEncoding):
    """Learned 2D relative encoding, position only: scores v^(h) . r_delta, the last term of equation (8). Section 4.3.

    `dim` numbers per row shift and per column shift. The paper says floor(D_p / 2) = 200; the default 400 is the
    published code's. v^(h) is split into a part for rows and one for columns, `targets` 2 x `(N_h, dim)`. The embedding
    r_delta may be that of other layers too, as section 2.3 says; the published code gives each layer its own.
    """

    def __init__(self, num_heads: int, embedding: LearnedShiftEmbedding):
        super().__init__()
        self.num_heads, self.embedding = num_heads, embedding
        self.targets = nn.ModuleList(nn.Linear(embedding.dim, num_heads, bias=False) for _ in range(2))

    def axis_scores(self, axis: int, delta: Tensor) -> Tensor:
        return self.targets[axis](self.embedding.axis(axis, delta)).movedim(-1, 0)

    @torch.no_grad()
    def snapshot(self) -> dict[str, Tensor]:
        """`row_scores` `(N_h, 2H - 1)` and `column_scores` `(N_h, 2W - 1)`, by shift from the most negative one."""
        shifts = (torch.arange(1 - size, size, device=self.device) for size in self.embedding.sizes)
        rows, columns = (self.axis_scores(axis, delta) for axis, delta in enumerate(shifts))
        return {"row_scores": rows.clone(), "column_scores": columns.clone()}


def learned_content_scores(queries: Tensor, keys: Tensor, embedding: LearnedShiftEmbedding, scale: float = 1.0) -> Tensor:
    """Learned encoding with content: scores scale * (q . k + q . r_delta), `(B, N_h, H, W, H, W)`. Section 4.3.

    Queries and keys are `(B, N_h, H, W, D_k)` with D_k = 2 * dim of the embedding. The first two terms of equation (8);
    a bias in the queries does the work of u and v. The published code scales by 1 / sqrt(D_k), the paper by 1.
    """
    content, rows, columns = learned_content_parts(queries, keys, embedding, scale)
    return content + rows.unsqueeze(-1) + columns.unsqueeze(-2)


def learned_content_parts(
    queries: Tensor, keys: Tensor, embedding: LearnedShiftEmbedding, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The parts of these scores: q . k `(B, N_h, H, W, H, W)`, and q . r_delta as in `learned_shift_scores`, each scaled."""
    content = torch.einsum("bhijd,bhkld->bhijkl", queries, keys)
    rows, columns = learned_shift_scores(queries, embedding)
    return scale * content, scale * rows, scale * columns


def learned_shift_scores(queries: Tensor, embedding: LearnedShiftEmbedding) -> tuple[Tensor, Tensor]:
    """q . r_delta, the second term of equation (8), as a part for each key row `(B, N_h, H, W, H)` and one for each key
    column `(B, N_h, H, W, W)`; queries as in `learned_content_scores`."""
    shifts = (axis_shifts(size, queries.device) for size in queries.shape[2:4])
    row, column = (embedding.axis(axis, delta) for axis, delta in enumerate(shifts))
    q_row, q_column = queries.split(embedding.dim, dim=-1)
    return torch.einsum("bhijd,ikd->bhijk", q_row, row), torch.einsum("bhijd,jld->bhijl", q_column, column)


class RelativeBias(PositionEncoding):
    """The most general position-only scores: one free number per head and shift, `table` `(N_h, 2H - 1, 2W - 1)`."""

    def __init__(self, table: Tensor):
        super().__init__()
        if table.ndim != 3 or table.shape[1] % 2 == 0 or table.shape[2] % 2 == 0:
            raise ValueError(f"got a table of shape {tuple(table.shape)}, expected (heads, 2H - 1, 2W - 1)")
        self.num_heads = table.shape[0]
        self.table = nn.Parameter(table.clone())

    def scores(self, delta: Tensor) -> Tensor:
        rows, columns = self.table.shape[1:]
        i, j = delta[..., 0] + rows // 2, delta[..., 1] + columns // 2
        if min(int(i.min()), int(j.min())) < 0 or int(i.max()) >= rows or int(j.max()) >= columns:
            raise ValueError(
                f"shifts up to {int(delta.abs().max())} pixels were asked of a relative bias of {rows} x {columns} shifts,"
                f" which serves images up to {rows // 2 + 1} x {columns // 2 + 1} pixels"
            )
        return self.table[:, i, j]


def from_snapshot(snapshot: Mapping[str, Tensor]) -> PositionEncoding:
    """The encoding that a layer's `snapshot` was taken of, with the same scores up to rounding, on its device. Not trained.

    From `centers` and `alpha`, `centers` and `precision`, or `row_scores` and `column_scores`. ValueError for anything else.
    """
    names = set(snapshot)
    if names == {"centers", "alpha"}:
        encoding = QuadraticEncoding(0, alpha_form="direct")
        encoding.centers, encoding.spread = (nn.Parameter(snapshot[name].clone()) for name in ("centers", "alpha"))
    elif names == {"centers", "precision"}:
        encoding = GeneralizedQuadraticEncoding(0)
        values, vectors = torch.linalg.eigh(snapshot["precision"])  # a degenerate head's has no Cholesky factor
        encoding.centers = nn.Parameter(snapshot["centers"].clone())
        encoding.root = nn.Parameter(vectors * values.clamp(min=0).sqrt().unsqueeze(-2))
    elif names == {"row_scores", "column_scores"}:
        encoding = RelativeBias(snapshot["row_scores"].unsqueeze(2) + snapshot["column_scores"].unsqueeze(1))
    else:
        raise ValueError(
            f"got a snapshot of {', '.join(sorted(names)) or 'nothing'}, expected what an encoding's snapshot() gives"
        )
    encoding.num_heads = len(next(iter(snapshot.values())))
    return encoding.requires_grad_(False)


# --- absolute encodings, equations (3) and (7) ----------------------------------------------------------------------


def sinusoidal_encoding(*sizes: int, dim: int, base: float = 10_000.0) -> Tensor:
    """Fixed absolute encoding P: `(*sizes, dim)`, float32; sines and cosines per axis (Vaswani et al., 2017), concatenated.

    `dim` must be a multiple of twice the number of axes.
    """
    per_axis, rest = divmod(dim, 2 * len(sizes))
    if rest or not per_axis:
        raise ValueError(f"dim is {dim}, expected a positive multiple of {2 * len(sizes)} for {len(sizes)} axes")
    frequency = base ** (-torch.arange(per_axis, dtype=torch.float64) / per_axis)
    angle = pixels(*sizes).unsqueeze(-1) * frequency  # (T, n, per_axis)
    waves = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return waves.reshape(*sizes, dim).float()


class LearnedAbsoluteEncoding(nn.Module):
    """Learned absolute encoding P: one free vector per pixel, `(*sizes, dim)`, normal with standard deviation 0.02."""

    def __init__(self, *sizes: int, dim: int):
        super().__init__()
        self.vectors = nn.Parameter(0.02 * torch.randn(*sizes, dim))

    def forward(self) -> Tensor:
        return self.vectors
