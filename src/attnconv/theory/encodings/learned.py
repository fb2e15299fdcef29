"""Learned relative encodings, without and with content (section 4.3)."""

import torch
from torch import Tensor, nn

from ..grid import axis_shifts
from ..shapes import Float
from .position import SeparableEncoding


class LearnedShiftEmbedding(nn.Module):
    """r_delta = concat(row vector of delta_1, column vector of delta_2): shifts `(..., 2)` ->
    `(..., 2 * dim)`. Section 4.3.

    One learned vector of `dim` numbers for each row shift and each column shift of images up to
    `height` x `width`.
    """

    def __init__(self, height: int, width: int, dim: int):
        super().__init__()
        self.sizes, self.dim = (height, width), dim
        self.axes = nn.ModuleList(nn.Embedding(2 * size - 1, dim) for size in self.sizes)

    def axis(self, axis: int, delta: Tensor) -> Tensor:
        """The vectors `(..., dim)` of the shifts `(...)` along one axis."""
        size = self.sizes[axis]
        # elsewhere it would wait
        looking_is_free = delta.device.type == "cpu" and not torch.compiler.is_compiling()
        if looking_is_free and delta.numel() and int(delta.abs().max()) >= size:
            raise ValueError(
                f"a shift of {int(delta.abs().max())} pixels along axis {axis} was asked of an"
                f" encoding learned for {size} pixels (shifts up to {size - 1}); build it for the"
                " larger image"
            )
        return self.axes[axis](delta + size - 1)

    def forward(self, delta: Tensor) -> Tensor:
        return torch.cat([self.axis(0, delta[..., 0]), self.axis(1, delta[..., 1])], dim=-1)


class LearnedRelativeEncoding(SeparableEncoding):
    """Learned 2D relative encoding, position only: scores v^(h) . r_delta, the last term of
    equation (8). Section 4.3.

    `dim` numbers per row shift and per column shift. The paper says floor(D_p / 2) = 200; the
    default 400 is the published code's. v^(h) is split into a part for rows and one for columns,
    `targets` 2 x `(N_h, dim)`. The embedding r_delta may be that of other layers too, as section
    2.3 says; the published code gives each layer its own.
    """

    def __init__(self, num_heads: int, embedding: LearnedShiftEmbedding):
        super().__init__()
        self.num_heads, self.embedding = num_heads, embedding
        self.targets = nn.ModuleList(
            nn.Linear(embedding.dim, num_heads, bias=False) for _ in range(2)
        )

    def axis_scores(self, axis: int, delta: Tensor) -> Tensor:
        return self.targets[axis](self.embedding.axis(axis, delta)).movedim(-1, 0)

    @torch.no_grad()
    def snapshot(self) -> dict[str, Tensor]:
        """`row_scores` `(N_h, 2H - 1)` and `column_scores` `(N_h, 2W - 1)`, by ascending shift."""
        shifts = (torch.arange(1 - size, size, device=self.device) for size in self.embedding.sizes)
        rows, columns = (self.axis_scores(axis, delta) for axis, delta in enumerate(shifts))
        return {"row_scores": rows.clone(), "column_scores": columns.clone()}


def learned_content_scores(
    queries: Float[Tensor, "B N_h H W D_k"],
    keys: Float[Tensor, "B N_h H W D_k"],
    embedding: LearnedShiftEmbedding,
    scale: float = 1.0,
) -> Float[Tensor, "B N_h H W H W"]:
    """Learned encoding with content: scores scale * (q . k + q . r_delta), `(B, N_h, H, W, H, W)`.
    Section 4.3.

    Queries and keys are `(B, N_h, H, W, D_k)` with D_k = 2 * dim of the embedding. The first two
    terms of equation (8); a bias in the queries does the work of u and v. The published code scales
    by 1 / sqrt(D_k), the paper by 1.
    """
    content, rows, columns = learned_content_parts(queries, keys, embedding, scale)
    return content + rows.unsqueeze(-1) + columns.unsqueeze(-2)


def learned_content_parts(
    queries: Float[Tensor, "B N_h H W D_k"],
    keys: Float[Tensor, "B N_h H W D_k"],
    embedding: LearnedShiftEmbedding,
    scale: float = 1.0,
) -> tuple[
    Float[Tensor, "B N_h H W H W"], Float[Tensor, "B N_h H W H"], Float[Tensor, "B N_h H W W"]
]:
    """The parts of these scores: q . k `(B, N_h, H, W, H, W)`, and q . r_delta as in
    `learned_shift_scores`, each scaled."""
    content = torch.einsum("bhijd,bhkld->bhijkl", queries, keys)
    rows, columns = learned_shift_scores(queries, embedding)
    return scale * content, scale * rows, scale * columns


def learned_shift_scores(
    queries: Float[Tensor, "B N_h H W D_k"], embedding: LearnedShiftEmbedding
) -> tuple[Float[Tensor, "B N_h H W H"], Float[Tensor, "B N_h H W W"]]:
    """q . r_delta, the second term of equation (8), as a part for each key row `(B, N_h, H, W, H)`
    and one for each key column `(B, N_h, H, W, W)`; queries as in `learned_content_scores`."""
    shifts = (axis_shifts(size, queries.device) for size in queries.shape[2:4])
    row, column = (embedding.axis(axis, delta) for axis, delta in enumerate(shifts))
    q_row, q_column = queries.split(embedding.dim, dim=-1)
    return torch.einsum("bhijd,ikd->bhijk", q_row, row), torch.einsum(
        "bhijd,jld->bhijl", q_column, column
    )
