"""The plain convolution that a customised or parametrised one computes, found by running it.

Subclasses of torch's convolutions pad in their own way (as in TensorFlow, or only in front of a
sequence) or compute their weight in each call (standardised, normalised). No library is known by
name: a copy of the layer runs on small images, and the one convolution that it executes tells the
weight and the padding. The result counts only if it reproduces the layer's output in float64 at
several sizes.
"""

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .conv_as_attention import OwnPadding, pad_image, padding_mode_of, padding_of

BASES = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
#: The images' rows and columns beyond the extent of the kernel.
SIZES = ((1, 0), (0, 2), (2, 1), (3, 5), (6, 4))


@dataclass(frozen=True)
class Plain:
    """The plain convolution that a layer computes, apart from what the layer's attributes say.

    `weight` and `bias` are those of evaluation mode, or None if `is_computed` is false: then they
    are the layer's own parameters. `own_padding` is None if the attributes state the padding.
    """

    is_computed: bool
    weight: Tensor | None
    bias: Tensor | None
    own_padding: OwnPadding | None


@dataclass(frozen=True)
class _Run:
    """A run of a layer on images `x`, and its convolution's input, weight and bias."""

    x: Tensor
    output: Tensor
    input: Tensor
    weight: Tensor
    bias: Tensor | None


def plain_equivalent(conv: nn.Module) -> Plain | None:
    """Return the plain convolution that a layer computes, or None if it computes something else.

    The layer must use the same weight for every input, and its output must be that of a convolution
    with its own attributes and this weight, after padding with zeros if it pads in its own way. A
    layer that is not `is_computed` does so in training mode too, for any weight and bias.
    """
    try:
        kind = next(conv.parameters()).device.type
        with (  # in inference mode, the convolution would be hidden in a larger operation
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast(kind, enabled=False),
            torch.random.fork_rng(devices=[]),
        ):
            return _found(_without_hooks(conv).eval())
    except Exception:  # the layer's own code may raise anything on our images
        return None


def _found(probe: Any) -> Plain | None:
    like = next(probe.parameters())
    run = _run(probe, _images(probe, SIZES[0]).to(like))
    is_computed = _has_more_than(probe, run)
    values = (run.weight.clone(), run.bias if run.bias is None else run.bias.clone())
    probe = probe.to("cpu", torch.float64)
    for parameter in probe.parameters():  # zeros would hide what the layer does with them
        if not is_computed or not parameter.any():
            parameter.copy_(_numbers(parameter.shape))
    runs = []
    for training in (False,) if is_computed else (False, True):
        probe.train(training)
        runs += [_run(probe, _images(probe, size)) for size in SIZES]
    if not all(torch.equal(run.weight, runs[0].weight) for run in runs):
        return None
    own_paddings = [None] if _is_transposed(probe) else [None, _padding_in(probe, run), "by stride"]
    for own_padding in own_paddings:
        if all(_reproduces(probe, own_padding, run) for run in runs):
            return Plain(is_computed, *(values if is_computed else (None, None)), own_padding)
    return None


def _run(probe: nn.Module, x: Tensor) -> _Run:
    """Run a layer that executes exactly one convolution; raise ValueError for any other."""
    with _Convolutions() as executed:
        output = probe(x)
    (call,) = executed.calls
    return _Run(x, output, *call[:3])


class _Convolutions(TorchDispatchMode):
    """A dispatch mode that lists the arguments of the convolutions executed."""

    def __init__(self):
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            self.calls.append(args)
        return func(*args, **(kwargs or {}))


def _without_hooks(conv: nn.Module) -> nn.Module:
    """Return a deep copy of a layer that keeps only the hooks with which torch sets its weight."""
    shallow = object.__new__(type(conv))
    vars(shallow).update(vars(conv))
    for name, hooks in vars(conv).items():
        if "_hooks" in name and isinstance(hooks, dict):
            kept = [(key, hook) for key, hook in hooks.items() if _sets_the_weight(hook)]
            vars(shallow)[name] = OrderedDict(kept)
    return copy.deepcopy(shallow, without_gradients(conv))


def _sets_the_weight(hook: Any) -> bool:
    """Return whether a hook is one of torch's, which normalise or prune the weight."""
    hook = getattr(hook, "hook", hook)
    homes = [hook.__module__, *(kind.__module__ for kind in type(hook).__mro__)]
    return any(home.startswith("torch.nn.utils.") for home in homes)


