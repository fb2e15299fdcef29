"""Theorem 2 as layers: position-only attention computed by convolutions at a fixed image size.

Letters: B batch, C or D channels, H x W pixels, N_h heads.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

from .conv_as_attention import (
    ConvAsAttention,
    OwnPadding,
    pad_image,
    padding_mode_of,
    padding_of,
)
from .transposed import TransposedAsAttention


class AttentionAsConv(nn.Module):
    """A position-only attention layer computed by zero-padded convolutions, for a fixed image size.

    The module maps `(B, H, W, D_in)` to `(B, H, W, D_out)`. Head h computes a convolution and
    divides it by a border factor Z_h(q). Its kernel, `kernels[h]` `(2H - 1, 2W - 1)`, contains the
    exponentials of the head's scores, up to a constant factor that cancels in the division. The
    border factor, `border_factor[h]` `(H, W)`, is an image of ones convolved with the same kernel.
    `value` mixes the heads, as in the attention layer. The argument `scores`
    `(N_h, 2H - 1, 2W - 1)` contains the heads' scores for all offsets in ascending order.
    """

    kernels: Tensor
    border_factor: Tensor

    def __init__(self, scores: Tensor, value: nn.Linear):
        super().__init__()
        self.size = tuple((extent + 1) // 2 for extent in scores.shape[1:])
        scores = scores - scores.amax(dim=(1, 2), keepdim=True)
        self._set_kernels(scores.exp())
        if (small := _is_out_of_range(self.border_factor)).any():
            # a factor in the kernel also scales the border factor, and the two cancel
            scores[small] += math.log(torch.finfo(scores.dtype).max) / 4
            self._set_kernels(scores.exp())
        _expect_in_range(self.border_factor)
        self.value = value

    def _set_kernels(self, kernels: Tensor) -> None:
        self.register_buffer("kernels", kernels)
        ones = kernels.new_ones(1, *self.size)
        self.register_buffer("border_factor", self.convolve(ones).squeeze(0))

    def convolve(self, images: Tensor) -> Tensor:
        """Return images `(N, H, W)` convolved with each head's kernel: `(N, N_h, H, W)`."""
        height, width = self.size
        return F.conv2d(
            images.unsqueeze(1), self.kernels.unsqueeze(1), padding=(height - 1, width - 1)
        )

    def forward(self, X: Tensor) -> Tensor:
        if X.ndim != 4 or tuple(X.shape[1:3]) != self.size:
            raise ValueError(
                f"got an input of shape {tuple(X.shape)}, expected (batch,"
                f" {', '.join(map(str, self.size))}, channels)"
            )
        images = X.movedim(-1, 1)  # (B, D_in, H, W)
        heads = self.convolve(images.flatten(0, 1)) / self.border_factor  # (B * D_in, N_h, H, W)
        heads = heads.unflatten(0, images.shape[:2]).permute(0, 3, 4, 2, 1)
        return self.value(heads.flatten(-2))


class HeadsAsConv(nn.Module):
    """A `ConvAsAttention` layer with arbitrary alphas and centres, computed by convolutions.

    Input and output are `(B, C, ...)`. Images must have the given `sizes` and are padded as in the
    attention layer. Head h computes zero-padded convolutions, one axis at a time, and divides the
    result by `border_factor[h]`. The kernels contain the exponentials of its scores, and the border
    factor is an image of ones convolved with them. `mix` applies the matrices W^(h).
    """

    border_factor: Tensor

    def __init__(self, layer: ConvAsAttention, sizes: Sequence[int]):
        super().__init__()
        self.sizes = tuple(sizes)
        self.pads = layer.pads(sizes)
        self.padding_mode = padding_mode_of(layer, layer.own_padding)
        padded = layer.padded_sizes(sizes)
        self.along = nn.Sequential(*(_along_axis(layer, n, size) for n, size in enumerate(padded)))
        self.register_buffer("border_factor", self.along(layer.weight.new_ones(1, 1, *padded))[0])
        _expect_in_range(self.border_factor)
        self.mix = _with_values_of(layer, layer.num_heads * layer.in_channels, kernel_size=1)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim == len(self.sizes) + 1:
            return self(input.unsqueeze(0)).squeeze(0)
        if tuple(input.shape[2:]) != self.sizes:
            raise ValueError(
                f"got an input of shape {tuple(input.shape)}, expected images of {self.sizes}"
                " pixels, for which the network was converted; convert it for another size"
            )
        images = pad_image(input, self.pads, self.padding_mode).flatten(0, 1).unsqueeze(1)
        heads = self.along(images) / self.border_factor  # (B * C, N_h, ...)
        return self.mix(heads.unflatten(0, input.shape[:2]).flatten(1, 2))


