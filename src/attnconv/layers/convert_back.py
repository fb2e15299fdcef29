"""Theorem 2 for layers and networks: replace position-only attention by convolutions.

`attention_to_conv` converts a layer and `convert_back` a whole network, at a fixed image size
unless all heads are one-hot.
"""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .attention import PositionAttention
from .attention_as_conv import AttentionAsConv, HeadsAsConv, plain_convolution
from .conv_as_attention import ConvAsAttention
from .convert import CONVOLUTIONS, is_compiled, replaced
from .copies import copied
from .encodings import PositionEncoding
from .state_dict import selects_pixels
from .transposed import TransposedAsAttention

POSITION_ONLY = (PositionAttention, ConvAsAttention)
# operations that compute attention; a softmax does so if it normalises over the keys of each query
SOFTMAX = ("aten::_softmax", "aten::_safe_softmax")
FUSED = ("scaled_dot_product", "multi_head_attention", "transformer_encoder")


def attention_to_conv(layer: PositionAttention, height: int, width: int) -> AttentionAsConv:
    """Convert a position-only attention layer to zero-padded convolutions. Theorem 2.

    Args:
        layer: The attention layer, with any position-only encoding.
        height: The height of the images in pixels.
        width: The width of the images in pixels.

    Returns:
        A module that is exact on images of this size, including the border, if dropout is off.

    Raises:
        TypeError: If the layer is not a `PositionAttention`.
        ValueError: If a head is so sharp that its border factor is out of range for the dtype (all
            its terms underflow, although their ratios are defined).

    Example:
        >>> import attnconv, torch
        >>> network = attnconv.build_model("sa-quadratic", num_layers=1, hidden=16)
        >>> layer = network.attentions[0].eval()
        >>> convolutions = attnconv.attention_to_conv(layer, 6, 6)
        >>> images = torch.rand(2, 6, 6, 16)  # channels last
        >>> torch.allclose(convolutions(images), layer(images), atol=1e-5)
        True
    """
    if not isinstance(layer, PositionAttention) or not isinstance(layer.encoding, PositionEncoding):
        raise TypeError(
            f"got {type(layer).__name__}, expected a PositionAttention layer, whose scores depend"
            " on positions only"
        )
    with torch.no_grad():
        scores = layer.encoding.offset_scores(height, width)
        module = AttentionAsConv(scores, copy.deepcopy(layer.value))
    return module.train(layer.training)


def convert_back(
    network: nn.Module, height: int | None = None, width: int | None = None
) -> nn.Module:
    """Return a copy of a network with convolutions in place of position-only attention. Theorem 2.

    Layers made by `conv_to_attention` become plain convolutions again, exact at any size, if their
    heads are one-hot on the kernel's pixels. If all position-only layers are such, the network may
    take any inputs; it is not run, and all other modules are kept, attention that depends on the
    image included.

    Otherwise, the copy is exact on images of one size. In position-only layers whose heads are not
    one-hot, the heads become zero-padded convolutions divided by a border factor (`HeadsAsConv`,
    `attention_to_conv`). All other modules are kept.

    Args:
        network: The network, which is not changed.
        height: The height of the images in pixels or, without a width, the length of the sequences.
            It is needed unless all position-only layers are one-hot.
        width: The width of the images in pixels.

    Returns:
        The copy, in evaluation mode.

    Raises:
        TypeError: If attention depends on the image, unless all position-only layers are one-hot.
            The error names the module.
        ValueError: If a layer's heads are not one-hot and the network never runs the layer or runs
            it at several sizes, or its border factor is out of range. The error names the module.
            Also if the size is missing or the network does not run on an image of this size.

    Example:
        >>> import attnconv, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        >>> network = torch.nn.Sequential(conv, torch.nn.ReLU())
        >>> converted = attnconv.convert_network(network)
        >>> attnconv.convert_back(converted)[0]
        Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    """
    layers = [module for module in network.modules() if isinstance(module, POSITION_ONLY)]
    met: dict[str, set[tuple[int, ...]]] = {}
    if not layers or not all(map(_is_one_hot, layers)):
        if height is None:
            raise ValueError(
                "the size of the images is needed, because the network has attention that is not"
                " one-hot; expected convert_back(network, height, width), or"
                " convert_back(network, length) for sequences"
            )
        met = _sizes_met(network, [height] if width is None else [height, width])
    network = copied(network).eval()
    by: dict[nn.Module, nn.Module] = {}
    for path, layer in network.named_modules(remove_duplicate=False):
        called = path or "the model"
        if isinstance(layer, POSITION_ONLY) and is_compiled(path):
            raise TypeError(f"cannot convert {called} back: it is compiled; convert it before that")
        if isinstance(layer, POSITION_ONLY) and layer not in by:
            by[layer] = _as_convolution(layer, called, met.get(path, set()))
    return replaced(network, by)


@torch.no_grad()
def _is_one_hot(layer: nn.Module) -> TypeGuard[ConvAsAttention]:
    return isinstance(layer, ConvAsAttention) and selects_pixels(layer)


@torch.no_grad()
def _as_convolution(layer: nn.Module, name: str, met: set[tuple[int, ...]]) -> nn.Module:
    """Return a module that computes a position-only layer by convolutions, at a fixed size."""
    if _is_one_hot(layer):
        return plain_convolution(layer).eval()
    if isinstance(layer, TransposedAsAttention):
        raise ValueError(
            f"cannot convert {name} back: it was a transposed convolution and its heads are not"
            " one-hot on the kernel's pixels; make them so with"
            " convert_network(network, alpha=attnconv.hard_alpha(dtype)) if they have not moved"
        )
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


@torch.no_grad()
def _sizes_met(network: nn.Module, sizes: Sequence[int]) -> dict[str, set[tuple[int, ...]]]:
    """Return the image sizes on which the network runs each position-only layer, by module name.

    The sizes are recorded by passing an all-zero image through a copy of the network. Raises
    TypeError for attention that depends on the image.
    """
    shapes = _image_shapes(network, sizes)
    errors = []
    for shape in shapes:
        watched = copied(network).eval()
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
    layers = []
    others = []
    for module in network.modules():
        found = layers if isinstance(module, (*POSITION_ONLY, *CONVOLUTIONS)) else others
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
        if isinstance(module, POSITION_ONLY):
            shape = (*inputs, *named.values())[0].shape
            converted = isinstance(module, ConvAsAttention)
            sizes = shape[-len(module.kernel_size) :] if converted else shape[1:3]
            self.met.setdefault(path, set()).add(tuple(sizes))

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
