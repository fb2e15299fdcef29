"""Theorem 1 for torch's layers and networks: replace convolutions by self-attention.

`conv_to_attention` converts a layer and `convert_network` a whole network.
"""

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from types import CodeType
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_leaves

from ..theory.theorem1 import DTYPES
from .conv_as_attention import ConvAsAttention, attend_instead, too_far
from .conversion_report import Comparison, ConversionReport, compare
from .encodings import QuadraticEncoding
from .values import can_be_read

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)

#: Modules to leave as they are: their names (with all that they contain), or a predicate.
Skip = Collection[str] | Callable[[str, nn.Module], bool]
Module = TypeVar("Module", bound=nn.Module)


def conv_to_attention(conv: nn.Conv1d | nn.Conv2d, alpha: float | None = None) -> ConvAsAttention:
    """Return a self-attention layer that computes the given convolution. Theorem 1.

    Accepts any `nn.Conv1d` or `nn.Conv2d`; the result is called in the same way, with `(B, C, ...)`
    as input and output. `alpha` (in inverse squared pixels) is the sharpness of the heads; its
    default is `hard_alpha` for the layer's dtype. Attributes, parameters, buffers and hooks are
    those of the convolution, copied, so later changes to `conv` have no effect. Raises TypeError
    for transposed, lazy, 3D, parametrised, quantised, scripted and customised convolutions, for
    those on the meta device, and for half-precision ones that reach so many pixels that the dtype
    cannot tell them apart. Raises ValueError for sizes that no convolution has, such as a negative
    padding, and for a convolution that cannot be copied.
    """
    if reason := _why_not(conv):
        raise TypeError(
            f"cannot turn {type(conv).__name__} into attention: {reason}; expected a"
            " torch.nn.Conv1d or Conv2d"
        )
    if reason := _wrong_sizes(conv):
        raise ValueError(f"cannot turn {type(conv).__name__} into attention: {reason}")
    return attend_instead(_copied(conv), alpha)