def without_gradients(conv: nn.Module) -> dict[int, Tensor]:
    """Return deepcopy's memo of computed tensors in a layer, which it would refuse to copy."""
    computed = [value for value in vars(conv).values() if isinstance(value, Tensor)]
    return {id(value): value.detach().clone() for value in computed}


def _has_more_than(probe: Any, run: _Run) -> bool:
    """Return whether the output depends on more than parameters named weight and bias."""
    own = dict(probe.named_parameters()) | dict(probe.named_buffers())
    used = {"weight": run.weight} | ({} if run.bias is None else {"bias": run.bias})
    return own.keys() != used.keys() or any(own[n].data_ptr() != used[n].data_ptr() for n in used)


def _images(conv: Any, more: tuple[int, int]) -> Tensor:
    """Return an image without zeros, a little larger than the kernel."""
    extents = [d * (k - 1) + 1 for k, d in zip(conv.kernel_size, conv.dilation, strict=True)]
    sizes = [extent + extra for extent, extra in zip(extents, more, strict=False)]
    return _numbers((1, conv.in_channels, *sizes))


def _numbers(shape: Any) -> Tensor:
    """Return random numbers between 0.5 and 1.5, of either sign."""
    sizes, signs = torch.rand((2, *shape), dtype=torch.float64, device="cpu")
    return (sizes + 0.5) * (signs - 0.5).sign()


def _padding_in(conv: Any, run: _Run) -> OwnPadding:
    """Return by how much a layer padded the images that it was given, per axis.

    A layer that cuts the end of its output pads the end of its images less.
    """
    given = padding_of(conv, None, run.input.shape[2:])
    found = []
    for axis, (before, after) in enumerate(given):
        outside = set(range(run.input.ndim)) - {axis + 2}
        first = int(run.input.ne(0).sum(dim=tuple(outside)).nonzero()[0])
        extent = conv.dilation[axis] * (conv.kernel_size[axis] - 1) + 1
        padded = run.input.shape[axis + 2] + before + after
        cut = (padded - extent) // conv.stride[axis] + 1 - run.output.shape[axis + 2]
        added = run.input.shape[axis + 2] - run.x.shape[axis + 2]
        found.append((before + first, after + added - first - cut * conv.stride[axis]))
    return tuple(found)


def _reproduces(conv: Any, own_padding: OwnPadding | None, run: _Run) -> bool:
    """Return whether padding and a plain convolution have a layer's output, up to rounding."""
    output = _convolved(conv, own_padding, run)
    if output.shape != run.output.shape:
        return False
    return torch.allclose(output, run.output, rtol=0, atol=1e-9 * float(run.output.abs().max()))


def _convolved(conv: Any, own_padding: OwnPadding | None, run: _Run) -> Tensor:
    axes = len(conv.kernel_size)
    if _is_transposed(conv):
        convolve = F.conv_transpose1d if axes == 1 else F.conv_transpose2d
        how = conv.stride, conv.padding, conv.output_padding, conv.groups, conv.dilation
        return convolve(run.x, run.weight, run.bias, *how)
    mode = padding_mode_of(conv, own_padding)
    padded = pad_image(run.x, padding_of(conv, own_padding, run.x.shape[2:]), mode)
    convolve = F.conv1d if axes == 1 else F.conv2d
    return convolve(padded, run.weight, run.bias, conv.stride, 0, conv.dilation, conv.groups)


def _is_transposed(conv: object) -> bool:
    return isinstance(conv, nn.ConvTranspose1d | nn.ConvTranspose2d)


def make_plain(conv: Any, plain: Plain) -> None:
    """Replace in place all parameters and buffers of a layer by its computed weight and bias."""
    if plain.weight is None:
        return
    trained = any(parameter.requires_grad for parameter in conv.parameters())
    for values in (conv._parameters, conv._buffers, conv._modules):
        values.clear()
    for name, hooks in vars(conv).items():
        if "_hooks" in name and isinstance(hooks, dict):
            for key in [key for key, hook in hooks.items() if _sets_the_weight(hook)]:
                del hooks[key]
    for name, value in (("weight", plain.weight), ("bias", plain.bias)):
        vars(conv).pop(name, None)
        conv._parameters[name] = None if value is None else nn.Parameter(value, trained)
