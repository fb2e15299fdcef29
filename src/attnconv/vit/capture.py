"""Read the attention of vision transformers of any library, and of this package's networks.

Letters: B images, N images or windows, N_h heads, H x W patch tokens of an image or window, T
tokens including prefix tokens (class, distillation and register tokens).
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import isqrt, prod
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.attention import ContentAttention, PositionAttention, attention_probabilities
from ..layers.mode import evaluation_mode
from .inputs import selected
from .interception import Interception, Weights

SUPPORTED = (
    "expected self-attention among the patches of an image or window, computed with"
    " scaled_dot_product_attention, nn.MultiheadAttention, or a softmax that multiplies the values;"
    " other maps can be given as a tensor"
)
#: Names of parameters that become prefix tokens.
PREFIX_TOKENS = re.compile(
    r"(^|_)(cls|class|dist|distillation|reg|register)_?(tokens?|embedding)(_\d+)?$"
)


@dataclass(frozen=True)
class LayerAttention:
    """The attention of one layer on a batch of images.

    `name` is the module's name in the model. `maps` `(N, N_h, H, W, H, W)`, on the CPU, are the
    patch-to-patch probabilities, normalised to sum to 1 over the keys; N = 1 if they depend on
    positions only. `prefix_mass` `(N_h,)` is the mean probability that patches assigned to prefix
    tokens before this normalisation. `gap` is the largest difference between the layer's output and
    its values weighted by the maps that were read, relative to the largest value.
    """

    name: str
    maps: Tensor
    prefix_mass: Tensor
    gap: float = 0.0


@dataclass(frozen=True)
class Reading:
    """What `read_attention` has read: the chosen layers, and why others were skipped."""

    layers: list[Any]
    skipped: tuple[str, ...]


def attention_of(
    model: nn.Module, images: Tensor, layers: Sequence[int] | None = None
) -> list[LayerAttention]:
    """Return the attention of the layers of a model on images, in order of execution.

    `images` is the model's input `(B, C, H', W')`. The model runs once, in evaluation mode and
    without gradients, and its mode is then restored. In layers with windows (Swin, MaxViT), each
    window counts as an image, and Swin's mask applies to shifted windows. In MaxViT's grid
    attention, the tokens are those of a strided grid. `layers` selects layers by number, counting
    from 0 in order of execution, and gives their order in the result; the attention of other layers
    is not checked. None selects all. Attention that is not among patches is skipped and has no
    number: attention pooling, and keys that are fewer or other than the queries.

    Raises a TypeError that names the module if attention cannot be read or the model has none, and
    ValueError if the height and width of a layer's token grid are unknown or `layers` is invalid.
    """
    return read_attention(model, images, layers).layers


def read_attention(
    model: nn.Module,
    images: Tensor,
    layers: Sequence[int] | None = None,
    use: Callable[[LayerAttention], Any] = lambda layer: layer,
) -> Reading:
    """Read the attention of a model and keep only what `use` returns for each layer.

    Each layer's maps are handed to `use` as soon as they are formed, so that the maps of two layers
    are never in memory at once. For the arguments and errors, see `attention_of`; errors of `use`
    are raised for chosen layers only.
    """
    reader = Reader(model, images, layers, use)
    with for_reading(model), torch.no_grad(), reader.hooks(), reader.interception:
        model(images)
    if not reader.found:
        reasons = f" ({'; '.join(reader.skipped)})" if reader.skipped else ""
        raise TypeError(
            f"{type(model).__name__} has no attention that can be read{reasons}; {SUPPORTED}"
        )
    found = selected(reader.found, layers)
    for each in found:
        if isinstance(each, Exception):
            raise each
    return Reading(found, tuple(reader.skipped))


@contextmanager
def for_reading(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation mode, uncompiled and without torch's fused encoder layers.

    The model's mode is restored afterwards.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # otherwise nothing can have been compiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        stack.enter_context(evaluation_mode(model))
        yield


def modules_around(name: str, model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that contain a layer, from the innermost one to the model itself."""
    parts = name.split(".")
    return (model.get_submodule(".".join(parts[:n])) for n in range(len(parts) - 1, -1, -1))


@dataclass
class Running:
    """A module that is running: its name, input shape, and the values that it has weighted."""

    name: str
    module: Any
    shape: tuple[int, ...]
    values: list[Tensor] = field(default_factory=list)
    number: int | None = None  # of its last layer in `found`
    silent: bool = True  # no weights were seen in it

    @property
    def called(self) -> str:
        return f"{self.name or 'the model'} ({type(self.module).__name__})"


