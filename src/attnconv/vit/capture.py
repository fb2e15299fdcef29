"""Read the attention of timm's vision transformers and of this package's networks on images.

Letters: B images, N images or windows, N_h heads, H x W patch tokens of an image or window, T
tokens including prefix tokens (class, distillation and register tokens).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.attention import ContentAttention, PositionAttention, attention_probabilities
from ..layers.mode import evaluation_mode

SUPPORTED = (
    "expected timm self-attention whose softmax passes through `attn_drop` as (images or"
    " windows, heads, tokens, tokens), as in ViT, DeiT, BEiT, EVA, Swin, MaxViT, CoAtNet and GCViT,"
    " or a network of build_model; other maps can be given as a tensor"
)


@dataclass(frozen=True)
class LayerAttention:
    """The attention of one layer on a batch of images.

    `name` is the module's name in the model. `maps` `(N, N_h, H, W, H, W)`, on the CPU, are the
    patch-to-patch probabilities, normalised to sum to 1 over the keys; N = 1 if they depend on
    positions only. `prefix_mass` `(N_h,)` is the mean probability that patches assigned to prefix
    tokens before this normalisation.
    """

    name: str
    maps: Tensor
    prefix_mass: Tensor


def attention_of(
    model: nn.Module, images: Tensor, layers: Sequence[int] | None = None
) -> list[LayerAttention]:
    """Return the attention of the layers of a model on images, in order of execution.

    `images` is the model's input `(B, C, H', W')`. The model runs once, in evaluation mode and
    without gradients, and its mode is then restored. In layers with windows (Swin, MaxViT), each
    window counts as an image, and Swin's mask applies to shifted windows. In MaxViT's grid
    attention, the tokens are those of a strided grid. `layers` selects layers by number, counting
    from 0 in order of execution, and gives their order in the result; the attention of other layers
    is neither checked nor kept. None selects all.

    Raises a TypeError that names the module if attention cannot be read or the model has none, and
    ValueError if the height and width of a layer's token grid are unknown or `layers` is invalid.
    """
    modules = dict(_layers(model))
    if not modules:
        raise TypeError(f"{type(model).__name__} has no attention that can be read; {SUPPORTED}")
    wanted = chosen_layers(list(range(len(modules))), layers)
    with for_reading(model), torch.no_grad():
        runs = _run(model, images, modules, None if layers is None else wanted)
        found = {}
        for number, run in enumerate(runs):
            if run.seen is not None:
                found[number] = _read(run, model, tuple(images.shape[-2:]))
                run.seen = None  # frees the memory
    ran = {run.name for run in runs}
    silent = [name for name in modules if name not in ran]
    if silent and (layers is None or not found.keys() >= set(wanted)):
        module = modules[silent[0]]
        raise TypeError(f"{_called(silent[0], module)} formed no attention map; {SUPPORTED}")
    return [found[number] for number in (found if layers is None else wanted)]


def chosen_layers(found: list[Any], layers: Sequence[int] | None) -> list[Any]:
    """Return the layers with the given numbers (from 0), or all layers if `layers` is None.

    Negative numbers count from the end. Raises ValueError for anything but a sequence of different
    numbers in range.
    """
    if layers is None:
        return found
    if isinstance(layers, int | str) or not len(layers) or any(type(n) is float for n in layers):
        raise ValueError(
            f"layers is {layers!r}, expected a list of numbers such as [0], or None for all layers"
        )
    if wrong := [number for number in layers if not -len(found) <= number < len(found)]:
        raise ValueError(f"layers has {wrong[0]}, expected numbers from 0 to {len(found) - 1}")
    numbers = [number % len(found) for number in layers]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"layers is {list(layers)}, which names a layer twice")
    return [found[number] for number in numbers]


def _layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, module in model.named_modules():
        ours = isinstance(module, PositionAttention | ContentAttention)
        if ours or isinstance(getattr(module, "attn_drop", None), nn.Module):
            yield name, module


@contextmanager
def for_reading(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode with attention that forms whole maps, then restore it."""
    modules: list[Any] = list(model.modules())
    fused = [module for module in modules if getattr(module, "fused_attn", False)]
    try:
        for module in fused:
            module.fused_attn = False
        with evaluation_mode(model):
            yield
    finally:
        for module in fused:
            module.fused_attn = True


@dataclass
class _Run:
    """One run of an attention layer, as its hooks have seen it.

    `seen` is the argument of `attn_drop` or, in a layer of this package, the layer's input. It is
    None if the layer was not chosen.
    """

    name: str
    input_shape: tuple[int, ...]
    seen: Tensor | None


