"""Theorem 2 for networks: position-only attention computed by convolutions at a fixed image size.

Letters: B batch, C channels, N_h heads. The layout is `(B, C, ...)`.
"""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init
from torch.utils._python_dispatch import TorchDispatchMode

from .attention import PositionAttention
from .conv import ConvAsAttention, is_compiled, pad_image
from .converse import attention_to_conv, expect_in_range
from .state_dict import selects_pixels, weight_by_channel

POSITION_ONLY = (PositionAttention, ConvAsAttention)
# operations that compute attention; a softmax does so if it normalises over the keys of each query
SOFTMAX = ("aten::_softmax", "aten::_safe_softmax")
FUSED = ("scaled_dot_product", "multi_head_attention", "transformer_encoder")


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
        self.sizes, self.padding, self.padding_mode = sizes, layer.padding, layer.padding_mode
        self.along, padded, heads = nn.Sequential(), _padded(layer, sizes), layer.num_heads
        for axis, pixels in enumerate(padded):
            queries = layer.queries(axis, pixels)
            reach = queries[-1] - queries[0]

            def on_axis(value: int, other: int, axis: int = axis) -> tuple[int, ...]:
                return tuple(value if each == axis else other for each in range(len(sizes)))

            # all shifts, from (last query, first pixel) to (first query, last pixel)
            shifts = torch.arange(-queries[-1], pixels - queries[0], device=layer.weight.device)
            scores = layer.encoding.axis_scores(axis, shifts)
            channels, options = (heads, heads) if axis else (1, heads), {"bias": False}
            options |= {"stride": on_axis(queries.step, 1), "padding": on_axis(reach, 0)}
            conv = _convolution(
                layer, *channels, on_axis(len(shifts), 1), groups=channels[0], **options
            )
            kernel = (scores - scores.amax(dim=1, keepdim=True)).exp()
            conv.weight.copy_(kernel.view_as(conv.weight))
            self.along.append(conv.requires_grad_(False))
        self.register_buffer("border_factor", self.along(layer.weight.new_ones(1, 1, *padded))[0])
        expect_in_range(self.border_factor)
        self.mix = _with_values_of(layer, layer.in_channels * heads, layer.out_channels, 1)

    def forward(self, input: Tensor) -> Tensor:
        n = len(self.sizes)
        if input.ndim == n + 1:
            return self(input.unsqueeze(0)).squeeze(0)
        if tuple(input.shape[2:]) != tuple(self.sizes):
            raise ValueError(
                f"got an input of shape {tuple(input.shape)}, expected images of"
                f" {tuple(self.sizes)} pixels, for which the network was converted; convert it for"
                " another size"
            )
        images = pad_image(input, self.padding, self.padding_mode).flatten(0, 1).unsqueeze(1)
        heads = self.along(images) / self.border_factor  # (B * C, N_h, ...)
        return self.mix(heads.unflatten(0, input.shape[:2]).flatten(1, 2))


def convert_back(network: nn.Module, height: int, width: int | None = None) -> nn.Module:
    """Return a copy of a network with convolutions in place of position-only attention. Theorem 2.

    The copy is returned in evaluation mode, in which it is exact on images of `height` x `width`
    pixels or, without a width, on sequences of length `height`. Layers made by `conv_to_attention`
    become plain convolutions again, exact at any size, if their heads are one-hot on the kernel's
    pixels. In other position-only layers, the heads become zero-padded convolutions divided by a
    border factor (`HeadsAsConv`, `attention_to_conv`). All other modules are kept, and the original
    network is not changed.

    Raises TypeError for attention that depends on the image. If a layer's heads are not one-hot,
    raises ValueError if the network never runs the layer or runs it at several sizes, or if its
    border factor is out of range. These errors name the module. Also raises ValueError if the
    network does not run on an image of the given size.
    """
    met = _sizes_met(network, [height] if width is None else [height, width])
    network, converted = copy.deepcopy(network).eval(), {}
    for path, layer in list(network.named_modules(remove_duplicate=False)):
        if not isinstance(layer, POSITION_ONLY):
            continue
        if is_compiled(path):
            raise TypeError(f"cannot convert {path} back: it is compiled; convert it before that")
        if layer not in converted:
            converted[layer] = _as_convolution(layer, path or "the model", met.get(path, set()))
        if not path:
            return converted[layer]
        network.set_submodule(path, converted[layer])
    return network


@torch.no_grad()
def _as_convolution(layer: nn.Module, name: str, met: set[tuple[int, ...]]) -> nn.Module:
    """Return a module that computes a position-only layer by convolutions, at a fixed size."""
    if isinstance(layer, ConvAsAttention) and selects_pixels(layer):
        return _plain(layer).eval()
    if len(met) != 1:
        found = ", ".join(map(str, sorted(met))) or "none"
        raise ValueError(
            f"cannot convert {name} back: it met images of the sizes {found}, expected one size;"
            " use one module for each size, and remove those that the network does not run"
        )
    (sizes,) = met
    try:
        if isinstance(layer, PositionAttention):
            return attention_to_conv(layer, *sizes)
        assert isinstance(layer, ConvAsAttention)
        return HeadsAsConv(layer, sizes).eval()
    except ValueError as error:
        raise ValueError(f"cannot convert {name} back: {error}") from None


