"""Run a model on given inputs, uncompiled, or keep it in evaluation mode for a while."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import nn

Out = TypeVar("Out")


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


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run what is compiled, or compiles itself, without compilation."""
    # the stance imports what compiles, which takes seconds
    with torch.compiler.set_stance("force_eager") if _may_compile() else nullcontext():
        yield


def run_uncompiled(run: Callable[[], Out]) -> Out:
    """Return what `run` returns, which runs a model within `uncompiled`.

    If it fails and the model itself has just imported what compiles, it is run again; from then on,
    `uncompiled` lets nothing compile.
    """
    could_compile = _may_compile()
    try:
        return run()
    except Exception:
        if could_compile or not _may_compile():
            raise
        return run()


def _may_compile() -> bool:
    """Return whether anything can have been compiled by now, or can compile itself."""
    return not {"torch._dynamo", "torch.nn.attention.flex_attention"}.isdisjoint(sys.modules)