def _run(
    model: nn.Module, images: Tensor, modules: Mapping[str, Any], chosen: Sequence[int] | None
) -> list[_Run]:
    """Run a model and return the runs of its attention layers in order of execution."""
    runs: list[_Run] = []
    shapes: dict[str, tuple[int, ...]] = {}  # of the layers' inputs

    def enter(name: str, _: Any, inputs: tuple[Tensor, ...]) -> None:
        shapes[name] = tuple(inputs[0].shape)

    def store(name: str, _: Any, inputs: tuple[Tensor, ...]) -> None:
        kept = chosen is None or len(runs) in chosen
        runs.append(_Run(name, shapes[name], inputs[0] if kept else None))

    with ExitStack() as hooks:
        for name, module in modules.items():
            for place, hook in ((module, enter), (getattr(module, "attn_drop", module), store)):
                handle = place.register_forward_pre_hook(partial(hook, name))
                hooks.callback(handle.remove)
        model(images)
    return runs


def _read(run: _Run, model: nn.Module, image: tuple[int, ...]) -> LayerAttention:
    """Return the attention in a layer's run on images of the given height and width."""
    module: Any = model.get_submodule(run.name)
    assert run.seen is not None, "the layer was chosen"
    if isinstance(module, ContentAttention):
        maps = module.probabilities(run.seen)
    elif isinstance(module, PositionAttention):
        maps = attention_probabilities(module, *run.input_shape[1:3]).unsqueeze(0)
    else:
        called = _called(run.name, module)
        probabilities = _expect_self_attention(called, run.seen, run.input_shape)
        grid = _grid(called, module, _backbone(run.name, model), image, probabilities.shape[-1])
        return LayerAttention(run.name, *_of_patches(probabilities, grid))
    return LayerAttention(run.name, maps.cpu(), torch.zeros(module.num_heads, dtype=maps.dtype))


def _called(name: str, module: nn.Module) -> str:
    return f"{name or 'the model'} ({type(module).__name__})"


def _expect_self_attention(called: str, probabilities: Tensor, of_input: tuple[int, ...]) -> Tensor:
    """Return the argument of `attn_drop`, in float32 or wider, if it is self-attention.

    Raises TypeError if it is not.
    """
    shape = tuple(probabilities.shape)
    tokens = {of_input[1]} if len(of_input) == 3 else {h * w for h, w in _sides(of_input)}
    if len(shape) != 4 or shape[2] != shape[3] or shape[3] not in tokens:
        raise TypeError(
            f"{called} attends with maps of shape {shape} on an input of shape {of_input};"
            f" {SUPPORTED}"
        )
    probabilities = probabilities.float() if probabilities.element_size() < 4 else probabilities
    if bool(((probabilities.sum(dim=-1) - 1).abs() > 1e-2).any()):
        raise TypeError(f"{called} attends with weights that do not sum to 1; {SUPPORTED}")
    return probabilities


def _sides(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the possible heights and widths of `(B, H, W, C)` or `(B, C, H, W)`."""
    return [(shape[1], shape[2]), (shape[2], shape[3])] if len(shape) == 4 else []


def modules_around(name: str, model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that contain a layer, from the innermost one to the model itself."""
    parts = name.split(".")
    return (model.get_submodule(".".join(parts[:n])) for n in range(len(parts) - 1, -1, -1))


def _backbone(name: str, model: nn.Module) -> nn.Module:
    """Return the innermost module around a layer that has patch tokens, or else the model."""
    around = modules_around(name, model)
    return next((module for module in around if hasattr(module, "patch_embed")), model)


def _grid(
    called: str, module: Any, model: Any, image: tuple[int, ...], tokens: int
) -> tuple[int, int]:
    """Return the height and width of a layer's patch tokens."""
    prefix = getattr(model, "num_prefix_tokens", 0)
    embedding = getattr(model, "patch_embed", None)
    of_image: Callable | None = getattr(embedding, "dynamic_feat_size", None)
    known = [
        getattr(module, "window_size", None),
        getattr(getattr(module, "rel_pos", None), "window_size", None),
        of_image(image) if of_image else None,
        getattr(embedding, "grid_size", None),
    ]
    for size in known:
        if isinstance(size, tuple) and tokens - size[0] * size[1] in (prefix, 0):
            return size[0], size[1]
    side = isqrt(max(tokens - prefix, 0))
    if side * side != tokens - prefix or not side or image[0] != image[1]:
        raise ValueError(
            f"{called} has {tokens} tokens, {prefix} of them prefix tokens; expected a"
            " `window_size` or `patch_embed.grid_size` that gives their height and width, or square"
            " images and a square number of tokens"
        )
    return side, side


def _of_patches(probabilities: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the renormalised maps between patches, and each head's mass on prefix tokens."""
    prefix = probabilities.shape[-1] - grid[0] * grid[1]
    to_prefix, to_patches = probabilities[:, :, prefix:].tensor_split([prefix], dim=-1)
    maps = to_patches / to_patches.sum(dim=-1, keepdim=True)
    mass = to_prefix.double().sum(dim=-1).mean(dim=(0, 2))
    return maps.unflatten(-1, grid).unflatten(2, grid).cpu(), mass.cpu()
