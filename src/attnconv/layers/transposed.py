"""Transposed convolutions as self-attention: Theorem 1 applied to the image spread out.

A transposed convolution with stride s writes the kernel, scaled by the pixel, at every s-th place
of its output. This is an ordinary convolution with stride 1 of the image with s - 1 zeros between
neighbouring pixels: its kernel is reflected, input and output channels change places, and the
padding p becomes d (k - 1) - p for kernel size k and dilation d.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .conv_as_attention import (
    ConvAsAttention,
    as_one_node,
    memory_format,
    pad_image,
    with_gradient_in_format,
)


class TransposedAsAttention(ConvAsAttention):
    """A transposed convolution computed by self-attention on the image spread out. Theorem 1.

    Parameters, attributes and the argument `output_size` are those of the transposed convolution:
    `weight` is `(C_in, C_out/G, ...)`. The heads attend to the image with zeros between its pixels,
    which takes as many more products as there are more pixels.
    """

    output_padding: tuple[int, ...]

    @property
    def query_stride(self) -> tuple[int, ...]:
        return tuple(1 for _ in self.kernel_size)

    def ordinary_weight(self) -> Tensor:
        """Return the weight `(C_out, C_in/G, ...)` of the convolution of the image spread out."""
        flipped = self.weight.flip([2, 3][: len(self.kernel_size)])
        return flipped.unflatten(0, (self.groups, -1)).transpose(1, 2).flatten(0, 1)

    def pads(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Return the padding before and after the image spread out, per axis."""
        return self._pads(self.output_padding)

    def _pads(self, output_padding: Sequence[int]) -> list[tuple[int, int]]:
        """Return the padding, which is negative where the image is cropped."""
        before = [self._extent(axis) - 1 - int(pad) for axis, pad in enumerate(self.padding)]
        return [(pad, pad + extra) for pad, extra in zip(before, output_padding, strict=True)]

    def padded_sizes(self, sizes: Sequence[int]) -> list[int]:
        """Return the sizes of an image of the given sizes after spreading and padding."""
        return super().padded_sizes(_sizes_spread(sizes, self.stride))

    def padded(self, x: Tensor) -> Tensor:
        """Return images `(B, C, ...)` spread out and padded."""
        return pad_image(spread_out(x, self.stride), self.pads(x.shape[2:]), "zeros")

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        if output_size is None:
            return super().forward(input)
        if isinstance(input, torch.fx.Proxy):
            return as_one_node(self, input, output_size=output_size)
        self._check(input)
        if input.ndim == len(self.kernel_size) + 1:
            return self.forward(input.unsqueeze(0), output_size).squeeze(0).contiguous()
        extra = self._output_padding(input, output_size)
        spread = spread_out(with_gradient_in_format(input), self.stride)
        return self._attend(pad_image(spread, self._pads(extra), "zeros"))

    def _output_padding(self, x: Tensor, output_size: Sequence[int]) -> list[int]:
        """Return the output padding for which images `(B, C, ...)` get the given output size."""
        axes = len(self.kernel_size)
        padded = self.padded_sizes(x.shape[2:])
        least = [
            size - extra - self._extent(axis) + 1
            for axis, (size, extra) in enumerate(zip(padded, self.output_padding, strict=True))
        ]
        most = [size + step - 1 for size, step in zip(least, self.stride, strict=True)]
        sizes = list(output_size)[-axes:]
        given = zip(least, sizes, most, strict=False)
        number = len(output_size) in (axes, axes + 1, axes + 2)
        if not number or not all(low <= size <= high for low, size, high in given):
            raise ValueError(
                f"got the output_size {tuple(output_size)}, expected {axes} sizes from"
                f" {tuple(least)} to {tuple(most)}"
            )
        return [size - low for size, low in zip(sizes, least, strict=True)]


def _sizes_spread(sizes: Sequence[int], steps: Sequence[int]) -> list[int]:
    return [max((size - 1) * step + 1, 0) for size, step in zip(sizes, steps, strict=True)]


def spread_out(x: Tensor, steps: Sequence[int]) -> Tensor:
    """Return images `(B, C, ...)` with `step - 1` zeros between neighbouring pixels, per axis."""
    if set(steps) == {1}:
        return x
    image = x.new_zeros(*x.shape[:2], *_sizes_spread(x.shape[2:], steps))
    image = image.contiguous(memory_format=memory_format(x))
    image[(..., *(slice(None, None, step) for step in steps))] = x
    return image
