"""Run a model whose attention layers go on with other attention maps than their own.

Letters: B images, N images or windows, N_h heads, H x W patch tokens, T tokens including prefix
tokens (class, distillation and register tokens), C channels.
"""

from collections.abc import Callable, Mapping, Sequence
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
from ..layers.conv_as_attention import ConvAsAttention, pad_image
from .capture import LayerAttention, Reader, Running, by_head, for_reading
from .interception import Weights

OURS = (PositionAttention, ContentAttention, ConvAsAttention)


class Substitution(Reader):
    """One forward pass in which some layers go on with the given attention maps.

    `maps` has the maps `(N_h, H, W, H, W)` of layers by their number in order of execution. In
    addition to the layers that `read_attention` reads, converted convolutions count as layers;
    their grid is the padded image. `layers` are the numbers of the layers whose own maps are handed
    to `use` (None: all); see `read_attention`.
    """

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        layers: Sequence[int] | None = None,
        use: Callable[[LayerAttention], Any] = lambda layer: layer,
        maps: Mapping[int, Tensor] | None = None,
    ):
        super().__init__(model, images, layers, use)
        self.images = images
        self.maps = maps or {}

    def run(self) -> Any:
        """Return the model's output; raise the error of a layer that cannot be read."""
        with for_reading(self.model), torch.no_grad(), self.hooks(), self.interception:
            output = self.model(self.images)
        for each in self.found:
            if isinstance(each, Exception):
                raise each
        return output

    def _enter(self, name: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
        number = len(self.found)
        super()._enter(name, module, args, kwargs)
        layer = self.running[-1]
        if isinstance(module, ConvAsAttention):
            layer.silent = False
            if self._is_wanted():
                self._keep(partial(_of_converted, name, module, args[0]))
        if isinstance(module, OURS):
            layer.number = number

    def _leave(self, module: nn.Module, args: tuple, output: Any) -> Any:
        number = self.running[-1].number
        super()._leave(module, args, output)
        if isinstance(module, OURS) and number is not None and number in self.maps:
            maps = self.maps[number].to(output)
            if isinstance(module, ConvAsAttention):
                return _output_of_converted(module, args[0], maps)
            return _output_of_ours(module, args[0], maps)
        return None

    def intercepted(self, seen: Weights) -> Tensor | None:
        """Read intercepted weights, and return those with which the layer goes on, if others."""
        if any(isinstance(each.module, ConvAsAttention) for each in self.running):
            return None
        number = len(self.found)
        super().intercepted(seen)
        if number == len(self.found) or number not in self.maps:
            return None
        layer = self.running[-1]
        weights = with_patches(by_head(layer, seen.weights), self.maps[number])
        return _as_intercepted(layer, weights, seen.weights.shape)


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
    padded = pad_image(images[:1], layer.pads, layer.padding_mode)
    maps = attention_probabilities(layer, *padded.shape[2:])
    return LayerAttention(name, maps.unsqueeze(0).cpu(), torch.zeros(layer.num_heads))


def _output_of_converted(layer: ConvAsAttention, images: Tensor, maps: Tensor) -> Tensor:
    """Return a converted convolution's output on images `(B, C, H', W')` with other maps."""
    x = pad_image(images, layer.pads, layer.padding_mode)
    rows, columns = (list(layer.queries(axis, x.shape[2 + axis])) for axis in (0, 1))
    averages = attend(maps[:, rows][:, :, columns], x.permute(2, 3, 0, 1))
    output = torch.einsum("hijbc,hco->boij", averages, layer.value_matrices())
    return output if layer.bias is None else output + layer.bias.view(-1, 1, 1)


def _output_of_ours(layer: Any, images: Tensor, maps: Tensor) -> Tensor:
    """Return the output of a layer of this package on images `(B, H, W, D)` with other maps."""
    averages = attend(maps, images.permute(1, 2, 0, 3))  # (N_h, H, W, B, D)
    return layer.value(averages.permute(3, 1, 2, 0, 4).flatten(3))
