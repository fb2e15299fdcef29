"""Read the attention of vision transformers of any library, and of this package's networks.

Letters: B images, N images or windows, N_h heads, H x W patch tokens of an image or window, T
tokens including prefix tokens (class, distillation, register and detection tokens, which may also
come last).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import isqrt, prod
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.attention import ContentAttention, PositionAttention, attention_probabilities
from ..layers.mode import evaluation_mode, run_uncompiled, uncompiled
from .borders import Borders, WindowBorders
from .inputs import selected
from .interception import Interception, Weights
from .joined import Joined
from .tokens import (
    backbone_of,
    cut_into_patches,
    embedding_of,
    patches_of,
    possible_prefixes,
    real_patches,
    rerolled,
    sides,
    windows_around,
    windows_of,
)

SUPPORTED = (
    "expected self-attention among the patches of an image or window, computed with"
    " scaled_dot_product_attention, flex_attention, nn.MultiheadAttention, or a softmax that"
    " multiplies the values;"
    " other maps can be given as a tensor"
)


#: Images `(B, C, H', W')`, or the input of timm's NaFlex models.
Images = Tensor | Mapping[str, Tensor]


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
    model: nn.Module, images: Images, layers: Sequence[int] | None = None
) -> list[LayerAttention]:
    """Return the attention of the layers of a model on images, in order of execution.

    `images` is the model's input `(B, C, H', W')`, or the dict that timm's NaFlex models take, with
    images of one size. The model runs once, in evaluation mode and
    without gradients, and its mode is then restored. In layers with windows (Swin, MaxViT), each
    window counts as an image, and Swin's mask applies to shifted windows. Windows that contain
    padding, or that join opposite edges of the image without a mask, are left out. In MaxViT's grid
    attention, the tokens are those of a strided grid. `layers` selects layers by number, counting
    from 0 in order of execution, and gives their order in the result; the attention of other layers
    is not checked. None selects all. Attention that is not among patches is skipped and has no
    number: attention pooling, and keys that are fewer or other than the queries. The same applies
    to layers in which every window contains padding or joins opposite edges.

    Raises a TypeError that names the module if attention cannot be read or the model has none, and
    ValueError if the height and width of a layer's token grid are unknown or `layers` is invalid.
    """
    return read_attention(model, images, layers).layers


def read_attention(
    model: nn.Module,
    images: Images,
    layers: Sequence[int] | None = None,
    use: Callable[[LayerAttention], Any] = lambda layer: layer,
) -> Reading:
    """Read the attention of a model and keep only what `use` returns for each layer.

    Each layer's maps are handed to `use` as soon as they are formed, so that the maps of two layers
    are never in memory at once. For the arguments and errors, see `attention_of`; errors of `use`
    are raised for chosen layers only.
    """
    if isinstance(images, Mapping):
        given, grid = real_patches(images)
        batch = given["patches"]
    else:
        given, grid = images, None
        batch = images

    def run() -> Reader:
        reader = Reader(model, batch, grid, layers, use)
        with for_reading(model), torch.no_grad(), reader.watching():
            model(given)
        return reader

    reader = run_uncompiled(run)
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
        stack.enter_context(uncompiled())
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        stack.enter_context(evaluation_mode(model))
        yield


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
    error, or None if the layer was not chosen. `grids` are the given one, if any, and
    the heights and widths of all convolutions' outputs so far; the last one that fits gives a
    layer's token grid.
    """

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        grid: tuple[int, int] | None,
        layers: Sequence[int] | None,
        use: Callable[[LayerAttention], Any],
    ):
        self.model, self.use = model, use
        self.image = None if grid else tuple(images.shape[-2:])
        self.batch = len(images)
        self.wanted: set[int] | None = None  # all, also if their numbers count from the end
        if layers is not None and not isinstance(layers, int | str) and min(layers, default=0) >= 0:
            self.wanted = set(layers)
        self.found: list[Any] = []
        self.skipped: list[str] = []
        self.grids = [grid] if grid else []
        self.running: list[Running] = []
        self.interception = Interception(self.intercepted)
        self.borders = Borders()
        self.joined = Joined()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep track of the modules that are running, of tokens, and of attention weights."""
        with ExitStack() as stack:
            # the last one does not see what the others compute
            for mode in (self.interception, self.joined, self.borders):
                stack.enter_context(mode)
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
        layer = self.layer_with(seen.weights)
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
        weights = by_head(layer, seen.weights)
        borders = self.borders.of_windows(weights)
        if not bool(borders.whole.any()):
            self._skip(f"{layer.called} {_why_none_is_whole(borders, weights.shape[-1])}")
            return None
        layer.number = len(self.found)
        if problem:
            self.found.append(_refusal(layer, problem))
        elif self._is_wanted():
            self._keep(partial(self._read, layer, weights, borders, seen.gap))
        return None

    def layer_with(self, weights: Tensor) -> Running:
        """Return the innermost running module that was given tokens.

        Some layers hand the queries of each head to a module inside (x-transformers).
        """
        given = (each for each in reversed(self.running) if not _is_by_head(each.shape, weights))
        return next(given, self.running[-1])

    def order_and_grid(
        self, layer: Running, tokens: int
    ) -> tuple[Tensor | None, tuple[int, int] | None]:
        """Return the order that puts a layer's tokens into that of the image, and the grid.

        The order begins with the tokens that belong to no patch. It is None for tokens in order,
        and the grid is None if the model does not state it.
        """
        count = prod(layer.shape[1:-1])  # in all windows
        if (known := rerolled(layer.name, self.model, tokens, count)) is not None:
            return known
        _, after = self.joined.around(tokens) or (0, 0)
        if not after:
            return None, None
        return torch.arange(tokens).roll(after), None

    def _note_borders(self, layer: Running, borders: WindowBorders, keys: int) -> None:
        """Note as skipped the windows that are not one part of the image."""
        padded, windows = borders.padded, len(borders.padded)
        if count := int(padded.count_nonzero()):
            self._skip(
                f"{count} of {windows} windows of {layer.called}, which contain padding (up to"
                f" {int(padded.max())} of {keys} keys)"
            )
        if count := int(borders.joined.count_nonzero()):
            self._skip(
                f"{count} of {windows} windows of {layer.called}, which join opposite edges of the"
                " image without a mask"
            )

    def _read(
        self, layer: Running, weights: Tensor, borders: WindowBorders, gap: float
    ) -> LayerAttention:
        """Return the attention of a layer, or raise an error if it has no known token grid."""
        order, grid = self.order_and_grid(layer, weights.shape[-1])
        by_mask_unit = "MaskUnit" in type(layer.module).__name__  # Hiera
        if (by_mask_unit and grid is None) or self.interception.reordered:
            raise _refusal(layer, "its tokens were put into another order than the image's")
        if order is not None:
            weights = weights[..., order, :][..., order]
        if grid is None:
            grid = self._grid(layer, len(weights), weights.shape[-1])
        if not bool(borders.whole.all()):
            self._note_borders(layer, borders, weights.shape[-1])
            weights = weights[borders.whole]
        return LayerAttention(layer.name, *patches_of(layer.called, weights, grid), gap)

    def _grid(self, layer: Running, images: int, tokens: int) -> tuple[int, int]:
        """Return the height and width of a layer's patch tokens."""
        backbone = backbone_of(layer.name, self.model)
        embedding = embedding_of(backbone)
        of_image: Callable | None = getattr(embedding, "dynamic_feat_size", None)
        joined = self.joined.around(tokens)
        prefixes = [
            *([sum(joined)] if joined else []),
            *possible_prefixes(backbone, self.model),
        ]
        known = [*windows_around(layer.name, self.model), *sides(layer.shape)]
        if images == self.batch:  # otherwise the tokens are those of windows
            known += [
                of_image(self.image) if of_image and self.image else None,
                getattr(embedding, "grid_size", None),
                *reversed(self.grids),
                cut_into_patches(self.image, embedding) if self.image else None,
            ]
        for size in known:
            if isinstance(size, tuple) and tokens - prod(size) in prefixes:
                return size[0], size[1]
        for prefix in prefixes if self.image and self.image[0] == self.image[1] else ():
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


def _why_none_is_whole(borders: WindowBorders, keys: int) -> str:
    """Return why no window of a layer is one part of the image."""
    windows = len(borders.padded)
    if bool(borders.joined.any()):
        return (
            "joins opposite edges of the image, or attends to padding, in each of its"
            f" {windows} windows; larger images have others"
        )
    return (
        f"attends to padding in each of its {windows} windows (up to {int(borders.padded.max())} of"
        f" {keys} keys); larger images have others"
    )


def _is_by_head(shape: tuple[int, ...], weights: Tensor) -> bool:
    """Return whether an input has the queries of weights `(..., N_h, T, S)`, head by head."""
    return weights.ndim > 3 and shape[:-1] == tuple(weights.shape[:-1])


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
    if heads is None and weights.ndim > 4:
        return f"has maps of shape {tuple(weights.shape)}, whose axis of heads is unknown"
    rows = weights.numel() // keys // heads if heads else 0
    shape = layer.shape
    if len(shape) == 3:
        between = keys in shape[:2] or rows == shape[0] * shape[1]
    else:
        between = keys in map(prod, sides(shape)) or rows in [
            shape[0] * prod(s) for s in sides(shape)
        ]
    if not heads or not (between or keys in map(prod, windows_of(layer.module))):
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
