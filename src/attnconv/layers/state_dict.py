"""The state_dict of a converted convolution, which equals that of the original convolution.

The attention layer and the convolution can load each other's state_dict with `strict=True`. The
state_dict of soft heads contains the encoding, so a convolution refuses it with `strict=True`. The
attention layer can also load weights that were saved by head, with the matrices W^(h) side by side.

Letters: C channels, N_h heads (one per kernel offset), G groups, O = C_out / G output channels per
group.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ..theory.grid import offset_set
from ..theory.shapes import Float
from .shifts import is_one_hot
from .values import can_be_read


def side_by_side(weight: Tensor, groups: int) -> Float[Tensor, "{groups} O N_h C_in"]:
    """Return the matrices W^(h) of a convolution's weight `(C_out, C_in/G, ...)`.

    The result is contiguous, as matrix products need it: a view of a channels-last weight, and a
    copy of any other.
    """
    blocks = weight.flatten(2).unflatten(0, (groups, -1))  # (G, O, C_in/G, N_h)
    return blocks.transpose(2, 3).contiguous()


def weight_by_channel(layer: Any, weight: Tensor) -> Tensor:
    """Return a saved weight in the shape of the convolution's, even if it was saved by head.

    A weight saved by head is `(G, C_out/G, N_h C_in/G)`. A weight of any other shape is returned
    unchanged.
    """
    shape = tuple(layer.weight.shape)
    heads = math.prod(layer.kernel_size)
    by_head = (layer.groups, shape[0] // layer.groups, heads * shape[1])
    if tuple(weight.shape) == shape or tuple(weight.shape) != by_head:
        return weight
    return weight.unflatten(2, (heads, -1)).transpose(2, 3).reshape(shape)


def save_as_convolution(layer: Any, state: dict[str, Tensor], prefix: str, _: Any) -> None:
    """Remove from a state_dict the encoding that the convolution does not have (a post-hook).

    The encoding is omitted if all heads are one-hot on the kernel's pixels, up to rounding; it is
    kept if heads are soft, are trained or have been moved. With `keep_vars=True`, the state_dict
    contains all of the layer's own tensors, because `torch.export` needs them.
    """
    if state.get(f"{prefix}encoding.spread") is layer.encoding.spread:
        return
    if selects_pixels(layer) and not _is_trained(layer):
        for key in layer.encoding.state_dict(prefix=f"{prefix}encoding."):
            del state[key]


def load_from_convolution(layer: Any, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Accept a convolution's entries in a state_dict that is being loaded (a pre-hook).

    If the state_dict contains no encoding, a layer keeps its own heads, even soft ones, provided
    that they are centred on the kernel's pixels, share one alpha and are not trained. The layer
    then uses the convolution's weights with its own alpha. Any other layer requires an encoding.
    """
    name = f"{prefix}weight"
    if name in state:
        state[name] = weight_by_channel(layer, state[name])
    if _is_on_kernel(layer) and not _is_trained(layer):
        for key, value in layer.encoding.state_dict(prefix=f"{prefix}encoding.").items():
            state.setdefault(key, value)


def selects_pixels(layer: Any) -> bool:
    """Return whether all heads are one-hot on the kernel's pixels, up to rounding."""
    return _is_on_kernel(layer) and is_one_hot(layer.encoding.alpha, size=1)


def _is_on_kernel(layer: Any) -> bool:
    """Return whether the heads are centred on the kernel's pixels and have a common alpha."""
    centers = layer.encoding.centers
    spread = layer.encoding.spread
    if not (can_be_read(centers) and can_be_read(spread)):
        return False
    pixels = offset_set(layer.kernel_size, layer.dilation).to(centers)
    return torch.equal(centers, pixels) and bool((spread == spread[0]).all())


def _is_trained(layer: Any) -> bool:
    return layer.encoding.centers.requires_grad or layer.encoding.spread.requires_grad
