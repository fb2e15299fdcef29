"""Check the arguments that select a model's layers and give it images."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Layer = TypeVar("Layer")


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the module that `torch.compile` wraps, or the model itself."""
    return getattr(model, "_orig_mod", model)


def selected(found: list[Layer], layers: Iterable[int] | slice | None) -> list[Layer]:
    """Return the layers with the given numbers (from 0), or all layers if `layers` is None.

    Negative numbers count from the end; a slice is applied to the list of layers. Raises ValueError
    for anything but different numbers in range.
    """
    if layers is None:
        return found
    count = len(found)
    expected = "expected a list of numbers such as [0], a range or a slice, or None for all layers"
    if isinstance(layers, slice):
        numbers: list[Any] = list(range(count))[layers]
    elif isinstance(layers, Iterable) and not isinstance(layers, str | bytes):
        numbers = list(layers)
    else:
        raise ValueError(f"layers is {layers!r}, {expected}")
    if not numbers:
        raise ValueError(f"layers is {layers!r} and selects no layer; {expected}")
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, Integral):
            raise ValueError(f"layers has {number!r}; {expected}")
        if not -count <= int(number) < count:
            raise ValueError(f"layers has {number}, expected numbers from 0 to {count - 1}")
    numbers = [int(number) % count for number in numbers]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"layers is {layers!r}, which names a layer twice")
    return [found[number] for number in numbers]


def model_images(images: Any, shape: tuple[int, ...] | None, like: Tensor) -> Tensor:
    """Return images `(B, C, H', W')` in the dtype and on the device of the tensor `like`.

    `images` is a tensor or an array of floating-point numbers. Raises ValueError or TypeError
    unless it is a batch of finite images of the given `shape` `(C, H', W')`; None accepts any.
    """
    if not isinstance(images, Tensor):
        try:
            images = torch.as_tensor(images)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"images is a {type(images).__name__}, expected a tensor (batch, channels, height,"
                " width) in the model's input format"
            ) from error
    expected = "any shape" if shape is None else f"(batch, {', '.join(map(str, shape))})"
    if images.ndim != 4 or not len(images) or shape not in (None, tuple(images.shape[1:])):
        hint = "; add the batch axis with images[None]" if tuple(images.shape) == shape else ""
        raise ValueError(
            f"images has the shape {tuple(images.shape)}, expected {expected}, the model's input"
            f" size{hint}"
        )
    if not images.is_floating_point():
        raise TypeError(
            f"images has the dtype {images.dtype}, expected floating-point numbers scaled as the"
            " model expects; convert pixels with images / 255 and normalise them as in training"
        )
    if not bool(images.isfinite().all()):
        raise ValueError("images contains NaN or infinite pixels, expected finite ones")
    return images.to(like)
