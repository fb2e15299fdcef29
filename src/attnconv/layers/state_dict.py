"""The state_dict of a converted convolution, which equals that of the original convolution.

The attention layer and the convolution can load each other's state_dict with `strict=True`. The
attention layer can also load a state_dict that contains the weights by head and the encoding.
The state_dict of soft heads contains the encoding, so a convolution refuses it with `strict=True`.

Letters: C channels, N_h heads (one per kernel offset), G groups, O = C_out / G output channels per
group.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..theory.grid import offset_set
from ..theory.shapes import Float
from .shifts import is_one_hot


def weight_by_head(weight: Tensor, groups: int) -> Float[Tensor, "G O columns"]:
    """Return a copy of a convolution's weight with the heads' matrices W^(h) side by side.

    The weight is `(C_out, C_in/G, ...)`, and the copy is `(G, C_out/G, N_h C_in/G)`.
    """
    blocks = weight.flatten(2).unflatten(0, (groups, -1))  # (G, O, C_in/G, N_h)
    return blocks.transpose(2, 3).reshape(*blocks.shape[:2], -1).clone()


def weight_by_channel(weight: Float[Tensor, "G O columns"], kernel_size: Sequence[int]) -> Tensor:
    """Invert `weight_by_head`: return the convolution's weight as a view of the given weight."""
    blocks = weight.unflatten(2, (math.prod(kernel_size), -1)).transpose(2, 3)
    return blocks.flatten(0, 1).unflatten(2, tuple(kernel_size))


def save_as_convolution(layer: Any, state: dict[str, Tensor], prefix: str, _: Any) -> None:
    """Replace a layer's entries in a state_dict with those of the convolution (a post-hook).

    The weight in the state_dict is a view of the layer's weight. The encoding is omitted if all
    heads are one-hot on the kernel's pixels, up to rounding; it is kept if heads are soft, are
    trained or have been moved. With `keep_vars=True`, the state_dict contains the layer's own
    parameters, because `functional_call` needs them.
    """
    name = f"{prefix}weight"
    if name not in state or state[name] is layer.weight:  # absent if pruned or parametrised
        return
    state[name] = weight_by_channel(state[name], layer.kernel_size)
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
    shape = (layer.out_channels, layer.in_channels // layer.groups, *layer.kernel_size)
    if name in state and tuple(state[name].shape) == shape:
        state[name] = weight_by_head(state[name].detach(), layer.groups)
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
    pixels = offset_set(layer.kernel_size, layer.dilation).to(centers)
    return torch.equal(centers, pixels) and bool((spread == spread[0]).all())


def _is_trained(layer: Any) -> bool:
    return any(parameter.requires_grad for parameter in layer.encoding.parameters())
