"""The trainable layers: exact, and separable where the encoding allows it.

Letters: B batch, H x W pixels, T = H * W, N_h heads, D_k key dimension. Images are `(B, H, W, D)`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import spatial_softmax
from .encodings import (
    LearnedShiftEmbedding,
    PositionEncoding,
    QuadraticEncoding,
    SeparableEncoding,
    learned_content_parts,
    learned_content_scores,
    learned_shift_scores,
)


def attend_separably(rows: Tensor, columns: Tensor, X: Tensor) -> Tensor:
    """Averages of an image under product attention p(k | q) = rows[q_1, k_1] columns[q_2, k_2], per head.

    rows `(N_h, H_q, H)`, columns `(N_h, W_q, W)`, X `(B, H, W, D)` -> `(B, H_q, W_q, N_h, D)`. Costs H + W products per
    query and channel where dense attention costs H * W.
    """
    (heads, height, _), width, batch = rows.shape, X.shape[2], len(X)
    by_rows = rows.transpose(0, 1).flatten(0, 1).expand(batch, -1, -1) @ X.flatten(2)  # (B, H_q * N_h, W * D)
    by_rows = by_rows.view(batch * height, heads, width, -1)
    return (columns @ by_rows).transpose(1, 2).unflatten(0, (batch, height))


def attend_densely(probabilities: Tensor, X: Tensor) -> Tensor:
    """Averages of an image under any attention: `(N_h, H, W, H, W)`, `(B, H, W, D)` -> `(B, H, W, N_h, D)`. Equation (6)."""
    heads, height, width = probabilities.shape[:3]
    matrix = probabilities.permute(1, 2, 0, 3, 4).flatten(3).flatten(0, 2)  # (T * N_h, T), one matrix for the whole batch
    if torch.is_autocast_enabled(X.device.type):  # before it is expanded: cast afterwards, it would be written out per image
        matrix = matrix.to(torch.get_autocast_dtype(X.device.type))
    averages = torch.bmm(matrix.expand(len(X), -1, -1), X.flatten(1, 2))
    return averages.unflatten(1, (height, width, heads))


class PositionAttention(nn.Module):
    """Multi-head self-attention whose scores depend on the shift only: `(B, H, W, D_in)` -> `(B, H, W, D_out)`.

    One linear map `value` `(D_out, N_h * D_in)` holds the matrices W^(h) = W_val^(h) W_out^(h) of equation (11) side by side,
    and b_out. `dropout` acts on the attention probabilities in training; the published models use 0.1. The probabilities, and
    what dropout leaves of them, are one for the whole batch, as in the published code.
    """

    def __init__(self, encoding: PositionEncoding, dim_in: int, dim_out: int, dropout: float = 0.0):
        super().__init__()
        self.encoding = encoding
        self.dim_in, self.dim_out = dim_in, dim_out
        self.value = nn.Linear(encoding.num_heads * dim_in, dim_out)
        self.dropout = nn.Dropout(dropout)

    def head_averages(self, X: Tensor) -> Tensor:
        """What each head sees, before the values: `(B, H, W, N_h, D_in)`."""
        sizes = X.shape[1:3]
        dropping = self.training and self.dropout.p > 0  # dropout acts on whole maps, which a product cannot express
        if isinstance(self.encoding, SeparableEncoding) and not dropping:
            with torch.autocast(X.device.type, enabled=False):  # the maps are small, their scores need every digit
                maps = self.encoding.axis_probabilities(*sizes)
            return attend_separably(*maps, X)
        with torch.autocast(X.device.type, enabled=False):
            maps = self.dropout(attention_probabilities(self, *sizes))
        return attend_densely(maps, X)

    def forward(self, X: Tensor) -> Tensor:
        _expect_images(X, self.dim_in)
        return self.value(self.head_averages(X).flatten(-2))


class ContentAttention(nn.Module):
    """Multi-head self-attention with content and learned relative positions: `(B, H, W, D_in)` -> `(B, H, W, D_out)`.

    Scores (q . k + q . r_delta) / sqrt(D_k), with D_k = 2 * dim of the embedding (section 4.3; the scale is the published
    code's). The bias of `query` does the work of u and v in equation (8); that of `key` is inert under the softmax.
    """

    def __init__(self, embedding: LearnedShiftEmbedding, num_heads: int, dim_in: int, dim_out: int, dropout: float = 0.0):
        super().__init__()
        self.embedding, self.num_heads = embedding, num_heads
        self.dim_in, self.dim_out, self.dim_key = dim_in, dim_out, 2 * embedding.dim
        self.query = nn.Linear(dim_in, num_heads * self.dim_key)
        self.key = nn.Linear(dim_in, num_heads * self.dim_key)
        self.value = nn.Linear(num_heads * dim_in, dim_out)
        self.dropout = dropout

    def queries_and_keys(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Of an image `(B, H, W, D_in)`, each `(B, N_h, H, W, D_k)`."""
        return tuple(linear(X).unflatten(-1, (self.num_heads, -1)).movedim(-2, 1) for linear in (self.query, self.key))

    def probabilities(self, X: Tensor) -> Tensor:
        """Attention probabilities on the images `(B, H, W, D_in)`: `(B, N_h, H, W, H, W)`. Dense: for figures and tests."""
        return spatial_softmax(learned_content_scores(*self.queries_and_keys(X), self.embedding, self.dim_key**-0.5))

    def score_parts(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The scores on the images in parts, see `learned_content_parts`. Dense, as `probabilities`."""
        return learned_content_parts(*self.queries_and_keys(X), self.embedding, self.dim_key**-0.5)

    def forward(self, X: Tensor) -> Tensor:
        _expect_images(X, self.dim_in)
        batch, height, width, _ = X.shape
        queries, keys = self.queries_and_keys(X)
        # by key row and by key column, against each key's one-hot row and column: so q . r_delta becomes a product of queries
        # and keys, and no (T, T) bias is stored per image and head
        queries = torch.cat([queries, *learned_shift_scores(queries, self.embedding)], dim=-1).flatten(2, 3)
        keys = torch.cat([keys.flatten(2, 3), self._positions(keys).expand(batch, self.num_heads, -1, -1)], dim=-1)
        values = X.flatten(1, 2).unsqueeze(1).expand(-1, self.num_heads, -1, -1)
        dropout = self.dropout if self.training else 0.0
        averages = F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, scale=self.dim_key**-0.5)
        return self.value(averages.transpose(1, 2).flatten(2)).unflatten(1, (height, width))

    def _positions(self, keys: Tensor) -> Tensor:
        """The row and the column of each key pixel, one-hot: `(T, H + W)`."""
        height, width = keys.shape[2:4]
        row = torch.eye(height, dtype=keys.dtype, device=keys.device).repeat_interleave(width, dim=0)
        column = torch.eye(width, dtype=keys.dtype, device=keys.device).repeat(height, 1)
        return torch.cat([row, column], dim=-1)


def _expect_images(X: Tensor, dim_in: int) -> None:
    if X.ndim != 4 or X.shape[-1] != dim_in:
        raise ValueError(f"got an input of shape {tuple(X.shape)}, expected (batch, height, width, {dim_in})")


def attention_probabilities(module_or_layer: nn.Module, height: int, width: int) -> Tensor:
    """Attention probabilities of a position-only layer, or of an encoding itself, on an image: `(N_h, H, W, H, W)`.

    A layer is any module with one `encoding`: `PositionAttention`, or what `conv_to_attention` returns for a Conv2d.
    """
    if isinstance(module_or_layer, ContentAttention):
        raise TypeError("got a ContentAttention, whose attention depends on the image; use its method probabilities(X)")
    encoding = getattr(module_or_layer, "encoding", module_or_layer)
    if not isinstance(encoding, PositionEncoding):
        raise TypeError(
            f"got {type(module_or_layer).__name__}, expected a position encoding or a layer whose `encoding` is one"
            " (of a whole network, pass one of its layers)"
        )
    if isinstance(encoding, QuadraticEncoding) and encoding.centers.shape[1] != 2:
        raise TypeError("got the layer of a Conv1d, expected one for images; use encoding.axis_probabilities(length)")
    return spatial_softmax(encoding.position_scores(height, width))
