"""Theorem 1 for torch's layers and networks: replace convolutions by self-attention.

`conv_to_attention` converts a layer and `convert_network` a whole network.
"""

import copy
from collections.abc import Mapping
from typing import TypeGuard

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from ..theory.theorem1 import DTYPES
from .conv_as_attention import ConvAsAttention, attend_instead, too_far

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)


def conv_to_attention(conv: nn.Conv1d | nn.Conv2d, alpha: float | None = None) -> ConvAsAttention:
    """Return a self-attention layer that computes the given convolution. Theorem 1.

    Accepts any `nn.Conv1d` or `nn.Conv2d`; the result is called in the same way, with `(B, C, ...)`
    as input and output. `alpha` (in inverse squared pixels) is the sharpness of the heads; its
    default is `hard_alpha` for the layer's dtype. Raises TypeError for transposed, lazy, 3D,
    parametrised, scripted and customised convolutions, for those on the meta device, and for
    half-precision ones that reach so many pixels that the dtype cannot tell them apart. The weights
    are copied, so later changes to `conv` have no effect.
    """
    if reason := _why_not(conv):
        raise TypeError(
            f"cannot turn {type(conv).__name__} into attention: {reason}; expected a"
            " torch.nn.Conv1d or Conv2d"
        )
    return attend_instead(copy.deepcopy(conv), alpha)


def convert_network(model: nn.Module, alpha: float | None = None) -> nn.Module:
    """Return a copy of a network with self-attention in place of every convolution. Theorem 1.

    Each convolution is replaced by the result of `conv_to_attention`. `alpha` is the sharpness of
    all heads; by default, they are one-hot. A module used in several places remains shared.
    Convolutions called as functions in a forward method are not modules and are not replaced.
    Forward hooks of a convolution are not copied. Raises a TypeError that names the module if a
    convolution cannot be converted, is compiled by itself or shares a parameter with another
    module, or if a module is scripted. The original model is not changed.
    """
    owners: dict[nn.Parameter, tuple[str, nn.Module]] = {}
    for path, module in model.named_modules():
        reason = _why_not(module) if _is_convolution(module) else None
        if _is_convolution(module) and is_compiled(path):
            reason = "it is compiled; convert it before torch.compile"
        for parameter in module.parameters(recurse=False):
            name, owner = owners.setdefault(parameter, (path, module))
            if owner is not module and (_is_convolution(module) or _is_convolution(owner)):
                reason = f"it shares a parameter with {name or 'the model'}; give each its own"
        if reason:
            raise TypeError(
                f"cannot convert {path or 'the model'} ({type(module).__name__}): {reason}"
            )
    model = copy.deepcopy(model)
    convolutions = [module for module in model.modules() if _is_convolution(module)]
    for conv in convolutions:
        attend_instead(conv, alpha)
    return model


def replaced(network: nn.Module, by: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Replace modules of a network in place, wherever they are used, and return the network.

    `by` maps the modules to their replacements. It may replace the network itself.
    """
    for path, module in list(network.named_modules(remove_duplicate=False)):
        if module in by and path:
            network.set_submodule(path, by[module])
    return by.get(network, network)


def _is_convolution(module: object) -> TypeGuard[nn.Conv1d | nn.Conv2d]:
    """Return whether a module is a convolution of any kind, even if it cannot be converted.

    A scripted module may be one.
    """
    return isinstance(module, (*CONVOLUTIONS, torch.jit.ScriptModule))


def is_compiled(path: str) -> bool:
    """Return whether a module's path in a network shows that torch.compile has wrapped it."""
    return path.rpartition(".")[2] == "_orig_mod"


def _why_not(conv: object) -> str | None:
    """Return why a module cannot be converted, or None if it can be."""
    if isinstance(conv, torch.jit.ScriptModule):
        return "it is scripted; convert it before scripting"
    if isinstance(conv, LazyModuleMixin):
        return "it is lazy and has no weights yet (run it on an input first)"
    if isinstance(conv, TRANSPOSED):
        return "it is a transposed convolution"
    if not isinstance(conv, nn.Conv1d | nn.Conv2d):
        return "it is not a 1D or 2D convolution"
    base = nn.Conv1d if isinstance(conv, nn.Conv1d) else nn.Conv2d
    for name in ("forward", "_conv_forward"):  # of the class, and set on the module itself
        if getattr(type(conv), name) is not getattr(base, name) or name in vars(conv):
            return f"its {name} is not that of a plain convolution; first replace it by a plain one"
    if conv._forward_pre_hooks:
        return (
            "it has a forward pre-hook, which may change its weights (as in weight_norm and prune);"
            " remove it and make its weights permanent first"
        )
    if parametrize.is_parametrized(conv):
        return (
            "it is parametrised; make its weights permanent first (with"
            " torch.nn.utils.parametrize.remove_parametrizations)"
        )
    if conv.weight.is_meta:
        return "its weight is on the meta device; move it to a device and load its weight first"
    if conv.weight.dtype not in DTYPES:
        return f"its weights are {conv.weight.dtype}"
    return too_far(conv)
