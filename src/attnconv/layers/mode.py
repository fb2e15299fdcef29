"""Run a model on given inputs, or keep it in evaluation mode for a while."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, then return each of its modules to its original mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        model.train(modes[0][1])  # undoes what a module's own `train` has done
        for module, training in modes:  # some modules may be frozen in evaluation mode
            module.training = training


def call(network: nn.Module, images: Any) -> Any:
    """Return a network's output for its argument, a tuple of them, or a dict of its named ones."""
    if isinstance(images, Mapping):
        return network(**images)
    return network(*images) if isinstance(images, tuple) else network(images)
