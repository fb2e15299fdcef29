"""The trainable layers: exact, and separable where the encoding allows it.

Letters: B batch, H x W pixels, N_h heads. Images are `(B, H, W, D)`.
"""

import torch
from torch import Tensor, nn

from .attention import spatial_softmax
from .encodings import PositionEncoding, QuadraticEncoding, SeparableEncoding


def attend_separably(rows: Tensor, columns: Tensor, X: Tensor) -> Tensor:
    """Averages of an image under product attention p(k | q) = rows[q_1, k_1] columns[q_2, k_2], per head.

    rows `(N_h, H_q, H)`, columns `(N_h, W_q, W)`, X `(B, H, W, D)` -> `(B, H_q, W_q, N_h, D)`. Costs H + W products per
    query and channel where dense attention costs H * W.
    """
    by_columns = torch.einsum("hpw,bkwd->bkphd", columns, X)
    return torch.einsum("hqk,bkphd->bqphd", rows, by_columns)


def attend_densely(probabilities: Tensor, X: Tensor) -> Tensor:
    """Averages of an image under any attention: `(N_h, H, W, H, W)`, `(B, H, W, D)` -> `(B, H, W, N_h, D)`. Equation (6)."""
    return torch.einsum("hijkl,bkld->bijhd", probabilities, X)


class PositionAttention(nn.Module):
    """Multi-head self-attention whose scores depend on the shift only: `(B, H, W, D_in)` -> `(B, H, W, D_out)`.

    One linear map `value` `(D_out, N_h * D_in)` holds the matrices W^(h) = W_val^(h) W_out^(h) of equation (11) side by side,
    and b_out. `dropout` acts on the attention probabilities in training; the published models use 0.1.
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
            return attend_separably(*self.encoding.axis_probabilities(*sizes), X)
        return attend_densely(self.dropout(attention_probabilities(self, *sizes)), X)

    def forward(self, X: Tensor) -> Tensor:
        if X.ndim != 4 or X.shape[-1] != self.dim_in:
            raise ValueError(f"got an input of shape {tuple(X.shape)}, expected (batch, height, width, {self.dim_in})")
        return self.value(self.head_averages(X).flatten(-2))


def attention_probabilities(module_or_layer: nn.Module, height: int, width: int) -> Tensor:
    """Attention probabilities of a position-only layer, or of an encoding itself, on an image: `(N_h, H, W, H, W)`.

    A layer is any module with one `encoding`: `PositionAttention`, or what `conv_to_attention` returns for a Conv2d.
    """
    encoding = getattr(module_or_layer, "encoding", module_or_layer)
    if not isinstance(encoding, PositionEncoding):
        raise TypeError(
            f"got {type(module_or_layer).__name__}, expected a position encoding or a layer whose `encoding` is one"
            " (of a whole network, pass one of its layers)"
        )
    if isinstance(encoding, QuadraticEncoding) and encoding.centers.shape[1] != 2:
        raise TypeError("got the layer of a Conv1d, expected one for images; use encoding.axis_probabilities(length)")
    return spatial_softmax(encoding.position_scores(height, width))