def _along_axis(layer: ConvAsAttention, axis: int, pixels: int) -> nn.Conv1d | nn.Conv2d:
    """Return the convolution along one axis of the padded image, with one kernel per head."""
    queries = layer.queries(axis, pixels)
    # all offsets, from (last query, first pixel) to (first query, last pixel)
    shifts = torch.arange(-queries[-1], pixels - queries[0], device=layer.weight.device)
    scores = layer.encoding.axis_scores(axis, shifts)

    def on_axis(value: int, other: int) -> tuple[int, ...]:
        return tuple(value if n == axis else other for n in range(len(layer.kernel_size)))

    conv = _convolution(
        layer,
        in_channels=layer.num_heads if axis else 1,
        out_channels=layer.num_heads,
        kernel_size=on_axis(len(shifts), 1),
        stride=on_axis(queries.step, 1),
        padding=on_axis(queries[-1] - queries[0], 0),
        groups=layer.num_heads if axis else 1,
        bias=False,
    )
    kernel = (scores - scores.amax(dim=1, keepdim=True)).exp()
    conv.weight.copy_(kernel.view_as(conv.weight))
    return conv.requires_grad_(False)


class _PadsFirst(nn.Module):
    """A convolution that first pads its images with zeros, in a way of its own."""

    first_padding: OwnPadding

    def forward(self, input: Tensor) -> Tensor:
        conv: Any = self
        sizes = input.shape[-len(conv.kernel_size) :]
        padded = pad_image(input, padding_of(conv, self.first_padding, sizes), "zeros")
        return conv._conv_forward(padded, conv.weight, conv.bias)


class PaddedConv1d(_PadsFirst, nn.Conv1d):
    """A 1D convolution that first pads its images in a way of its own."""


class PaddedConv2d(_PadsFirst, nn.Conv2d):
    """A 2D convolution that first pads its images in a way of its own."""


def plain_convolution(layer: ConvAsAttention) -> nn.Module:
    """Return a layer whose heads are one-hot on the kernel's pixels as a plain convolution.

    It is transposed if the layer is, and a `PaddedConv1d` or `PaddedConv2d` if the layer has a
    padding of its own.
    """
    transposed = isinstance(layer, TransposedAsAttention)
    conv = _with_values_of(
        layer,
        layer.in_channels,
        kernel_size=layer.kernel_size,
        stride=layer.stride,
        padding=0 if layer.own_padding else layer.padding,
        dilation=layer.dilation,
        padding_mode=padding_mode_of(layer, layer.own_padding),
        **({"output_padding": layer.output_padding} if transposed else {}),
    )
    if layer.own_padding is None:
        return conv
    padded = cast(_PadsFirst, conv)
    padded.__class__ = PaddedConv1d if isinstance(conv, nn.Conv1d) else PaddedConv2d
    padded.first_padding = layer.own_padding
    return padded


def _with_values_of(
    layer: ConvAsAttention, in_channels: int, **options: Any
) -> nn.Conv1d | nn.Conv2d:
    """Return a convolution with the matrices W^(h), the bias and the groups of a layer."""
    conv = _convolution(
        layer,
        in_channels=in_channels,
        out_channels=layer.out_channels,
        groups=layer.groups,
        bias=layer.bias is not None,
        **options,
    )
    weight = layer.weight.reshape(conv.weight.shape)
    conv.weight.copy_(weight).requires_grad_(layer.weight.requires_grad)
    if layer.bias is not None and conv.bias is not None:
        conv.bias.copy_(layer.bias).requires_grad_(layer.bias.requires_grad)
    return conv


def _convolution(layer: ConvAsAttention, **options: Any) -> nn.Conv1d | nn.Conv2d:
    """Return a convolution with a layer's dtype and device, without drawing random numbers."""
    kinds: tuple[type, ...] = (nn.Conv1d, nn.Conv2d)
    if "output_padding" in options:
        kinds = (nn.ConvTranspose1d, nn.ConvTranspose2d)
    kind = kinds[len(layer.kernel_size) - 1]
    like = {"dtype": layer.weight.dtype, "device": layer.weight.device}
    return cast(nn.Conv1d | nn.Conv2d, skip_init(kind, **options, **like))


def _is_out_of_range(border_factor: Tensor) -> Tensor:
    """Return a mask `(N_h,)` of the heads whose border factor is too small for its dtype."""
    info = torch.finfo(border_factor.dtype)
    smallest = border_factor.flatten(1).amin(dim=1)
    return ~(smallest >= info.smallest_normal / info.eps)  # NaN is out of range as well


def _expect_in_range(border_factor: Tensor) -> None:
    """Raise ValueError if any head's border factor `(N_h, ...)` is out of range for its dtype."""
    if _is_out_of_range(border_factor).any():
        dtype = border_factor.dtype
        smallest = border_factor.flatten(1).amin(dim=1)
        head = int(smallest.argmin())
        raise ValueError(
            f"the border factor of head {head + 1} falls to {float(smallest[head]):.1e}, too small"
            f" for {dtype}; use a smaller alpha, or centres nearer to the query"
            + (", or float64" if dtype != torch.float64 else "")
        )
