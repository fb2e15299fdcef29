"""Find the windows of an attention layer that contain padding or join opposite edges of the image.

Swin and others pad the tokens of an image until windows fit, and usually do not mask the padding.
They also shift the tokens cyclically. A mask then separates the edges that meet in a window; where
tokens are padded after the shift (timm), it does so in the wrong windows.

Letters: N windows, T tokens of a window.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

#: Functions that only move or split tokens, so that their labels move in the same way.
MOVES = {
    torch.permute,
    torch.transpose,
    torch.reshape,
    torch.flatten,
    torch.chunk,
    torch.split,
    torch.unbind,
    Tensor.permute,
    Tensor.transpose,
    Tensor.T.__get__,  # type: ignore[attr-defined]
    Tensor.mT.__get__,  # type: ignore[attr-defined]
    Tensor.reshape,
    Tensor.flatten,
    Tensor.unflatten,
    Tensor.view,
    Tensor.contiguous,
    Tensor.movedim,
    Tensor.__getitem__,
    Tensor.chunk,
    Tensor.split,
    Tensor.unbind,
}
#: Functions that project tokens, and the axis of channels.
PROJECTIONS = {F.linear: -1, F.conv2d: 1}
SUMS = {torch.add, Tensor.add, Tensor.__add__}
ROLLS = {torch.roll, Tensor.roll}

#: The label of padding. The other bits of a label say on which side of an edge of the image a token
#: is, for each axis along which tokens were shifted cyclically.
PADDING = 1
#: Attention above this between tokens that an edge separates is not masked. Swin adds -100 to the
#: scores that it masks.
UNMASKED = 1e-6


@dataclass(frozen=True)
class WindowBorders:
    """The parts of N windows that are not one part of the image, on the CPU.

    `padded` `(N,)` is the number of tokens that are padding. `joined` `(N,)` says which windows
    without padding join opposite edges of the image.
    """

    padded: Tensor
    joined: Tensor

    @property
    def whole(self) -> Tensor:
        """Which windows are one part of the image and nothing else, `(N,)`."""
        return (self.padded == 0) & ~self.joined


class Borders(TorchFunctionMode):
    """Follow padding and cyclic shifts through a forward pass to the layers that project tokens.

    These include queries and keys, which have as many tokens as the attention among them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_count: dict[int, Tensor] = {}  # labels at the last projection of so many tokens

    def of_windows(self, weights: Tensor) -> WindowBorders:
        """Return what windows contain beside one part of the image.

        Tokens of a window attend across an edge if the attention weights `(N, N_h, T, T)` say so.
        """
        count, tokens = weights.shape[::3]
        labels = self.by_count.get(count * tokens)
        if labels is None:
            nothing = torch.zeros(count, dtype=torch.long)
            return WindowBorders(nothing, nothing.bool())
        labels = labels.view(count, tokens)
        padded = (labels == PADDING).sum(dim=1)
        across = labels[:, :, None] != labels[:, None, :]
        largest = (weights.amax(dim=1) * across).amax(dim=(1, 2))
        return WindowBorders(padded.cpu(), ((largest > UNMASKED) & (padded == 0)).cpu())

    def __torch_function__(
        self, func: Callable, types: Any, args: Sequence[Any] = (), kwargs: Mapping | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:  # its weights are read as soon as it has run
            self._project_queries(args[0] if args else kwargs["query"])
        result = func(*args, **kwargs)
        source = args[0] if args else kwargs.get("input")
        if not isinstance(source, Tensor):
            return result
        labels = getattr(source, "_attnconv_labels", None)
        if func is F.pad and result.numel() > source.numel():
            before = _unlabelled(source) if labels is None else labels
            labels = F.pad(before, args[1] if len(args) > 1 else kwargs["pad"], value=PADDING)
        elif func in ROLLS:
            labels = _roll(_unlabelled(source) if labels is None else labels, *args[1:], **kwargs)
        elif func in PROJECTIONS:
            labels = self._project(source, labels, result, PROJECTIONS[func])
        elif func in MOVES and labels is not None:
            labels = func(labels, *args[1:], **kwargs)
        elif func in SUMS and isinstance(args[-1], Tensor):
            labels = _sum(source, args[-1])
        _label(result, labels)
        return result

    def _project_queries(self, query: Tensor) -> None:
        """Note the labels of the queries `(T, N, D)` of `nn.MultiheadAttention`."""
        if query.ndim == 3:
            labels = getattr(query, "_attnconv_labels", None)
            labels = None if labels is None else labels.transpose(0, 1)
            self._project(query.transpose(0, 1), labels, query.transpose(0, 1), -1)

    def _project(
        self, source: Tensor, labels: Tensor | None, result: Tensor, channels: int
    ) -> Tensor | None:
        """Note the labels of tokens that are projected, and return those of the result."""
        of_token = source.select(channels, 0)
        if result.select(channels, 0).shape != of_token.shape:
            return None  # a convolution that merges tokens
        self.by_count.pop(of_token.numel(), None)
        if labels is None:
            return None
        first = labels.narrow(channels, 0, 1)
        if bool((labels != first).any()):
            return None  # no whole tokens were padded or shifted
        self.by_count[of_token.numel()] = first.flatten()
        return first.expand_as(result)


def _unlabelled(source: Tensor) -> Tensor:
    return torch.zeros_like(source, dtype=torch.uint8)


def _roll(labels: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Return the labels of tokens that are shifted cyclically.

    In an image, a bit for each axis is inverted for the tokens that come out on the other side, so
    that shifting back undoes the change up to an inversion of all. In a sequence, a shift moves
    tokens that are not patches from one end to the other.
    """
    labels = labels.roll(shifts, dims)
    if labels.ndim < 4 or dims is None:
        return labels
    axes = [dims] if isinstance(dims, int) else list(dims)
    steps = [shifts] if isinstance(shifts, int) else list(shifts)
    for bit, (step, axis) in enumerate(zip(steps, axes, strict=True), start=1):
        other_side = labels.narrow(axis, 0, step % labels.shape[axis])
        other_side.bitwise_xor_((other_side != PADDING).to(torch.uint8) << bit)
    return labels


def _sum(one: Tensor, other: Tensor) -> Tensor | None:
    """Return the labels of a sum.

    Tokens that are added to as many unlabelled ones, such as those of a skip connection, have been
    shifted back, since these are in the image's order.
    """
    labels, others = (getattr(each, "_attnconv_labels", None) for each in (one, other))
    if labels is not None and others is not None:
        return labels
    found = others if labels is None else labels
    return found & PADDING if found is not None and one.shape == other.shape else found


def _label(result: Any, labels: Any) -> None:
    """Label a tensor, or the parts into which it was split."""
    if isinstance(result, tuple | list) and isinstance(labels, tuple | list):
        for part, its in zip(result, labels, strict=True):
            _label(part, its)
    elif isinstance(result, Tensor) and isinstance(labels, Tensor) and labels.shape == result.shape:
        result._attnconv_labels = labels  # type: ignore[attr-defined]
