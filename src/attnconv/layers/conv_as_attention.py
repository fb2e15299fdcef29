"""Theorem 1 as a layer: a convolution with any hyper-parameters, computed by self-attention.

This is the fast counterpart of `theory.theorem1`.

Letters: B batch, C channels, n spatial dimensions, N_h heads (one per kernel offset), G groups. The
layout is torch's `(B, C, ...)`, as in the original convolutions.
"""

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..theory.grid import offset_set
from ..theory.shapes import Float
from ..theory.theorem1 import hard_alpha
from .attention import as_in_autocast, attend
from .encodings import QuadraticEncoding, softmax_without_tails
from .shifts import Shifts, add_shifted, as_shifts, average
from .state_dict import load_from_convolution, save_as_convolution, side_by_side
from .tiles import Tile, best_tiles, in_tiles, support_of_factors
from .values import can_be_read, only_shapes_are_known

#: How a layer pads with zeros if its attributes do not say it: by these numbers of pixels before
#: and after the image, per axis (negative numbers crop), or "by stride", as TensorFlow's "same"
#: padding does, so that there is one output for every stride that begins in the image.
OwnPadding = tuple[tuple[int, int], ...] | Literal["by stride"]


class ConvAsAttention(nn.Module):
    """A convolution computed by self-attention with the quadratic encoding. Theorem 1.

    Input and output are `(B, C, ...)`. As in torch, the output is channels-last if the input or the
    convolution's weight is. Head h attends to the pixel at the offset Delta^(h) of the kernel and
    applies its matrix W^(h). The paper's constructions cover every hyper-parameter of torch's
    convolutions: the image is padded first and the border queries are cropped (padding), only every
    s-th query is kept (stride), the offsets are spread out (dilation), and W^(h) is block diagonal
    (groups). The softmax is taken along one axis at a time, which is exact for this encoding. Heads
    with a common alpha and integer centres are shifts of one another, so the image is averaged only
    once. If the heads are one-hot in the dtype, the image is shifted without averaging. Products
    with zero probabilities are skipped.

    `attend_instead` makes the layer from a convolution. It keeps the convolution's attributes,
    buffers, hooks and parameters: `weight` is `(C_out, C_in/G, ...)`, and W^(h) is its slice at one
    kernel position. `encoding` contains the centres and alpha, which are not trained unless
    `encoding.requires_grad_()` is called. Unless the heads are one-hot, an infinite or NaN pixel
    affects every output (0 * inf is NaN). To use a half-precision convolution in a wider dtype,
    change its dtype before the conversion, because the default alpha depends on the dtype. A layer
    whose kernel reaches 256 pixels in bfloat16, or 2048 in float16, raises ValueError when it is
    called, because the dtype cannot tell those pixels apart; going back to a wider dtype does not
    restore their rounded centres.

    The layer and the convolution can load each other's state_dict; see `layers.state_dict`.
    """

    in_channels: int
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: str | tuple[int, ...]
    padding_mode: str
    weight: Tensor
    bias: Tensor | None
    encoding: QuadraticEncoding
    own_padding: OwnPadding | None = None
    # the sizes, centres and spreads for which `shifts` was last called, and its result
    _known: tuple[tuple[int, ...], list[Tensor], Shifts | None] | None

    def __getstate__(self) -> dict[str, Any]:  # the cache can be large
        return super().__getstate__() | {"_known": None}

    def __prepare_scriptable__(self):  # torch.jit.script calls it
        raise TypeError(
            "an attention layer cannot be scripted; use torch.jit.trace or torch.export, or script"
            " the network that attnconv.convert_back returns"
        )

    @property
    def num_heads(self) -> int:
        return self.encoding.num_heads

    def extra_repr(self) -> str:
        size = " x ".join(map(str, self.kernel_size))
        return (
            f"{self.in_channels}, {self.out_channels}, kernel={size}, heads={self.num_heads},"
            f" groups={self.groups}"
        )

    def pads(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Return the padding in pixels before and after an image of the given sizes, per axis."""
        return padding_of(self, self.own_padding, sizes)

    def padded_sizes(self, sizes: Sequence[int]) -> list[int]:
        """Return the sizes of an image of the given sizes after padding."""
        return [size + sum(pads) for size, pads in zip(sizes, self.pads(sizes), strict=True)]

    def padded(self, x: Tensor) -> Tensor:
        """Return images `(B, C, ...)` padded as the layer pads them."""
        mode = padding_mode_of(self, self.own_padding)
        return pad_image(x, self.pads(x.shape[2:]), mode)

    @property
    def query_stride(self) -> tuple[int, ...]:
        """The step from one kept query to the next, per axis of the padded image."""
        return self.stride

    def ordinary_weight(self) -> Tensor:
        """Return the weight `(C_out, C_in/G, ...)` of the convolution of the padded image."""
        return self.weight

    def value_matrices(self) -> Float[Tensor, "N_h C_in C_out"]:
        """Return the matrix W^(h) of each head (block diagonal for grouped convolutions)."""
        blocks = side_by_side(self.ordinary_weight(), self.groups)
        return torch.stack([torch.block_diag(*blocks[:, :, h].mT) for h in range(self.num_heads)])

    def _bounds(self, axis: int, size: int) -> tuple[int, int, int]:
        """Return the start, end and step of the kept queries along one axis."""
        first = self.dilation[axis] * ((self.kernel_size[axis] - 1) // 2)
        return first, first + size + 1 - self._extent(axis), self.query_stride[axis]

    def queries(self, axis: int, size: int) -> range:
        """Return the queries kept by cropping and striding along one axis of the padded image."""
        return range(*self._bounds(axis, size))

    def _extent(self, axis: int) -> int:
        """Return the size in pixels of the dilated kernel along one axis."""
        return self.dilation[axis] * (self.kernel_size[axis] - 1) + 1

    def axis_probabilities(self, axis: int, size: int) -> Float[Tensor, "N_h queries {size}"]:
        """Return the attention factor of the kept queries for one axis of the padded image."""
        # `range` would fix the size in an exported graph
        queries = torch.arange(*self._bounds(axis, size), device=self.weight.device)
        keys = torch.arange(size, device=self.weight.device)
        return softmax_without_tails(self.encoding.axis_scores(axis, keys - queries.unsqueeze(-1)))

    def forward(self, input: Tensor) -> Tensor:  # the name in torch's convolutions
        if isinstance(input, torch.fx.Proxy):
            return as_one_node(self, input)
        self._check(input)
        if input.ndim == len(self.kernel_size) + 1:
            return self.forward(input.unsqueeze(0)).squeeze(0).contiguous()
        return self._attend(self.padded(with_gradient_in_format(input)))

    def _attend(self, x: Tensor) -> Tensor:
        """Return the output for padded images."""
        last = torch.channels_last in (memory_format(self.weight), memory_format(x))
        layout = torch.channels_last if last else torch.contiguous_format
        shifts = self.shifts(x.shape[2:])
        x = self.along_axes(x) if shifts is None else self.by_shifts(x, shifts)
        if self.bias is not None:
            bias = self.bias.to(x.dtype).view(-1, *(1,) * len(self.kernel_size))
            in_place = can_be_read(bias) and can_be_read(x)  # saves a copy of the output
            x = x.add_(bias) if in_place else x + bias
        return _in_memory_format(x, layout)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the output for code that kept the convolution's own `forward`, which calls this.

        Raises ValueError for any weight or bias but the layer's own.
        """
        if weight is not self.weight or bias is not self.bias:
            raise ValueError(
                "got a weight or bias that is not the layer's own, expected its own; pass others"
                " with torch.func.functional_call"
            )
        return self.forward(input)

    def shifts(self, sizes: Sequence[int]) -> Shifts | None:
        """Return the heads as shifts of one head on padded images of the given sizes, or None.

        The result is None if the heads are not shifts of one another, or if their centres or alphas
        are being trained. It is cached as long as the sizes, centres and alphas do not change.
        """
        values = [self.encoding.centers, self.encoding.spread]
        trained = torch.is_grad_enabled() and any(value.requires_grad for value in values)
        if trained or not all(map(can_be_read, values)):
            return None
        known = self._known
        if known is None or known[0] != tuple(sizes) or not all(map(_same, known[1], values)):
            queries = [self.queries(axis, size) for axis, size in enumerate(sizes)]
            with torch.inference_mode(False):  # training may use the cached tensors later
                copies = [value.detach().clone() for value in values]
                known = self._known = tuple(sizes), copies, as_shifts(self.encoding, queries, sizes)
        return known[2]

    def by_shifts(self, x: Tensor, shifts: Shifts) -> Tensor:
        """Return the output without bias for a padded image, computed from one head's average.

        The averages of the other heads are shifts of this average.
        """
        # Cast both here, because a cast inside would meet gradients of a different dtype.
        x = as_in_autocast(x)
        blocks = side_by_side(as_in_autocast(self.ordinary_weight()), self.groups).permute(
            2, 0, 3, 1
        )
        queries = [len(self.queries(axis, size)) for axis, size in enumerate(x.shape[2:])]
        corners = [(0, *corner)[-2:] for corner in shifts.corners]  # a sequence: one row
        stride = (1, *self.query_stride)[-2:]
        kept = [1, *queries][-2:]
        with torch.autocast(x.device.type, enabled=False):
            image = _as_image(x).permute(2, 0, 3, 1)
            averages = average(shifts.probabilities, image)
            total = add_shifted(averages, blocks, corners, kept, stride).permute(1, 3, 0, 2)
        return total if x.ndim == 4 else total.squeeze(2)

    def along_axes(self, x: Tensor) -> Tensor:
        """Return the output without bias for a padded image, for any alpha and centres.

        The heads attend along one axis at a time, which is exact for this encoding.
        """
        factors = [self.axis_probabilities(axis, size) for axis, size in enumerate(x.shape[2:])]
        rows, columns = [x.new_ones(self.num_heads, 1, 1), *factors][-2:]
        images = _as_image(x).permute(2, 3, 0, 1)  # (H, W, B, C)
        weight = side_by_side(self.ordinary_weight(), self.groups)

        def mix(along_rows: Tile, along_columns: Tile, keys: Tensor) -> Tensor:
            factors = rows[:, *along_rows], columns[:, *along_columns]
            averages = attend(factors, keys).unflatten(-1, (self.groups, -1))
            return torch.einsum("hijbgc,gohc->ijbgo", averages, weight).flatten(3)

        products = self.num_heads * images[0, 0].numel()
        tiles = best_tiles(support_of_factors(rows, columns), products, separable=True)
        whole = Tile(slice(None), slice(None))
        total = in_tiles(tiles, images, mix) if tiles else mix(whole, whole, images)
        total = total.permute(2, 3, 0, 1)
        return total if x.ndim == 4 else total.squeeze(2)

    def _check(self, x: Tensor) -> None:
        if reason := too_far(self, self.weight.dtype):
            raise ValueError(f"the layer cannot compute its convolution: {reason}")
        n = len(self.kernel_size)
        if x.ndim not in (n + 1, n + 2) or x.shape[-n - 1] != self.in_channels:
            expected = f"([batch,] {self.in_channels}, {'length' if n == 1 else 'height, width'})"
            raise ValueError(f"got an input of shape {tuple(x.shape)}, expected {expected}")
        for axis, padded in enumerate(self.padded_sizes(x.shape[-n:])):
            extent = self._extent(axis)
            if padded < extent:
                raise ValueError(
                    f"axis {axis} has {padded} pixels with padding, expected at least the dilated"
                    f" kernel's {extent}"
                )


def as_one_node(layer: ConvAsAttention, input: torch.fx.Proxy, **named: Any) -> Any:
    """Return the layer's output in a symbolic trace, where it stays one node, as a convolution."""
    tracer = cast(torch.fx.Tracer, input.tracer)
    if tracer.root is layer:
        raise TypeError(
            "got an attention layer to trace by itself, expected a network that contains it; trace"
            " torch.nn.Sequential(layer)"
        )
    return tracer.create_proxy("call_module", tracer.path_of_module(layer), (input,), named)


def padding_of(
    layer: Any, own_padding: OwnPadding | None, sizes: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the padding before and after images of the given sizes, per axis.

    `layer` is a convolution or a `ConvAsAttention`, whose `padding` counts if it has none of its
    own.
    """
    totals = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
    if own_padding == "by stride":
        rests = [(size - 1) % step for size, step in zip(sizes, layer.stride, strict=True)]
        totals = [max(total - rest, 0) for total, rest in zip(totals, rests, strict=True)]
    elif own_padding is not None:
        return list(own_padding)
    elif layer.padding == "valid":
        return [(0, 0) for _ in totals]
    elif layer.padding != "same":
        return [(int(pad), int(pad)) for pad in layer.padding]
    return [(total // 2, total - total // 2) for total in totals]


def padding_mode_of(layer: Any, own_padding: OwnPadding | None) -> str:
    """Return how a layer pads: with zeros if the padding is its own, or as it states."""
    return "zeros" if own_padding else layer.padding_mode


def pad_image(x: Tensor, padding: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """Return images `(B, C, ...)` padded on both sides of each axis, as in a convolution."""
    pads = [pad for before_after in reversed(padding) for pad in before_after]
    if not any(pads):
        return x  # `F.pad` would copy the images
    return F.pad(x, pads, mode="constant" if mode == "zeros" else mode)


def memory_format(x: Tensor) -> torch.memory_format:
    """Return the memory format that torch's operations give to the output for an input `x`.

    It is channels-last if the strides of images grow from the channels to the columns, the rows and
    the batch, even with gaps between the pixels, as in a cropped image.
    """
    least = 1
    for axis in (1, 3, 2, 0) if x.ndim == 4 else ():
        ambiguous = axis == 0 and least == x.stride(1)  # torch calls N x 1 x 1 x 1 contiguous
        if not x.shape[axis] or x.stride(axis) < least or ambiguous:
            return torch.contiguous_format
        least = x.stride(axis) * x.shape[axis]
    return torch.channels_last if x.ndim == 4 else torch.contiguous_format


def _in_memory_format(x: Tensor, layout: torch.memory_format) -> Tensor:
    """Return a tensor in a memory format, copied only if the order of its values differs.

    Unlike `contiguous`, this also gives axes of size one the strides of the memory format.
    """
    if only_shapes_are_known():  # `reshape` would restrict the sizes of an exported graph
        return x.clone(memory_format=layout)
    if layout == torch.channels_last:
        return _in_memory_format(x.movedim(1, -1), torch.contiguous_format).movedim(-1, 1)
    return x.reshape(-1).view(x.shape)


def with_gradient_in_format(x: Tensor) -> Tensor:
    """Return images or sequences whose gradient will have their own memory format.

    The products of a layer compute it in another order. For a single image, the strides of this
    order are those that the backward pass of torch's batch normalisation misreads.
    """
    if only_shapes_are_known() or not (torch.is_grad_enabled() and x.requires_grad):
        return x
    return _in_memory_format(x, memory_format(x))


def _as_image(x: Tensor) -> Tensor:
    """Return a sequence as an image of one row, and an image unchanged."""
    return x if x.ndim == 4 else x.unsqueeze(2)


def _same(ours: Tensor, theirs: Tensor) -> bool:
    return (ours.device, ours.dtype) == (theirs.device, theirs.dtype) and torch.equal(ours, theirs)


def too_far(layer: Any, dtype: torch.dtype) -> str | None:
    """Return why a dtype cannot tell apart the pixels that a layer's kernel reaches, or None."""
    reach = max(d * (k // 2) for d, k in zip(layer.dilation, layer.kernel_size, strict=True))
    known = round(2 / torch.finfo(dtype).eps)  # all whole numbers up to this one
    if reach < known:
        return None
    return (
        f"its kernel reaches {reach} pixels, but {dtype} can tell pixels apart only at"
        f" distances below {known}; make the convolution float32 before converting it to attention"
    )


def attend_instead(
    conv: Any, alpha: float | None = None, kind: type[ConvAsAttention] = ConvAsAttention
) -> ConvAsAttention:
    """Turn a convolution into attention in place, so that every reference to it follows."""
    dtype = conv.weight.dtype
    centers = offset_set(conv.kernel_size, conv.dilation).to(conv.weight.detach())
    encoding = QuadraticEncoding.from_alpha(centers, hard_alpha(dtype) if alpha is None else alpha)
    layer = cast(ConvAsAttention, conv)
    layer.__class__ = kind
    layer.encoding = encoding.train(conv.training)
    layer._known = None
    layer.register_state_dict_post_hook(save_as_convolution)
    layer.register_load_state_dict_pre_hook(load_from_convolution)
    return layer