def convert_network(
    model: nn.Module,
    alpha: float | None = None,
    *,
    skip: Skip = (),
    images: Tensor | tuple[Any, ...] | Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return a copy of a network with self-attention in place of every convolution. Theorem 1.

    Each convolution becomes the result of `conv_to_attention`. `alpha` is the sharpness of all
    heads, including those of layers that already are converted; by default, the heads are one-hot.
    Modules and parameters that are used in several places remain shared. `skip` names modules that
    are left as they are, with all that they contain, or is a predicate of a module's name and the
    module. Convolutions called as functions in a forward method are not modules and are not
    replaced. The original model is not changed.

    The attribute `conversion_report` of the result (a `ConversionReport`, which can be printed)
    lists what was replaced and left. With `images` (the network's argument, a tuple of its
    arguments, or a dict of its named ones), both networks are run once in evaluation mode, and the
    report also states the largest difference of their outputs and the convolutions that were still
    executed. Raises ValueError if one-hot heads differ from the convolutions by more than rounding.

    Raises a TypeError that names each module that cannot be converted and why, and ValueError if
    `skip` names no module, a module has sizes that no convolution has, or the model cannot be
    copied.
    """
    skipped = _skipped(model, skip)
    _expect_convertible(model, skipped)
    converted = _copied(model)
    replaced: dict[str, str] = {}
    left: dict[str, str] = {}
    for name, module in list(converted.named_modules()):
        if name in skipped:
            if _may_convolve(module):
                left[name] = f"{type(module).__name__}, skipped"
        elif _is_convolution(module):
            replaced[name] = f"{type(module).__name__}({module.extra_repr()})"
            attend_instead(module, alpha)
        elif isinstance(module, ConvAsAttention) and alpha is not None:
            _set_alpha(module, alpha)
        elif _may_convolve(module):
            left[name] = f"{type(module).__name__}, which is not a torch.nn.Conv1d or Conv2d"
    comparison = None if images is None else compare(model, converted, images)
    if comparison and alpha is None:
        _expect_equal(comparison, next(model.parameters()).dtype)
    vars(converted)["conversion_report"] = ConversionReport(replaced, left, comparison)
    return converted


def _skipped(model: nn.Module, skip: Skip) -> set[str]:
    """Return the names of all modules to leave, under which the model lists them."""
    names = dict(model.named_modules(remove_duplicate=False))
    if isinstance(skip, str):
        skip = (skip,)
    if callable(skip):
        chosen = {name for name, module in names.items() if skip(name, module)}
    else:
        chosen = set(skip)
    if unknown := sorted(chosen - names.keys()):
        raise ValueError(
            f"skip names {', '.join(map(repr, unknown))}, expected names of the model's modules,"
            " as model.named_modules() lists them"
        )
    left = {id(part) for name in chosen for part in names[name].modules()}
    return {name for name, module in names.items() if id(module) in left}


def _expect_convertible(model: nn.Module, skipped: Collection[str]) -> None:
    """Raise one error that names every module that cannot be converted."""
    obstacles: dict[str, str] = {}
    errors: set[type[Exception]] = set()
    modules = {name: each for name, each in model.named_modules() if name not in skipped}
    replaces = any(map(_is_convolution, modules.values()))
    for name, module in modules.items():
        convolution = _is_convolution(module) or _has_convolutions_inside(module)
        reason = _why_not(module) if convolution else None
        if replaces and (asked := _class_asked_for(module)):
            reason = (
                f"its forward tests whether a module is a {asked}, which attention is not; let it"
                " test for attnconv.layers.conv_as_attention.ConvAsAttention as well"
            )
        if convolution and is_compiled(name):
            reason = "it is compiled; convert it before torch.compile"
        wrong = _wrong_sizes(module) if convolution and not reason else None
        if reason or wrong:
            errors.add(TypeError if reason else ValueError)
            obstacles[name] = f"({type(module).__name__}): {reason or wrong}"
    if not obstacles:
        return
    lines = [f"cannot convert {name or 'the model'} {why}" for name, why in obstacles.items()]
    if names := [name for name in obstacles if name]:
        lines.append(f"To leave modules as they are, pass their names: skip={names}")
    raise (ValueError if errors == {ValueError} else TypeError)("\n".join(lines))


def _copied(model: Module) -> Module:
    """Return a deep copy of a module; raise ValueError if it keeps tensors with gradients."""
    try:
        return copy.deepcopy(model)
    except RuntimeError:
        kept = [
            f"{path}.{name}".lstrip(".")
            for path, module in model.named_modules()
            for name, value in vars(module).items()
            if any(isinstance(leaf, Tensor) and not leaf.is_leaf for leaf in tree_leaves(value))
        ]
        if not kept:
            raise
    raise ValueError(
        f"cannot copy the {type(model).__name__}: {', '.join(kept)} holds a tensor that was"
        " computed with gradients, which torch does not copy; detach it or set it to None, and make"
        " pruned or normalised weights permanent first (torch.nn.utils.prune.remove,"
        " remove_weight_norm)"
    )


@torch.no_grad()
def _set_alpha(layer: ConvAsAttention, alpha: float) -> None:
    encoding = layer.encoding
    encoding.spread.copy_(QuadraticEncoding.from_alpha(encoding.centers, alpha).spread)


def _expect_equal(found: Comparison, dtype: torch.dtype) -> None:
    """Raise ValueError if two networks differ by more than the rounding of many layers."""
    if found.gap <= max(0.01, 32 * torch.finfo(dtype).eps) * found.largest:
        return
    raise ValueError(
        f"the outputs of the converted network differ by up to {found.gap:.1e} from those of the"
        f" network (up to {found.largest:.1e}), expected only rounding; a forward method may test"
        " whether a module is a torch.nn.Conv2d, or evaluation mode may be random; find the"
        " layer by passing the names of others in `skip`"
    )


def replaced(network: nn.Module, by: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Replace modules of a network in place, wherever they are used, and return the network.

    `by` maps the modules to their replacements. It may replace the network itself.
    """
    for path, module in list(network.named_modules(remove_duplicate=False)):
        if module in by and path:
            network.set_submodule(path, by[module])
    return by.get(network, network)


def _is_convolution(module: object) -> TypeGuard[nn.Conv1d | nn.Conv2d]:
    """Return whether a module is a convolution of any kind, even if it cannot be converted.

    A scripted module may be one.
    """
    return isinstance(module, (*CONVOLUTIONS, torch.jit.ScriptModule))


def _has_convolutions_inside(module: nn.Module) -> bool:
    """Return whether a module certainly convolves by other means: quantised or exported."""
    quantised = type(module).__module__.startswith("torch.ao.")
    convolution = "conv" in type(module).__name__.lower() and not isinstance(module, nn.Sequential)
    return (quantised and convolution) or any(
        str(node.target).startswith("aten.conv") for node in _graph_nodes(module)
    )


def _graph_nodes(module: nn.Module) -> Iterator[torch.fx.Node]:
    """Yield the function calls in a module's graph, if it has one."""
    if isinstance(module, torch.fx.GraphModule):
        yield from (node for node in module.graph.nodes if node.op == "call_function")


def _may_convolve(module: nn.Module) -> bool:
    """Return whether a module without parts is a kind of convolution, judging by its name."""
    leaf = not any(module.children())
    converted = isinstance(module, ConvAsAttention)
    return leaf and "conv" in type(module).__name__.lower() and not converted


def _class_asked_for(module: nn.Module) -> str | None:
    """Return the class of convolutions for which a module's forward seems to test, or None.

    The forward method (or `__call__`) then names both the class and a function that tests classes.
    """
    for method in (type(module).forward, type(module).__call__):
        names = _names_in(getattr(inspect.unwrap(method), "__code__", None))
        asked = sorted(names & {"_ConvNd", *(kind.__name__ for kind in CONVOLUTIONS)})
        if (
            asked
            and names & {"isinstance", "issubclass", "type"}
            and "ConvAsAttention" not in names
        ):
            return asked[0]
    return None


def _names_in(code: object) -> set[str]:
    """Return the global names and attributes in a function's code and in the functions inside."""
    if not isinstance(code, CodeType):
        return set()
    return set(code.co_names).union(*map(_names_in, code.co_consts))


def is_compiled(path: str) -> bool:
    """Return whether a module's path in a network shows that torch.compile has wrapped it."""
    return path.rpartition(".")[2] == "_orig_mod"


#: Methods that a subclass may override without changing what the convolution computes.
HARMLESS = {"extra_repr", "reset_parameters", "_get_name"}


#: What an attention layer has and a convolution does not.
ATTENTIONS_OWN = {"encoding", "_known", *dir(ConvAsAttention)} - {*dir(nn.Conv1d), *dir(nn.Conv2d)}


def _why_not(conv: object) -> str | None:
    """Return why a module cannot be converted and what to do, or None if it can be."""
    if isinstance(conv, torch.jit.ScriptModule):
        return "it is scripted; convert the module that it was made from"
    if isinstance(conv, LazyModuleMixin):
        return "it is lazy and has no weights yet; run it on an input first"
    if isinstance(conv, TRANSPOSED):
        return "it is a transposed convolution"
    if isinstance(conv, torch.fx.GraphModule):
        return "its graph calls convolutions; convert the network before torch.export"
    if type(conv).__module__.startswith("torch.ao."):
        return "it is quantised; convert the network before quantisation"
    if not isinstance(conv, nn.Conv1d | nn.Conv2d):
        return "it is not a 1D or 2D convolution"
    if parametrize.is_parametrized(conv):
        return (
            "it is parametrised; make its weights permanent first (with"
            " torch.nn.utils.parametrize.remove_parametrizations)"
        )
    if name := _own_method(conv):
        return f"its {name} is not that of a plain convolution; first replace it by a plain one"
    if not can_be_read(conv.weight):
        return "its weight is on the meta device or fake; move it to a device and load it first"
    if conv.weight.dtype not in DTYPES:
        return f"its weights are {conv.weight.dtype}; make them real floating-point numbers first"
    if taken := sorted(ATTENTIONS_OWN & set(dir(conv))):
        return f"its attribute {taken[0]} has the name of one of attention's; rename it"
    return None if _wrong_sizes(conv) else too_far(conv)


def _own_method(conv: nn.Conv1d | nn.Conv2d) -> str | None:
    """Return a name that a subclass or the module itself defines anew, or None if it is plain.

    It may be a method, or a property in place of an attribute such as `weight`.
    """
    base = nn.Conv1d if isinstance(conv, nn.Conv1d) else nn.Conv2d
    methods = [name for name in dir(base) if not name.startswith("__") and name not in HARMLESS]
    for name in ("forward", "__call__", "__getattr__", *methods):
        of_base = inspect.getattr_static(base, name)
        changed = inspect.getattr_static(type(conv), name) is not of_base or name in vars(conv)
        if callable(of_base) and changed:
            return name
    for name in ("weight", "bias", *base.__constants__):
        if isinstance(inspect.getattr_static(type(conv), name, None), property):
            return name
    return None


def _wrong_sizes(conv: Any) -> str | None:
    """Return which of a convolution's sizes is impossible, or None."""
    axes = 1 if isinstance(conv, nn.Conv1d) else 2
    for name, least in (("kernel_size", 1), ("stride", 1), ("dilation", 1), ("padding", 0)):
        sizes = getattr(conv, name)
        if not isinstance(sizes, str) and (len(sizes) != axes or min(sizes) < least):
            return f"its {name} is {sizes}, expected {axes} numbers of at least {least}"
    for name in ("in_channels", "out_channels"):
        if getattr(conv, name) < 1:
            return f"its {name} is {getattr(conv, name)}, expected at least 1"
    shape = (conv.out_channels, conv.in_channels // conv.groups, *conv.kernel_size)
    if tuple(conv.weight.shape) != shape:
        return (
            f"its weight has the shape {tuple(conv.weight.shape)}, expected {shape}; set its"
            " in_channels, out_channels, groups and kernel_size to those of the weight"
        )
    return None
