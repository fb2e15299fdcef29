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

#: Functions that only move tokens, so that padding moves in the same way.
MOVES = {
    torch.roll,
    torch.permute,
    torch.transpose,
    torch.reshape,
    torch.flatten,
    Tensor.roll,
    Tensor.permute,
    Tensor.transpose,
    Tensor.reshape,
    Tensor.flatten,
    Tensor.unflatten,
    Tensor.view,
    Tensor.contiguous,
    Tensor.movedim,
    Tensor.__getitem__,
    F.pad,
}


class Padding(TorchFunctionMode):
    """Follow padding through a forward pass to the linear layers that project tokens.

    These include queries and keys, which have as many tokens as the attention among them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_count: dict[int, Tensor] = {}  # for the last projection of so many tokens

    def windows(self, count: int, tokens: int) -> Tensor:
        """Return which of N windows of T tokens contain padding: `(N,)`, on the CPU."""
        padded = self.by_count.get(count * tokens)
        if padded is None:
            return torch.zeros(count, dtype=torch.bool)
        return padded.view(count, tokens).any(dim=1).cpu()

    def __torch_function__(
        self, func: Callable, types: Any, args: Sequence[Any] = (), kwargs: Mapping | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        source = args[0] if args else kwargs.get("input")
        if not isinstance(source, Tensor) or not isinstance(result, Tensor):
            return result
        padded = getattr(source, "_attnconv_padded", None)
        if padded is None and func is F.pad and result.numel() > source.numel():
            padded = torch.zeros_like(source, dtype=torch.bool)
        if func is F.linear:
            self._project(source, padded)
        if padded is None:
            return result
        if func is F.pad:
            padding = args[1] if len(args) > 1 else kwargs["pad"]
            padded = F.pad(padded, padding, value=True)
        elif func in MOVES:
            padded = func(padded, *args[1:], **kwargs)
        if padded.shape == result.shape:  # else the tokens were mixed
            result._attnconv_padded = padded  # type: ignore[attr-defined]
        return result

    def _project(self, tokens: Tensor, padded: Tensor | None) -> None:
        count = tokens.shape[:-1].numel()
        self.by_count.pop(count, None)
        if padded is not None:
            self.by_count[count] = padded[..., 0].flatten()
