"""A context manager that puts a model in evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

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
