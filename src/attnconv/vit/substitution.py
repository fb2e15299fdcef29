"""Run a model whose attention layers go on with other attention maps than their own.

Letters: B images, N images or windows, N_h heads, H x W patch tokens, T tokens including prefix
tokens (class, distillation and register tokens), C channels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.attention import (
    ContentAttention,
    PositionAttention,
    attend,
    attention_probabilities,
)
from ..layers.conv_as_attention import ConvAsAttention
from ..layers.mode import run_uncompiled
from .capture import (
    LayerAttention,
    Reader,
    Reading,
    Running,
    by_head,
    for_reading,
    why_skipped,
)
from .interception import Weights

OURS = (PositionAttention, ContentAttention, ConvAsAttention)


class ModelReader(Reader):
    """A reading that also includes converted convolutions, whose grid is the padded image."""

    def _enter(self, name: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
        super()._enter(name, module, args, kwargs)
        if isinstance(module, ConvAsAttention):
            self.running[-1].silent = False
            self._keep(partial(_of_converted, name, module, args[0]))
        self.interception.paused = self._is_ours_running()

    def _leave(self, module: nn.Module, _: Any, output: Any) -> None:
        super()._leave(module, _, output)
        self.interception.paused = self._is_ours_running()

    def _is_ours_running(self) -> bool:
        return any(isinstance(each.module, OURS) for each in self.running)


def read_output(
    model: nn.Module, images: Tensor, use: Callable[[LayerAttention], Any]
) -> tuple[Any, Reading]:
    """Return a model's output, and what `use` returns for each of its layers.

    In addition to the layers that `read_attention` reads, converted convolutions count as layers.
    Raises TypeError or ValueError if a layer cannot be read.
    """

    def run() -> tuple[Any, Reader]:
        reader = ModelReader(model, images, None, None, use)
        with for_reading(model), torch.no_grad(), reader.watching():
            return model(images), reader

    output, reader = run_uncompiled(run)
    for each in reader.found:
        if isinstance(each, Exception):
            raise each
    return output, Reading(reader.found, tuple(reader.skipped))


class _Substitution(Reader):
    """A forward pass in which the layers named in `maps` go on with other maps."""

    def __init__(self, model: nn.Module, images: Tensor, maps: Mapping[str, Tensor]):
        super().__init__(model, images, None, [], lambda layer: layer)
        self.maps = maps
        self.interception.paused = True

    def _enter(self, name: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
        super()._enter(name, module, args, kwargs)
        self._watch()

    def _leave(self, module: nn.Module, _: Any, output: Any) -> None:
        super()._leave(module, _, output)
        self._watch()

    def _watch(self) -> None:
        self.interception.paused = not any(each.name in self.maps for each in self.running)

    def intercepted(self, seen: Weights) -> Tensor | None:
        """Return the weights with which a layer goes on, or None if they stay its own."""
        layer = self.layer_with(seen.weights)
        ours = any(isinstance(each.module, OURS) for each in self.running)
        if ours or layer.name not in self.maps or why_skipped(layer, seen.weights):
            return None
        weights, maps = by_head(layer, seen.weights), self.maps[layer.name]
        order, _ = self.order_and_grid(layer, weights.shape[-1])
        if order is None:
            weights = with_patches(weights, maps)
        else:
            weights = with_patches(weights[..., order, :][..., order], maps)
            weights = weights[..., order.argsort(), :][..., order.argsort()]
        return _as_intercepted(layer, weights, seen.weights.shape)


def output_with(model: nn.Module, images: Tensor, maps: Mapping[str, Tensor]) -> Any:
    """Return a model's output on images if some layers have other attention maps than their own.

    `maps` has the maps `(N_h, H, W, H, W)` of layers by name. They are those that `read_output`
    reads, and the same for all images. The values and the model itself stay as they are.
    """
    run = _Substitution(model, images, maps)
    with ExitStack() as stack:
        stack.enter_context(for_reading(model))
        for name, module in model.named_modules():
            if name in maps and isinstance(module, OURS):
                stack.enter_context(_forward(module, partial(_output_of, module, maps[name])))
        with torch.no_grad(), run.watching():
            return model(images)


@contextmanager
def _forward(module: nn.Module, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Give a module another `forward` for a while."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


def with_patches(weights: Tensor, maps: Tensor) -> Tensor:
    """Return weights `(N, N_h, T, T)` in which maps `(N_h, H, W, H, W)` relate the patches.

    The rows and columns of prefix tokens, which come first, are kept. Each row of the maps is
    scaled to the mass that the row of the weights gives to patches.
    """
    maps = maps.flatten(3).flatten(1, 2).to(weights)
    prefix = weights.shape[-1] - maps.shape[-1]
    weights = weights.clone()
    of_patches = weights[..., prefix:, prefix:]
    of_patches.copy_(maps * of_patches.sum(dim=-1, keepdim=True))
    return weights


def _as_intercepted(layer: Running, weights: Tensor, shape: Sequence[int]) -> Tensor:
    """Return weights `(N, N_h, T, T)` in the shape in which `by_head` was given them."""
    if len(shape) <= 4:
        return weights.reshape(shape)
    axis = list(shape).index(weights.shape[1], 1)
    others = [*shape[:axis], *shape[axis + 1 : -2]]
    return weights.unflatten(0, others).movedim(-3, axis)


def _of_converted(name: str, layer: ConvAsAttention, images: Tensor) -> LayerAttention:
    padded = layer.padded(images[:1])
    maps = attention_probabilities(layer, *padded.shape[2:])
    return LayerAttention(name, maps.unsqueeze(0).cpu(), torch.zeros(layer.num_heads))


def _output_of(layer: Any, maps: Tensor, X: Tensor) -> Tensor:
    """Return the output of a layer of this package with other maps."""
    maps = maps.to(X)
    if isinstance(layer, ConvAsAttention):
        return _output_of_converted(layer, maps, X)
    averages = attend(maps, X.permute(1, 2, 0, 3))  # (N_h, H, W, B, D)
    return layer.value(averages.permute(3, 1, 2, 0, 4).flatten(3))


def _output_of_converted(layer: ConvAsAttention, maps: Tensor, images: Tensor) -> Tensor:
    """Return a converted convolution's output on images `(B, C, H', W')` with other maps."""
    x = layer.padded(images)
    rows, columns = (list(layer.queries(axis, x.shape[2 + axis])) for axis in (0, 1))
    averages = attend(maps[:, rows][:, :, columns], x.permute(2, 3, 0, 1))
    output = torch.einsum("hijbc,hco->boij", averages, layer.value_matrices())
    return output if layer.bias is None else output + layer.bias.view(-1, 1, 1)
