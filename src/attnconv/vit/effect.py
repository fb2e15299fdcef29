"""Measure how much an attention layer contributes to the block around it.

A start has no visible effect if a scale that is almost zero (LayerScale) multiplies the output of
the attention, whatever its maps are.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.mode import evaluation_mode

#: Below this share of its block's output, the attention is reported to have almost no effect.
#: Without LayerScale, the layers of timm's models have 0.002 to 1.4 when initialised.
LOW_EFFECT = 0.001
#: Below this, a vector of parameters is named as the cause.
SMALL_SCALE = 0.01
NO_EFFECT = "the start has almost no effect"
CONTAINERS = nn.Sequential | nn.ModuleList | nn.ModuleDict


def block_of(name: str, model: nn.Module) -> nn.Module:
    """Return the block around an attention layer, which adds the layer's output to its input.

    It is the innermost module around the layer that is itself an entry of a list of modules.
    """
    parts = name.split(".")
    paths = [".".join(parts[:n]) for n in range(len(parts) - 1, -1, -1)]
    around = [(path, model.get_submodule(path)) for path in paths]
    blocks = [(path, module) for path, module in around if not isinstance(module, CONTAINERS)]
    for path, module in blocks:
        if path and isinstance(model.get_submodule(path.rpartition(".")[0]), CONTAINERS):
            return module
    return blocks[0][1] if blocks else model


@torch.no_grad()
def attention_effects(
    model: nn.Module, attentions: Mapping[str, nn.Module], images: Tensor, code: int = 0
) -> dict[str, float]:
    """Return how much each attention layer changes the output of its block on images, by name.

    The effect is the root mean square of the difference between the block's output with and without
    the attention's output, divided by that of the output without it. The last `code` dimensions are
    left out.
    """
    by_block: dict[nn.Module, list[str]] = {}
    for name in attentions:
        by_block.setdefault(block_of(name, model), []).append(name)
    effects: dict[str, float] = {}

    def measure(
        names: list[str], block: nn.Module, args: Any, kwargs: dict[str, Any], output: Any
    ) -> None:
        whole = _content(output, code)
        for name in names:
            handle = attentions[name].register_forward_hook(lambda *call: _zeros(call[-1]))
            try:
                without = _content(block.forward(*args, **kwargs), code)
            finally:
                handle.remove()
            size = without.norm().clamp(min=torch.finfo(without.dtype).tiny)
            effects[name] = float((whole - without).norm() / size)

    with evaluation_mode(model), ExitStack() as hooks:
        hooks.enter_context(torch.compiler.set_stance("force_eager"))
        for block, names in by_block.items():
            handle = block.register_forward_hook(partial(measure, names), with_kwargs=True)
            hooks.callback(handle.remove)
        model(images)
    return effects


def _content(output: Any, code: int) -> Tensor:
    tensor = _first_tensor(output).double()
    return tensor[..., :-code] if code else tensor


def _first_tensor(output: Any) -> Tensor:
    """Return a module's output, or the first entry of its outputs."""
    return output if isinstance(output, Tensor) else next(iter(output))


def _zeros(output: Any) -> Any:
    """Return a module's output with its first tensor replaced by zeros."""
    if isinstance(output, Tensor):
        return torch.zeros_like(output)
    return (torch.zeros_like(output[0]), *output[1:])


def small_scales(name: str, model: nn.Module) -> list[str]:
    """Return the names of the vectors in an attention layer's block whose entries are almost zero.

    Weights and biases of layers are not listed, because a bias may well be zero.
    """
    block = block_of(name, model)
    inside = {id(parameter) for parameter in block.parameters()}
    return [
        path
        for path, parameter in model.named_parameters()
        if id(parameter) in inside
        and parameter.ndim == 1
        and path.rpartition(".")[2] not in ("weight", "bias", "q_bias", "v_bias", "in_proj_bias")
        and bool((parameter.abs().max() < SMALL_SCALE).item())
    ]


def low_effect(model: nn.Module, effects: Mapping[str, float]) -> str | None:
    """Return a sentence on the layers that have almost no effect, why, and what helps, or None."""
    low = [name for name, effect in effects.items() if effect < LOW_EFFECT]
    if not low:
        return None
    scales = [scale for name in low for scale in small_scales(name, model)]
    cause = (
        f"the scale of the block's branches is almost zero ({scales[0]}): set these scales to 1"
        " (in timm, create the model with init_values=1.0)"
        if scales
        else "check its values and its output projection"
    )
    return (
        f"{NO_EFFECT} in {len(low)} of {len(effects)} layers: {low[0]} changes"
        f" its block's output by {effects[low[0]]:.1g} of its size; {cause}"
    )


def first_that_runs(
    attempt: Callable[[tuple[int, ...]], dict[str, float]], shapes: Iterable[tuple[int, ...]]
) -> dict[str, float]:
    """Return the result of the first shape of images on which the model runs, or an empty dict."""
    for shape in shapes:
        try:
            return attempt(shape)
        except (RuntimeError, AssertionError, ValueError, TypeError, IndexError):
            continue  # the model was built for images of another size
    return {}