def _plain(layer: ConvAsAttention) -> nn.Module:
    """Return a layer whose heads are one-hot on the kernel's pixels as a plain convolution."""
    alike = all(before == after for before, after in layer.padding)
    padding = tuple(before for before, _ in layer.padding) if alike else "same"
    options = {"stride": layer.stride, "padding": padding, "dilation": layer.dilation}
    channels, mode = (layer.in_channels, layer.out_channels), layer.padding_mode
    return _with_values_of(layer, *channels, layer.kernel_size, padding_mode=mode, **options)


def _padded(layer: ConvAsAttention, sizes: Sequence[int]) -> list[int]:
    return [size + sum(pads) for size, pads in zip(sizes, layer.padding, strict=True)]


def _convolution(layer: ConvAsAttention, *sizes: Any, **options: Any) -> nn.Conv1d | nn.Conv2d:
    """Return a convolution with a layer's dtype and device, without drawing random numbers."""
    kind = nn.Conv1d if len(layer.kernel_size) == 1 else nn.Conv2d
    like = {"dtype": layer.weight.dtype, "device": layer.weight.device}
    return cast(nn.Conv1d | nn.Conv2d, skip_init(kind, *sizes, **options, **like))


def _with_values_of(layer: ConvAsAttention, *sizes: Any, **options: Any) -> nn.Conv1d | nn.Conv2d:
    """Return a convolution with the matrices W^(h), the bias and the groups of a layer."""
    options |= {"groups": layer.groups, "bias": layer.bias is not None}
    conv = _convolution(layer, *sizes, **options)
    weight = weight_by_channel(layer.weight, layer.kernel_size).reshape(conv.weight.shape)
    conv.weight.copy_(weight).requires_grad_(layer.weight.requires_grad)
    if layer.bias is not None and conv.bias is not None:
        conv.bias.copy_(layer.bias).requires_grad_(layer.bias.requires_grad)
    return conv


@torch.no_grad()
def _sizes_met(network: nn.Module, sizes: Sequence[int]) -> dict[str, set[tuple[int, ...]]]:
    """Return the image sizes on which the network runs each position-only layer, by module name.

    The sizes are recorded by passing an all-zero image through a copy of the network. Raises
    TypeError for attention that depends on the image.
    """
    shapes, errors = _image_shapes(network, sizes), []
    for shape in shapes:
        watched = copy.deepcopy(network).eval()
        image = next(network.parameters()).new_zeros(shape)
        with _Watch(watched) as watch:
            try:
                watched(image)
                return watch.met
            except (RuntimeError, TypeError, ValueError) as error:
                if watch.refuses:
                    raise
                errors.append(error)
    if not errors:
        return {}
    raise ValueError(
        f"the network does not run on an image of shape {shapes[0]} ({errors[0]}); expected a"
        " network that takes images of this size, with the channels of one of its convolution or"
        " attention layers; convert only the part that does"
    ) from errors[0]


def _image_shapes(network: nn.Module, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes of the images that a network may take, starting with the likeliest.

    The number of channels is that of a layer or else of another module, because a network's own
    `in_channels` may be a variable of its constructor.
    """
    layers, others = [], []
    for module in network.modules():
        found = layers if isinstance(module, (*POSITION_ONLY, nn.modules.conv._ConvNd)) else others
        if isinstance(module, PositionAttention):
            found.append((1, *sizes, module.dim_in))
        elif isinstance(channels := getattr(module, "in_channels", None), int):
            found.append((1, channels, *sizes))
    return list(dict.fromkeys([*layers, *others]))


class _Watch(TorchDispatchMode):
    """A dispatch mode that records the layers' image sizes and rejects content-based attention."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.running: list[tuple[str, nn.Module]] = []
        self.refuses = False
        self.met: dict[str, set[tuple[int, ...]]] = {}
        for path, module in network.named_modules():
            module.register_forward_pre_hook(partial(self.enter, path), with_kwargs=True)
            module.register_forward_hook(self.leave)

    def enter(
        self, path: str, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self.running.append((path, module))
        inputs += tuple(named.values())
        if isinstance(module, PositionAttention):
            self.met.setdefault(path, set()).add(tuple(inputs[0].shape[1:3]))
        elif isinstance(module, ConvAsAttention):
            n = len(module.kernel_size)
            self.met.setdefault(path, set()).add(tuple(inputs[0].shape[-n:]))

    def leave(self, *_: Any) -> None:
        self.running.pop()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        # a softmax over classes, or one that pools all pixels, has only one row per image
        rows = name in SOFTMAX and args[0].ndim > 2 and args[0].numel() > args[0].shape[-1]
        softmax = rows and args[1] in (-1, args[0].ndim - 1)
        path, module = self.running[-1]
        attends = softmax or any(part in name for part in FUSED)
        if attends and not isinstance(module, POSITION_ONLY):
            self.refuses = True
            raise TypeError(
                f"cannot convert {path or 'the model'} ({type(module).__name__}) back: its"
                " attention depends on the image; expected attention whose scores depend on"
                " positions only"
            )
        return func(*args, **(kwargs or {}))
