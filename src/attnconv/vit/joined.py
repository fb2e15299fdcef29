"""Find the tokens that a model joins to those of the image, in front of them or behind them.

Class and register tokens usually come first; vit-pytorch and x-transformers append their registers,
and transformers' YOLOS its detection tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

JOINS = {torch.cat, torch.concat, torch.concatenate}


class Joined(TorchFunctionMode):
    """Follow what is computed from parameters alone to where it is joined to the image's tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.by_count: dict[int, tuple[int, int]] = {}

    def around(self, tokens: int) -> tuple[int, int] | None:
        """Return how many of T tokens come before and after those of the image, if it is known."""
        return self.by_count.get(tokens)

    def __torch_function__(
        self, func: Callable, types: Any, args: Sequence[Any] = (), kwargs: Mapping | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        operands = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        own = [_is_own(each) for each in operands]
        if not any(own) or not isinstance(result, Tensor):
            return result
        if all(own) and not isinstance(result, nn.Parameter):
            result._attnconv_own = True  # type: ignore[attr-defined]
        elif func in JOINS and own.count(False) == 1 and result.ndim > 2:
            dim = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else 0))
            self._join([each.shape[dim] for each in operands], own.index(False))
        return result

    def _join(self, counts: Sequence[int], number: int) -> None:
        """Note that the tokens with this number have been joined to those of parameters."""
        before, after = self.by_count.get(counts[number], (0, 0))  # joined earlier
        self.by_count[sum(counts)] = (
            sum(counts[:number]) + before,
            after + sum(counts[number + 1 :]),
        )


def _is_own(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) or hasattr(tensor, "_attnconv_own")
