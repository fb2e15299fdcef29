"""What `convert_network` replaced and left, and how far the networks differ on given images."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .mode import call, evaluation_mode


@dataclass(frozen=True)
class Comparison:
    """The outputs of a network and its conversion on the same images, in evaluation mode.

    Attributes:
        gap: The largest difference of the outputs.
        largest: The largest absolute value of an output.
        executed: Descriptions of the convolutions that the converted network still executed.
    """

    gap: float
    largest: float
    executed: tuple[str, ...]


@dataclass(frozen=True)
class ConversionReport:
    """The result of `convert_network` for each convolution, which prints as a table.

    Attributes:
        replaced: The convolution that each new attention layer replaces, by the layer's name.
        left: The reasons why other modules that may convolve were left, by the modules' names.
        comparison: The comparison of the outputs, or None unless images were given.
    """

    replaced: Mapping[str, str]
    left: Mapping[str, str]
    comparison: Comparison | None = None

    def __str__(self) -> str:
        lines = [f"{len(self.replaced)} layers compute attention instead of a convolution"]
        lines += [f"  {name or 'the model'}: {was}" for name, was in self.replaced.items()]
        if self.left:
            lines.append(f"{len(self.left)} modules were left as they were")
            lines += [f"  {name or 'the model'}: {reason}" for name, reason in self.left.items()]
        if found := self.comparison:
            if found.largest or found.gap:
                lines.append(
                    f"largest gap {found.gap:.1e}, for outputs of up to {found.largest:.1e}"
                )
            else:
                lines.append("outputs not compared: they have no numbers other than 0")
            lines.append(f"{len(found.executed)} convolutions were still executed")
            lines += [f"  {each}" for each in found.executed]
        return "\n".join(lines)


@torch.no_grad()
def compare(model: nn.Module, converted: nn.Module, images: Any) -> Comparison:
    """Run both networks once in evaluation mode, with the same random numbers.

    `images` is the network's argument, a tuple of its arguments, or a dict of its named ones.
    """
    with ExitStack() as stack:
        stack.enter_context(evaluation_mode(model))
        stack.enter_context(evaluation_mode(converted))
        theirs = _outputs(model, images)
        watch = stack.enter_context(_watching(converted))
        ours = _outputs(converted, images)
    pairs = [(_widest(a), _widest(b)) for a, b in zip(ours, theirs, strict=True) if b.numel()]
    gaps = [float((a - b).abs().max()) for a, b in pairs]
    largest = [float(b.abs().max()) for _, b in pairs]
    return Comparison(max(gaps, default=0.0), max(largest, default=0.0), tuple(watch.executed))


def _outputs(network: nn.Module, images: Any) -> list[Tensor]:
    """Return all floating-point and complex tensors in a network's output."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        output = call(network, images)
    return [
        each
        for each in _tensors(output, set())
        if each.dtype.is_floating_point or each.is_complex()
    ]


def _tensors(output: Any, seen: set[int]) -> Iterator[Tensor]:
    """Yield the tensors in an output, also those in attributes of objects."""
    for leaf in tree_leaves(output):
        if isinstance(leaf, Tensor):
            yield leaf
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, type) and id(leaf) not in seen:
            seen.add(id(leaf))
            yield from _tensors(list(vars(leaf).values()), seen)


def _widest(values: Tensor) -> Tensor:
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


class _Watch(TorchDispatchMode):
    """A dispatch mode that lists the convolutions that a network executes, by module."""

    def __init__(self):
        super().__init__()
        self.running: list[str] = []
        self.executed: dict[str, None] = {}  # in order, each once

    def enter(self, name: str, *_: Any) -> None:
        self.running.append(name)

    def leave(self, *_: Any) -> None:
        self.running.pop()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if re.search(r"conv(?!ert)", func.name()):
            where = self.running[-1] if self.running else "the model"
            self.executed[f"{func.name()} in {where}"] = None
        return func(*args, **(kwargs or {}))


@contextmanager
def _watching(network: nn.Module) -> Iterator[_Watch]:
    """Watch the convolutions that a network executes inside the block."""
    with ExitStack() as hooks, _Watch() as watch:
        for path, module in network.named_modules():
            name = f"{path or 'the model'} ({type(module).__name__})"
            enter = module.register_forward_pre_hook(partial(watch.enter, name))
            leave = module.register_forward_hook(watch.leave, always_call=True)
            hooks.callback(enter.remove)
            hooks.callback(leave.remove)
        yield watch
