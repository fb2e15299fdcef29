"""Deep copies of modules, with errors that name what cannot be copied."""

import copy
from collections.abc import Collection
from typing import TypeVar

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .customised import without_gradients

Module = TypeVar("Module", bound=nn.Module)


def copied(model: Module, folded: Collection[nn.Module] = ()) -> Module:
    """Return a deep copy of a module; raise ValueError that names what cannot be copied.

    Layers that are to be `folded` may keep their computed weights.
    """
    memo = {key: value for conv in folded for key, value in without_gradients(conv).items()}
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:  # an attribute's own code may raise anything
        reason = error
        kept = [
            f"{path}.{name}".lstrip(".")
            for path, module in model.named_modules()
            for name, value in vars(module).items()
            if any(isinstance(leaf, Tensor) and not leaf.is_leaf for leaf in tree_leaves(value))
        ]
        others = [] if kept else _not_copyable(model)
        if not kept and not others:
            raise
    if not kept:
        raise ValueError(
            f"cannot copy the {type(model).__name__}: copy.deepcopy takes no {', '.join(others)}"
            f" ({reason}); replace it by something that deepcopy takes, such as a list"
        )
    raise ValueError(
        f"cannot copy the {type(model).__name__}: {', '.join(kept)} holds a tensor that was"
        " computed with gradients, which torch does not copy; detach it or set it to None; if it is"
        " a pruned or normalised weight, pass fold=True or make it permanent first"
        " (torch.nn.utils.prune.remove, remove_weight_norm)"
    )


def _not_copyable(model: nn.Module) -> list[str]:
    """Return the names and types of the attributes that cannot be copied by themselves."""
    found = []
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            try:
                copy.deepcopy(value)
            except Exception:
                found.append(f"{path}.{name} ({type(value).__name__})".lstrip("."))
    return found