class Reader:
    """The state of one reading: the modules that are running, and what has been found so far.

    `found` has an entry for each attention layer in order of execution: what `use` returned, an
    error, or None if the layer was not chosen. `grids` are the heights and widths of all
    convolutions' outputs so far; the last one that fits gives a layer's token grid.
    """

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        layers: Sequence[int] | None,
        use: Callable[[LayerAttention], Any],
    ):
        self.model, self.use = model, use
        self.image = tuple(images.shape[-2:])
        self.batch = len(images)
        self.wanted: set[int] | None = None  # all, also if their numbers count from the end
        if layers is not None and not isinstance(layers, int | str) and min(layers, default=0) >= 0:
            self.wanted = set(layers)
        self.found: list[Any] = []
        self.skipped: list[str] = []
        self.grids: list[tuple[int, int]] = []
        self.running: list[Running] = []
        self.interception = Interception(self.intercepted)

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Keep track of the modules that are running."""
        with ExitStack() as stack:
            for name, module in self.model.named_modules():
                if isinstance(module, nn.Softmax | nn.Dropout | nn.Identity):
                    continue  # part of the attention layer that calls it
                enter = module.register_forward_pre_hook(
                    partial(self._enter, name), with_kwargs=True
                )
                leave = module.register_forward_hook(self._leave)
                stack.callback(enter.remove)
                stack.callback(leave.remove)
            yield

    def _enter(self, name: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
        inputs = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        self.running.append(Running(name, module, tuple(inputs[0].shape) if inputs else ()))
        if isinstance(module, PositionAttention | ContentAttention):
            self.running[-1].silent = False
            if self._is_wanted():
                self._keep(partial(_of_ours, name, module, inputs[0]))

    def _leave(self, module: nn.Module, _: Any, output: Any) -> None:
        layer = self.running.pop()
        if layer.silent and _looks_like_attention(module):
            self._skip(f"{layer.called} formed no attention weights that can be seen")
        if isinstance(module, nn.Conv2d) and isinstance(output, Tensor) and output.ndim == 4:
            self.grids.append((output.shape[2], output.shape[3]))
        return None

    def _skip(self, note: str) -> None:
        if note not in self.skipped:
            self.skipped.append(note)

    def _is_wanted(self) -> bool:
        if self.wanted is None or len(self.found) in self.wanted:
            return True
        self.found.append(None)
        return False

    def _keep(self, read: Callable[[], LayerAttention]) -> None:
        try:
            self.found.append(self.use(read()))
        except (TypeError, ValueError) as error:
            self.found.append(error)

    def intercepted(self, seen: Weights) -> Tensor | None:
        """Read the weights that the innermost running module has used, or say why they are not."""
        ours = (PositionAttention, ContentAttention)
        if not self.running or any(isinstance(each.module, ours) for each in self.running):
            return None
        for each in self.running:
            each.silent = False
        layer = self.running[-1]
        problem = seen.problem
        if any(_is_same_memory(seen.values, values) for values in layer.values):
            problem = problem or "two of its maps weight the same values (differential attention)"
            if layer.number is not None:  # the first of the two maps is no layer of its own
                self.found[layer.number] = _refusal(layer, problem)
                return None
        layer.values.append(seen.values)
        if reason := why_skipped(layer, seen.weights):
            self._skip(f"{layer.called} {reason}")
            return None
        layer.number = len(self.found)
        if problem:
            self.found.append(_refusal(layer, problem))
        elif self._is_wanted():
            self._keep(partial(self._read, layer, seen))
        return None

    def _read(self, layer: Running, seen: Weights) -> LayerAttention:
        """Return the attention of a layer, or raise an error if it has no known token grid."""
        weights = by_head(layer, seen.weights)
        by_mask_unit = "MaskUnit" in type(layer.module).__name__  # Hiera
        if by_mask_unit or self.interception.reordered:
            raise _refusal(layer, "its tokens were put into another order than the image's")
        grid = self._grid(layer, len(weights), weights.shape[-1])
        return LayerAttention(layer.name, *patches_of(weights, grid), seen.gap)

    def _grid(self, layer: Running, images: int, tokens: int) -> tuple[int, int]:
        """Return the height and width of a layer's patch tokens."""
        backbone = _backbone(layer.name, self.model)
        embedding = getattr(backbone, "patch_embed", None)
        of_image: Callable | None = getattr(embedding, "dynamic_feat_size", None)
        prefixes = _possible_prefixes(backbone, self.model)
        known = [*_windows(layer.name, self.model), *_sides(layer.shape)]
        if images == self.batch:  # otherwise the tokens are those of windows
            known += [
                of_image(self.image) if of_image else None,
                getattr(embedding, "grid_size", None),
                *reversed(self.grids),
            ]
        for size in known:
            if isinstance(size, tuple) and tokens - prod(size) in prefixes:
                return size[0], size[1]
        for prefix in prefixes if self.image[0] == self.image[1] else ():
            side = isqrt(max(tokens - prefix, 0))
            if side and side * side == tokens - prefix:
                return side, side
        raise ValueError(
            f"{layer.called} has {tokens} tokens, {prefixes[0]} of them prefix tokens; expected a"
            " `window_size`, a `patch_embed.grid_size` or a convolution's output that gives their"
            " height and width, or square images and a square number of tokens"
        )


