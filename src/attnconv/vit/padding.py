"""Find the windows of an attention layer that contain padding.

Swin and others pad the tokens of an image until windows fit, and usually do not mask the padding.

Letters: N windows, T tokens of a window.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

#: Functions that only move or split tokens, so that padding moves in the same way.
MOVES = {
    torch.roll,
    torch.permute,
    torch.transpose,
    torch.reshape,
    torch.flatten,
    torch.chunk,
    torch.split,
    torch.unbind,
    Tensor.roll,
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


class Padding(TorchFunctionMode):
    """Follow padding through a forward pass to the layers that project tokens.

    These include queries and keys, which have as many tokens as the attention among them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_count: dict[int, Tensor] = {}  # for the last projection of so many tokens

    def windows(self, count: int, tokens: int) -> Tensor:
        """Return how many of the T tokens of each of N windows are padding: `(N,)`, on the CPU."""
        padded = self.by_count.get(count * tokens)
        if padded is None:
            return torch.zeros(count, dtype=torch.long)
        return padded.view(count, tokens).sum(dim=1).cpu()

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
        padded = getattr(source, "_attnconv_padded", None)
        if func is F.pad and result.numel() > source.numel():
            before = torch.zeros_like(source, dtype=torch.bool) if padded is None else padded
            padded = F.pad(before, args[1] if len(args) > 1 else kwargs["pad"], value=True)
        elif func in PROJECTIONS:
            padded = self._project(source, padded, result, PROJECTIONS[func])
        elif func in MOVES and padded is not None:
            padded = func(padded, *args[1:], **kwargs)
        elif func in SUMS and padded is None:
            padded = getattr(args[-1], "_attnconv_padded", None)
        _mark(result, padded)
        return result

    def _project_queries(self, query: Tensor) -> None:
        """Note which queries `(T, N, D)` of `nn.MultiheadAttention` are padding."""
        if query.ndim == 3:
            padded = getattr(query, "_attnconv_padded", None)
            padded = None if padded is None else padded.transpose(0, 1)
            self._project(query.transpose(0, 1), padded, query.transpose(0, 1), -1)

    def _project(
        self, source: Tensor, padded: Tensor | None, result: Tensor, channels: int
    ) -> Tensor | None:
        """Note which tokens that are projected are padding, and return the same of the result."""
        of_token = source.select(channels, 0)
        if result.select(channels, 0).shape != of_token.shape:
            return None  # a convolution that merges tokens
        self.by_count.pop(of_token.numel(), None)
        if padded is None or not torch.equal(padded.all(dim=channels), padded.any(dim=channels)):
            return None  # no whole tokens were padded
        self.by_count[of_token.numel()] = padded.select(channels, 0).flatten()
        return padded.narrow(channels, 0, 1).expand_as(result)


def _mark(result: Any, padded: Any) -> None:
    """Mark the padding of a tensor, or of the parts into which it was split."""
    if isinstance(result, tuple | list) and isinstance(padded, tuple | list):
        for part, its in zip(result, padded, strict=True):
            _mark(part, its)
    elif isinstance(result, Tensor) and isinstance(padded, Tensor) and padded.shape == result.shape:
        result._attnconv_padded = padded  # type: ignore[attr-defined]
