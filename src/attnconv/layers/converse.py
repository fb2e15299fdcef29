"""The converse (Theorem 2) for layers: position-only attention computed by convolutions.

Letters: B batch, D channels, H x W pixels, N_h heads. Images are `(B, H, W, D)`.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import PositionAttention
from .encodings import PositionEncoding


class AttentionAsConv(nn.Module):
    """A position-only attention layer computed by zero-padded convolutions, for a fixed image size.

    The module maps `(B, H, W, D_in)` to `(B, H, W, D_out)`. Head h computes a convolution and
    divides it by a border factor Z_h(q). Its kernel, `kernels[h]` `(2H - 1, 2W - 1)`, contains the
    exponentials of the head's scores, up to a constant factor that cancels in the division. The
    border factor, `border_factor[h]` `(H, W)`, is an image of ones convolved with the same kernel.
    `value` mixes the heads, as in the attention layer.
    """

    kernels: Tensor
    border_factor: Tensor

    def __init__(self, kernels: Tensor, value: nn.Linear):
        super().__init__()
        self.register_buffer("kernels", kernels)
        self.size = tuple((extent + 1) // 2 for extent in kernels.shape[1:])
        ones = kernels.new_ones(1, *self.size)
        self.register_buffer("border_factor", self.convolve(ones).squeeze(0))
        self.value = value

    def convolve(self, images: Tensor) -> Tensor:
        """Return images `(N, H, W)` convolved with each head's kernel: `(N, N_h, H, W)`."""
        height, width = self.size
        return F.conv2d(
            images.unsqueeze(1), self.kernels.unsqueeze(1), padding=(height - 1, width - 1)
        )

    def forward(self, X: Tensor) -> Tensor:
        height, width = self.size
        if X.ndim != 4 or tuple(X.shape[1:3]) != self.size:
            raise ValueError(
                f"got an input of shape {tuple(X.shape)}, expected (batch, {height}, {width},"
                " channels)"
            )
        batch, channels = X.shape[0], X.shape[-1]
        # (B * D_in, N_h, H, W)
        heads = self.convolve(X.movedim(-1, 1).flatten(0, 1)) / self.border_factor
        heads = heads.unflatten(0, (batch, channels)).permute(0, 3, 4, 2, 1)  # (B, H, W, N_h, D_in)
        return self.value(heads.flatten(-2))


def attention_to_conv(layer: PositionAttention, height: int, width: int) -> AttentionAsConv:
    """Convert a position-only attention layer to zero-padded convolutions. Theorem 2.

    For any position-only encoding, the result is exact on `height` x `width` images, including the
    border, if dropout is off. Raises ValueError if a head is so sharp that its border factor is out
    of range for the dtype (all its terms underflow, although their ratios are defined).
    """
    if not isinstance(layer, PositionAttention) or not isinstance(layer.encoding, PositionEncoding):
        raise TypeError(
            f"got {type(layer).__name__}, expected a PositionAttention layer, whose scores depend"
            " on positions only"
        )
    with torch.no_grad():
        scores = layer.encoding.shift_scores(height, width)
        scores = scores - scores.amax(dim=(1, 2), keepdim=True)
        module = AttentionAsConv(scores.exp(), copy.deepcopy(layer.value))
        if (small := is_out_of_range(module.border_factor)).any():
            # a factor in the kernel also scales the border factor, and the two cancel
            scores[small] += math.log(torch.finfo(scores.dtype).max) / 4
            module = AttentionAsConv(scores.exp(), module.value)
    expect_in_range(module.border_factor)
    return module.train(layer.training)


def is_out_of_range(border_factor: Tensor) -> Tensor:
    """Return a mask `(N_h,)` of the heads whose border factor is too small for its dtype."""
    info = torch.finfo(border_factor.dtype)
    smallest = border_factor.flatten(1).amin(dim=1)
    return ~(smallest >= info.smallest_normal / info.eps)  # NaN is out of range as well


def expect_in_range(border_factor: Tensor) -> None:
    """Raise ValueError if any head's border factor `(N_h, ...)` is out of range for its dtype."""
    if is_out_of_range(border_factor).any():
        dtype, smallest = border_factor.dtype, border_factor.flatten(1).amin(dim=1)
        head = int(smallest.argmin())
        raise ValueError(
            f"the border factor of head {head + 1} falls to {float(smallest[head]):.1e}, too small"
            f" for {dtype}; use a smaller alpha, or centres nearer to the query"
            + (", or float64" if dtype != torch.float64 else "")
        )
