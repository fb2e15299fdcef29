"""Trainable attention layers, computed exactly, and axis by axis if the encoding is separable.

Letters: B batch, H x W pixels, T = H * W, N_h heads, D_k key dimension. Images are `(B, H, W, D)`.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..theory.attention import spatial_softmax
from ..theory.shapes import Float
from .encodings import (
    LearnedOffsetEmbedding,
    PositionEncoding,
    QuadraticEncoding,
    SeparableEncoding,
    learned_offset_scores,
    softmax_without_tails,
)
from .tiles import (
    Support,
    Tile,
    best_tiles,
    in_tiles,
    support_of_factors,
    support_of_scores,
    tiles_may_pay,
)

# The attention of all heads, shared by all images of a batch: dense, or one factor per axis, with
# p(k | q) = rows[q_1, k_1] columns[q_2, k_2]. The queries are all H x W pixels or a subset.
Factors = tuple[Float[Tensor, "N_h Q_1 H"], Float[Tensor, "N_h Q_2 W"]]
Maps = Float[Tensor, "N_h Q_1 Q_2 H W"] | Factors


def attend(maps: Maps, X: Float[Tensor, "H W B D"]) -> Float[Tensor, "N_h Q_1 Q_2 B D"]:
    """Return each head's weighted average of the pixels for every query.

    This is equation (6) without W_val.

    Per query and channel, attention with one factor per axis costs H + W products, and dense
    attention costs `H * W`. The pixels of all images in the batch are stacked in one matrix, so
    that each matrix product covers the whole batch.
    """
    width, *each = X.shape[1:]
    X = as_in_autocast(X)
    if isinstance(maps, Tensor):
        averages = maps.flatten(3).flatten(0, 2) @ X.flatten(0, 1).flatten(1)
        return averages.view(*maps.shape[:3], *each)
    rows, columns = maps
    if torch.compiler.is_exporting():  # a merged dimension of heads and queries would be fixed
        by_rows = torch.einsum("hik,klbd->hilbd", rows, X)
        return torch.einsum("hjl,hilbd->hijbd", columns, by_rows)
    by_rows = (rows.flatten(0, 1) @ X.flatten(1)).view(*rows.shape[:2], width, X[0, 0].numel())
    return (columns.unsqueeze(1) @ by_rows).view(*rows.shape[:2], columns.shape[1], *each)


def attend_and_mix(maps: Maps, X: Tensor, by_head: Tensor) -> Float[Tensor, "H W B D_out"]:
    """Return the sum over heads of the averages of X times the matrices W^(h). Equation (11).

    X is `(H, W, B, D_in)` and `by_head` is `(N_h, D_in, D_out)`. For `D_out <= D_in`, this is
    faster than to compute all averages first and then apply W^(h).
    """
    (height, width, batch, dim_in), (heads, _, dim_out) = X.shape, by_head.shape
    if isinstance(maps, Tensor):
        V = torch.bmm(X.flatten(0, 2).expand(heads, -1, -1), by_head).unflatten(1, X.shape[:3])
        return torch.einsum("hijkl,hklbd->ijbd", maps, V)
    rows, columns = maps
    by_rows = rows.transpose(0, 1).flatten(0, 1) @ X.flatten(1)  # (H * N_h, W * B * D_in)
    V = by_rows.view(height, heads, width * batch, dim_in) @ by_head
    # expanded, because matmul would transpose V to broadcast the columns; (H, W, N_h * W)
    columns = columns.transpose(0, 1).flatten(1).expand(height, -1, -1)
    return torch.bmm(columns, V.view(height, -1, batch * dim_out)).view(height, width, batch, -1)


def as_in_autocast(X: Tensor) -> Tensor:
    """Cast X to autocast's dtype, so that products do not cast every broadcast copy of X.

    Without autocast, X is returned unchanged.
    """
    if not X.is_meta and torch.is_autocast_enabled(X.device.type):
        return X.to(torch.get_autocast_dtype(X.device.type))
    return X


def maps_of_tiles(
    encoding: PositionEncoding, height: int, width: int
) -> tuple[Support, Callable[[Tile, Tile], Maps]]:
    """Return the support of the heads (or a superset) and a function that computes maps per tile.

    The support is the set of keys with nonzero probability. Given a tile of rows and a tile of
    columns, the function returns the attention maps of the queries in those rows and columns.
    """
    if isinstance(encoding, SeparableEncoding):
        rows, columns = encoding.axis_probabilities(height, width)

        def factors(along_rows: Tile, along_columns: Tile) -> Factors:
            return rows[:, *along_rows], columns[:, *along_columns]

        return support_of_factors(rows, columns), factors
    scores = encoding.offset_scores(height, width)

    def dense(*tiles: Tile) -> Tensor:
        of_tile = scores
        for axis, tile, size in zip((1, 2), tiles, (height, width), strict=True):
            queries, keys = tile.counts
            first = tile.keys.start - tile.queries.stop + size  # the offset to the last query
            of_tile = of_tile.narrow(axis, first, queries + keys - 1).unfold(axis, keys, 1)
        of_tile = of_tile.flip(1, 2)  # (N_h, Q_1, Q_2, H, W): offsets decrease with the query
        probabilities = softmax_without_tails(of_tile.flatten(-2), height * width)
        return probabilities.view(of_tile.shape)

    return support_of_scores(scores), dense


class PositionAttention(nn.Module):
    """Multi-head self-attention whose scores depend only on the offset from query to key.

    The layer maps `(B, H, W, D_in)` to `(B, H, W, D_out)`. The weight of the linear map `value`,
    `(D_out, N_h * D_in)`, holds the matrices W^(h) = W_val^(h) W_out^(h) of equation (11) side by
    side, and its bias is b_out. `dropout` acts on the attention probabilities during training; the
    published models use 0.1. The whole batch shares the probabilities and the dropout mask, as in
    the published code.

    Internally, the layer uses the layout `(H, W, B, D)`, in which all products are plain products
    of large matrices and need no copies. An input that is a view of such a tensor, permuted by
    `(2, 0, 1, 3)`, is not copied, and the output is always such a view.
    """

    def __init__(self, encoding: PositionEncoding, dim_in: int, dim_out: int, dropout: float = 0.0):
        super().__init__()
        self.encoding = encoding
        self.dim_in, self.dim_out = dim_in, dim_out
        self.value = nn.Linear(encoding.num_heads * dim_in, dim_out)
        self.dropout = nn.Dropout(dropout)

    @property
    def num_heads(self) -> int:
        return self.encoding.num_heads

    def maps(self, height: int, width: int) -> Maps:
        """Return the attention maps after any dropout, as one factor per axis where possible."""
        # the maps are small, and their scores need full precision
        with torch.autocast(self.value.weight.device.type, enabled=False):
            if isinstance(self.encoding, SeparableEncoding) and not self._drops:
                rows, columns = self.encoding.axis_probabilities(height, width)
                return rows, columns
            return self.dropout(attention_probabilities(self, height, width))

    @property
    def _drops(self) -> bool:
        """Return whether dropout is active, which requires whole maps instead of factors."""
        return self.training and self.dropout.p > 0

    def forward(self, X: Tensor) -> Tensor:
        _expect_images(X, self.dim_in)
        X = X.permute(1, 2, 0, 3)
        output = self._in_tiles(X)
        return (self._whole(X) if output is None else output).permute(2, 0, 1, 3)

    def _in_tiles(self, X: Tensor) -> Tensor | None:
        """Compute the output for `(H, W, B, D_in)` in tiles, or return None if tiles do not pay."""
        height, width, batch, dim = X.shape
        if self._drops or not tiles_may_pay(height, width):
            return None
        with torch.autocast(X.device.type, enabled=False):
            support, maps = maps_of_tiles(self.encoding, height, width)
        separable = isinstance(self.encoding, SeparableEncoding)
        tiles = best_tiles(support, self.num_heads * batch * dim, separable)
        if tiles is None:
            return None
        return in_tiles(
            tiles, X, lambda rows, columns, keys: self._mix(attend(maps(rows, columns), keys))
        )

    def _mix(self, averages: Float[Tensor, "N_h Q_1 Q_2 B D"]) -> Float[Tensor, "Q_1 Q_2 B D_out"]:
        """Return the sum over heads of the averages times W^(h), plus b_out. Equation (11)."""
        by_query = averages.permute(1, 2, 3, 0, 4).flatten(3)  # (Q_1, Q_2, B, N_h * D_in)
        return F.linear(by_query, self.value.weight, self.value.bias)

    def _whole(self, X: Tensor) -> Tensor:
        """Return the output for `(H, W, B, D_in)`, computed with whole maps."""
        maps = self.maps(*X.shape[:2])
        if self.dim_out > self.dim_in:
            return self._mix(attend(maps, X))
        by_head = self.value.weight.unflatten(1, (-1, self.dim_in)).permute(1, 2, 0)
        return attend_and_mix(maps, as_in_autocast(X), by_head) + self.value.bias


class ContentAttention(nn.Module):
    """Multi-head self-attention that uses content and learned relative positions. Section 4.3.

    The layer maps `(B, H, W, D_in)` to `(B, H, W, D_out)`. The scores are (q . k + q . r_delta) /
    sqrt(D_k), where D_k is twice the embedding's `dim`; the scale is that of the published code.
    The bias of `query` plays the role of u and v in equation (8), and the bias of `key` cancels in
    the softmax.
    """

    def __init__(
        self,
        embedding: LearnedOffsetEmbedding,
        num_heads: int,
        dim_in: int,
        dim_out: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = embedding
        self.num_heads = num_heads
        self.dim_in, self.dim_out = dim_in, dim_out
        self.dim_key = 2 * embedding.dim
        self.query = nn.Linear(dim_in, num_heads * self.dim_key)
        self.key = nn.Linear(dim_in, num_heads * self.dim_key)
        self.value = nn.Linear(num_heads * dim_in, dim_out)
        self.dropout = dropout

    def queries_and_keys(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the queries and keys for images `(B, H, W, D_in)`, each `(B, N_h, H, W, D_k)`."""
        return tuple(
            linear(X).unflatten(-1, (self.num_heads, -1)).movedim(-2, 1)
            for linear in (self.query, self.key)
        )

    def probabilities(self, X: Tensor) -> Tensor:
        """Return dense attention maps `(B, N_h, H, W, H, W)` of images, for figures and tests."""
        content, rows, columns = self.score_parts(X)
        return spatial_softmax(content + rows.unsqueeze(-1) + columns.unsqueeze(-2))

    def score_parts(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the parts of the scores: q . k, and the row and column parts of q . r_delta.

        The parts are `(B, N_h, H, W, H, W)`, `(B, N_h, H, W, H)` and `(B, N_h, H, W, W)`, and all
        include the scale. The sum of a key's parts is its score, the first two terms of equation
        (8), as in section 4.3.
        """
        queries, keys = self.queries_and_keys(X)
        content = torch.einsum("bhijd,bhkld->bhijkl", queries, keys)
        rows, columns = learned_offset_scores(queries, self.embedding)
        scale = self.dim_key**-0.5
        return scale * content, scale * rows, scale * columns

    def forward(self, X: Tensor) -> Tensor:
        _expect_images(X, self.dim_in)
        batch, height, width, _ = X.shape
        queries, keys = self.queries_and_keys(X)
        # The queries are extended by their scores for each key row and column, and the keys by
        # their row and column as one-hot vectors. Their product thus includes q . r_delta, so that
        # no (T, T) bias is stored for each image and head.
        queries = torch.cat(
            [queries, *learned_offset_scores(queries, self.embedding)], dim=-1
        ).flatten(2, 3)
        keys = torch.cat(
            [keys.flatten(2, 3), self._positions(keys).expand(batch, self.num_heads, -1, -1)],
            dim=-1,
        )
        values = X.flatten(1, 2).unsqueeze(1).expand(-1, self.num_heads, -1, -1)
        dropout = self.dropout if self.training else 0.0
        averages = F.scaled_dot_product_attention(
            queries, keys, values, dropout_p=dropout, scale=self.dim_key**-0.5
        )
        return self.value(averages.transpose(1, 2).flatten(2)).unflatten(1, (height, width))

    def _positions(self, keys: Tensor) -> Tensor:
        """Return the row and column of each key pixel as one-hot vectors: `(T, H + W)`."""
        height, width = keys.shape[2:4]
        # expanded rather than repeated: ONNX Runtime fixes the number of repetitions
        row = torch.eye(height, dtype=keys.dtype, device=keys.device).unsqueeze(1)
        column = torch.eye(width, dtype=keys.dtype, device=keys.device)
        one_hot = [row.expand(-1, width, -1), column.expand(height, -1, -1)]
        return torch.cat(one_hot, dim=-1).flatten(0, 1)


def _expect_images(X: Tensor, dim_in: int) -> None:
    if X.ndim != 4 or X.shape[-1] != dim_in:
        raise ValueError(
            f"got an input of shape {tuple(X.shape)}, expected (batch, height, width, {dim_in})"
        )


def attention_probabilities(module_or_layer: nn.Module, height: int, width: int) -> Tensor:
    """Return the attention maps of a position-only layer or encoding.

    Args:
        module_or_layer: A `PositionEncoding`, or any module whose `encoding` is one, such as a
            `PositionAttention` or the result of `conv_to_attention` for a Conv2d.
        height: The height of the image in pixels. A converted convolution pads the image before it
            attends, so `height` and `width` are then those of the padded image, and the layer keeps
            only some of the queries.
        width: The width of the image in pixels.

    Returns:
        The probabilities of each head for each query and key, `(N_h, H, W, H, W)`.

    Raises:
        TypeError: If the argument is anything else, or is for sequences.

    Example:
        >>> import attnconv, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        >>> layer = attnconv.conv_to_attention(conv)
        >>> maps = attnconv.attention_probabilities(layer, 7, 7)  # 5 x 5, padded
        >>> maps.shape
        torch.Size([9, 7, 7, 7, 7])
        >>> maps[0, 3, 3].argmax().item() == 2 * 7 + 2  # head 0 attends up and left
        True
    """
    if isinstance(module_or_layer, ContentAttention):
        raise TypeError(
            "got a ContentAttention, whose attention depends on the image; use its method"
            " probabilities(X)"
        )
    encoding = getattr(module_or_layer, "encoding", module_or_layer)
    if not isinstance(encoding, PositionEncoding):
        raise TypeError(
            f"got {type(module_or_layer).__name__}, expected a position encoding or a layer whose"
            " `encoding` is one (for a whole network, pass one of its layers)"
        )
    if isinstance(encoding, QuadraticEncoding) and encoding.centers.shape[1] != 2:
        raise TypeError(
            "got the layer of a Conv1d, expected one for images; use"
            " encoding.axis_probabilities(length)"
        )
    scores = encoding.position_scores(height, width)
    return softmax_without_tails(scores.flatten(-2)).view(scores.shape)