def _refusal(layer: Running, problem: str) -> TypeError:
    return TypeError(f"{layer.called} cannot be read: {problem}; {SUPPORTED}")


def _looks_like_attention(module: nn.Module) -> bool:
    return hasattr(module, "attn_drop") or type(module).__name__.endswith("Attention")


def _is_same_memory(one: Tensor, other: Tensor) -> bool:
    views = ((each.data_ptr(), each.shape, each.stride()) for each in (one, other))
    return next(views) == next(views)


def _of_ours(name: str, module: Any, inputs: Tensor) -> LayerAttention:
    if isinstance(module, ContentAttention):
        maps = module.probabilities(inputs)
    else:
        maps = attention_probabilities(module, *inputs.shape[1:3]).unsqueeze(0)
    return LayerAttention(name, maps.cpu(), torch.zeros(module.num_heads, dtype=maps.dtype))


def why_skipped(layer: Running, weights: Tensor) -> str:
    """Return why weights `(..., T, S)` are not self-attention among tokens, or an empty string."""
    queries, keys = weights.shape[-2:]
    if queries != keys:
        return f"has {queries} queries for {keys} keys"
    heads = _heads(layer, weights)
    rows = weights.numel() // keys // heads if heads else 0
    shape = layer.shape
    if len(shape) == 3:
        between = keys in shape[:2] or rows == shape[0] * shape[1]
    else:
        between = keys in map(prod, _sides(shape)) or rows in [
            shape[0] * prod(s) for s in _sides(shape)
        ]
    if not heads or not (between or keys in map(prod, _windows_of(layer.module))):
        return (
            f"has maps of shape {tuple(weights.shape)} on an input of shape {shape}, which are not"
            " among its tokens"
        )
    return ""


def _heads(layer: Running, weights: Tensor) -> int | None:
    """Return the number of heads, or None if it is unknown."""
    names = ("num_heads", "heads", "n_heads", "num_attention_heads")
    given = next((getattr(layer.module, n) for n in names if hasattr(layer.module, n)), None)
    if weights.ndim == 4:
        return weights.shape[1]
    if weights.ndim == 3:
        images = layer.shape[0] if layer.shape else 0
        return given if given and len(weights) == given * images else 1
    return given if given and list(weights.shape[1:-2]).count(given) == 1 else None


def by_head(layer: Running, weights: Tensor) -> Tensor:
    """Return weights as `(N, N_h, T, T)`, in float32 or wider."""
    weights = weights.float() if weights.element_size() < 4 else weights
    heads = _heads(layer, weights)
    assert heads is not None, "it would have been skipped"
    if weights.ndim == 3:
        return weights.unflatten(0, (-1, heads))
    axis = list(weights.shape).index(heads, 1)
    return weights.movedim(axis, -3).flatten(0, -4)


def _sides(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the possible heights and widths of `(B, H, W, C)` or `(B, C, H, W)`."""
    return [(shape[1], shape[2]), (shape[2], shape[3])] if len(shape) == 4 else []


def _windows(name: str, model: nn.Module) -> list[tuple[int, int]]:
    """Return the window sizes that a layer and the modules around it state, innermost first."""
    modules = [model.get_submodule(name), *modules_around(name, model)] if name else [model]
    return [size for module in modules for size in _windows_of(module)]


def _windows_of(module: nn.Module) -> list[tuple[int, int]]:
    sizes = []
    for each in (module, *module.children()):
        for name in ("window_size", "ws", "partition_size", "p"):
            size = getattr(each, name, None)
            if isinstance(size, int) and not isinstance(size, bool):
                sizes.append((size, size))
            elif isinstance(size, tuple | list) and len(size) == 2:
                sizes.append((int(size[0]), int(size[1])))
    return sizes


def _backbone(name: str, model: nn.Module) -> nn.Module:
    """Return the innermost module around a layer that has patch tokens, or else the model."""
    around = modules_around(name, model)
    return next((module for module in around if hasattr(module, "patch_embed")), model)


def _possible_prefixes(backbone: Any, model: nn.Module) -> list[int]:
    """Return the numbers of prefix tokens that a layer may have, the most likely one first."""
    stated = getattr(backbone, "num_prefix_tokens", None)
    if isinstance(stated, int):
        return [stated, 0]
    most = 0
    for name, parameter in model.named_parameters():
        if PREFIX_TOKENS.search(name.rpartition(".")[2]):
            most += parameter.shape[-2] if parameter.ndim > 1 else 1
    return [most, *range(most)]


def patches_of(probabilities: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the renormalised maps between patches, and each head's mass on prefix tokens."""
    prefix = probabilities.shape[-1] - grid[0] * grid[1]
    to_prefix, to_patches = probabilities[:, :, prefix:].tensor_split([prefix], dim=-1)
    mass = to_prefix.double().sum(dim=-1).mean(dim=(0, 2))
    maps = to_patches / to_patches.sum(dim=-1, keepdim=True) if prefix else to_patches
    return maps.unflatten(-1, grid).unflatten(2, grid).cpu(), mass.cpu()
