"""Theorem 1 for torch's layers and networks: replace convolutions by self-attention.

`conv_to_attention` converts a layer and `convert_network` a whole network.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from ..theory.theorem1 import DTYPES
from .conv_as_attention import ConvAsAttention, attend_instead, too_far
from .conversion_report import Comparison, ConversionReport, compare
from .copies import copied
from .customised import BASES, Plain, make_plain, plain_equivalent
from .encodings import QuadraticEncoding
from .transposed import TransposedAsAttention
from .values import can_be_read

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)

#: Modules to leave as they are: their names (with all that they contain), or a predicate.
Skip = Collection[str] | Callable[[str, nn.Module], bool]


def conv_to_attention(
    conv: nn.Conv1d | nn.Conv2d | nn.ConvTranspose1d | nn.ConvTranspose2d,
    alpha: float | None = None,
    *,
    fold: bool = False,
) -> ConvAsAttention:
    """Return a self-attention layer that computes the given convolution. Theorem 1.

    A subclass with a forward method of its own is run on small random images. It is accepted if it
    pads with zeros in its own way and then convolves.

    Args:
        conv: Any `nn.Conv1d` or `nn.Conv2d`, or a transposed one, which becomes attention on the
            image spread out (`TransposedAsAttention`).
        alpha: The sharpness of the heads, in inverse squared pixels. The default is `hard_alpha`
            for the layer's dtype.
        fold: Whether to also accept a convolution that computes its weight (parametrised,
            normalised, standardised or pruned). The weight of evaluation mode becomes a parameter,
            and the layer has no other parameters and buffers than weight and bias.

    Returns:
        A layer that is called in the same way, with `(B, C, ...)` as input and output. Attributes,
        parameters, buffers and hooks are those of the convolution, copied, so later changes to
        `conv` have no effect.

    Raises:
        TypeError: If the convolution is lazy, 3D, quantised, scripted or otherwise customised,
            parametrised without `fold`, on the meta device, or in half precision and reaches so
            many pixels that the dtype cannot tell them apart.
        ValueError: If a size is one that no convolution has, such as a negative padding, or the
            convolution cannot be copied.

    Example:
        >>> import attnconv, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        >>> layer = attnconv.conv_to_attention(conv)
        >>> images = torch.rand(2, 3, 16, 16)
        >>> torch.allclose(layer(images), conv(images), atol=1e-5)
        True
    """
    plain = _plain_or_why_not(conv, fold)
    if isinstance(plain, str):
        raise TypeError(
            f"cannot turn {type(conv).__name__} into attention: {plain}; expected a"
            " torch.nn.Conv1d or Conv2d, or a transposed one"
        )
    if reason := _wrong_sizes(conv, plain):
        raise ValueError(f"cannot turn {type(conv).__name__} into attention: {reason}")
    return _attend(copied(conv, [conv] if plain else ()), alpha, plain)


def convert_network(
    model: nn.Module,
    alpha: float | None = None,
    *,
    skip: Skip = (),
    fold: bool = False,
    images: Tensor | tuple[Any, ...] | Mapping[str, Any] | None = None,
) -> nn.Module:
    """Return a copy of a network with self-attention in place of every convolution. Theorem 1.

    Each convolution becomes the result of `conv_to_attention`. Modules and parameters that are used
    in several places remain shared. Convolutions called as functions in a forward method are not
    modules and are not replaced.

    Args:
        model: The network, which is not changed.
        alpha: The sharpness of all heads, including those of layers that already are converted. By
            default, the heads are one-hot.
        skip: The names of modules to leave unchanged, including everything inside them, or a
            predicate that takes a module's name and the module.
        fold: Whether to fold computed weights, as in `conv_to_attention`. All other layers keep the
            names and shapes of their parameters and buffers.
        images: The network's argument, a tuple of its arguments, or a dict of its named ones, on
            which both networks are run once in evaluation mode and compared.

    Returns:
        The copy. Its attribute `conversion_report` (a `ConversionReport`, which can be printed)
        lists what was replaced and left. With `images`, it also states the largest difference of
        the outputs and the convolutions that were still executed.

    Raises:
        TypeError: If modules cannot be converted. The error names each and says why.
        ValueError: If `skip` names no module, a module has sizes that no convolution has, the model
            cannot be copied, or one-hot heads differ from the convolutions by more than rounding on
            the images.

    Example:
        >>> import attnconv, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        >>> network = torch.nn.Sequential(conv, torch.nn.ReLU())
        >>> images = torch.rand(2, 3, 16, 16)
        >>> converted = attnconv.convert_network(network, images=images)
        >>> torch.allclose(converted(images), network(images), atol=1e-5)
        True
        >>> report = converted.conversion_report
        >>> len(report.replaced), report.left
        (1, {})
    """
    skipped = _skipped(model, skip)
    plain = _expect_convertible(model, skipped, fold)
    converted = copied(model, [model.get_submodule(name) for name in plain])
    replaced: dict[str, str] = {}
    left: dict[str, str] = {}
    for name, module in list(converted.named_modules()):
        if name in skipped:
            if _may_convolve(module):
                left[name] = f"{type(module).__name__}, skipped"
        elif _is_convolution(module):
            replaced[name] = _described(module, plain.get(name))
            _attend(module, alpha, plain.get(name))
        elif isinstance(module, ConvAsAttention) and alpha is not None:
            _set_alpha(module, alpha)
        elif _may_convolve(module):
            left[name] = f"{type(module).__name__}, {_why_left(module)}"
    comparison = None if images is None else compare(model, converted, images)
    if comparison and alpha is None:
        _expect_equal(comparison, next(model.parameters()).dtype)
    vars(converted)["conversion_report"] = ConversionReport(replaced, left, comparison)
    return converted


def _described(module: nn.Module, plain: Plain | None) -> str:
    """Return the text on a convolution in the report."""
    parts = [f"{type(module).__name__}({module.extra_repr()})"]
    if plain and plain.is_computed:
        parts.append("with its weight folded")
    if plain and plain.own_padding:
        parts.append(f"padded {plain.own_padding}")
    return ", ".join(parts)


def _attend(conv: Any, alpha: float | None, plain: Plain | None) -> ConvAsAttention:
    """Turn a convolution, or the plain one that it computes, into attention in place."""
    kind = TransposedAsAttention if isinstance(conv, TRANSPOSED) else ConvAsAttention
    if plain is None:
        return attend_instead(conv, alpha, kind)
    make_plain(conv, plain)
    layer = attend_instead(conv, alpha, kind)
    layer.own_padding = plain.own_padding
    return layer


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


def _expect_convertible(model: nn.Module, skipped: Collection[str], fold: bool) -> dict[str, Plain]:
    """Return the plain convolutions that customised ones compute, by name.

    Raises one error that names every module that cannot be converted.
    """
    plain: dict[str, Plain] = {}
    obstacles: dict[str, str] = {}
    errors: set[type[Exception]] = set()
    modules = {name: each for name, each in model.named_modules() if name not in skipped}
    replaces = any(map(_is_convolution, modules.values()))
    for name, module in modules.items():
        convolution = _is_convolution(module) or _has_convolutions_inside(module)
        found = _plain_or_why_not(module, fold) if convolution else None
        reason = found if isinstance(found, str) else None
        if isinstance(found, Plain):
            plain[name] = found
        if replaces and (asked := _class_asked_for(module)):
            reason = (
                f"its forward tests whether a module is a {asked}, which attention is not; let it"
                " test for attnconv.layers.conv_as_attention.ConvAsAttention as well"
            )
        if convolution and is_compiled(name):
            reason = "it is compiled; convert it before torch.compile"
        wrong = _wrong_sizes(module, plain.get(name)) if convolution and not reason else None
        if reason or wrong:
            errors.add(TypeError if reason else ValueError)
            obstacles[name] = f"({type(module).__name__}): {reason or wrong}"
    if not obstacles:
        return plain
    lines = [f"cannot convert {name or 'the model'} {why}" for name, why in obstacles.items()]
    if names := [name for name in obstacles if name]:
        lines.append(f"To leave modules as they are, pass their names: skip={names}")
    raise (ValueError if errors == {ValueError} else TypeError)("\n".join(lines))


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


def _is_convolution(module: object) -> bool:
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
    """Return whether a module without parts is a kind of convolution, judging by its name.

    Modules with vectors as their only parameters, such as the norms of ConvNeXt, are none.
    """
    named = "conv" in type(module).__name__.lower() and not isinstance(module, ConvAsAttention)
    if any(module.children()) or not named:
        return False
    shapes = [parameter.shape for parameter in module.parameters() if not is_lazy(parameter)]
    return max((sum(size > 1 for size in shape) for shape in shapes), default=2) > 1


#: Why attention to positions alone cannot replace a deformable convolution.
FOLLOWS_THE_IMAGE = "its kernel positions depend on the image"


def _is_deformable(module: object) -> bool:
    return "deform" in type(module).__name__.lower()  # torchvision and others


def _why_left(module: nn.Module) -> str:
    """Return why a kind of convolution was left as it was."""
    if _is_deformable(module):
        return f"which is deformable: {FOLLOWS_THE_IMAGE}"
    return "which is not a torch.nn.Conv1d or Conv2d"


def _class_asked_for(module: nn.Module) -> str | None:
    """Return the class of convolutions for which a module's forward seems to test, or None.

    The forward method (or `__call__`) then names both the class and a function that tests classes.
    """
    for name in ("forward", "__call__"):
        method: Any = inspect.getattr_static(type(module), name)
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

#: What a subclass may change if it still computes a padded convolution.
CUSTOMISED = {"forward", "_conv_forward", "weight", "bias"}

#: What an attention layer has and a convolution does not.
ATTENTIONS_OWN = {"encoding", "_known", *dir(ConvAsAttention)} - {*dir(nn.Conv1d), *dir(nn.Conv2d)}


def _plain_or_why_not(conv: object, fold: bool) -> Plain | str | None:
    """Return the plain convolution that a customised one computes, and None for a plain one.

    If a module cannot be converted, returns why and what to do.
    """
    if reason := _why_never(conv):
        return reason
    assert isinstance(conv, BASES)
    if parametrize.is_parametrized(conv) and not fold:
        return (
            "it is parametrised; pass fold=True, or make its weights permanent first (with"
            " torch.nn.utils.parametrize.remove_parametrizations)"
        )
    customised = _own_names(conv) or (
        ["weight"] if fold and "weight" not in conv._parameters else []
    )
    values = next(conv.parameters(), None) if customised else conv.weight
    if values is None or not can_be_read(values):
        return "its weight is on the meta device or fake; move it to a device and load it first"
    if values.dtype not in DTYPES:
        return f"its weights are {values.dtype}; make them real floating-point numbers first"
    if taken := sorted(ATTENTIONS_OWN & _instance_names(conv)):
        return f"its attribute {taken[0]} has the name of one of attention's; rename it"
    plain = _plain_behind(conv, customised, fold) if customised else None
    if isinstance(plain, str) or _wrong_sizes(conv, plain):
        return plain
    return too_far(conv, values.dtype) or plain


def _plain_behind(conv: nn.Module, customised: Collection[str], fold: bool) -> Plain | str:
    """Return the plain convolution behind a layer that defines names anew, or why there is none."""
    never = [name for name in customised if name in vars(conv) or name not in CUSTOMISED]
    never = [name for name in never if name != "weight"]  # hooks keep a computed weight there
    plain = None if never else plain_equivalent(conv)
    name = [*never, *customised][0]
    if plain is None:
        return f"its {name} is not that of a plain convolution; first replace it by a plain one"
    if plain.is_computed and not fold:
        return (
            f"its {name} is not that of a plain convolution with the parameters weight and bias"
            " alone; pass fold=True to convert the convolution that it computes in evaluation mode"
        )
    return plain


def _instance_names(conv: nn.Module) -> set[str]:
    return {*vars(conv), *conv._parameters, *conv._buffers, *conv._modules}


def _why_never(conv: object) -> str | None:
    """Return why a module of this kind is never converted and what to do, or None."""
    if isinstance(conv, torch.jit.ScriptModule):
        return "it is scripted; convert the module that it was made from"
    if isinstance(conv, LazyModuleMixin):
        return "it is lazy and has no weights yet; run it on an input first"
    if isinstance(conv, torch.fx.GraphModule):
        return "its graph calls convolutions; convert the network before torch.export"
    if type(conv).__module__.startswith("torch.ao."):
        return "it is quantised; convert the network before quantisation"
    if _is_deformable(conv):
        return f"it is deformable: {FOLLOWS_THE_IMAGE}"
    if not isinstance(conv, BASES):
        return "it is not a 1D or 2D convolution"
    return None


def _own_names(conv: nn.Module) -> list[str]:
    """Return the names that a subclass or the module itself defines anew.

    They may be methods, or properties in place of attributes such as `weight`.
    """
    base: Any = next(kind for kind in BASES if isinstance(conv, kind))
    methods = [name for name in dir(base) if not name.startswith("__") and name not in HARMLESS]
    names = []
    for name in ("forward", "__call__", "__getattr__", *methods):
        of_base = inspect.getattr_static(base, name)
        changed = inspect.getattr_static(type(conv), name) is not of_base or name in vars(conv)
        if callable(of_base) and changed:
            names.append(name)
    for name in ("weight", "bias", *base.__constants__):
        if isinstance(inspect.getattr_static(type(conv), name, None), property):
            names.append(name)
    return list(dict.fromkeys(names))


def _wrong_sizes(conv: Any, plain: Plain | None) -> str | None:
    """Return which of a convolution's sizes is impossible, or None."""
    axes = 1 if isinstance(conv, nn.Conv1d | nn.ConvTranspose1d) else 2
    for name, least in (("kernel_size", 1), ("stride", 1), ("dilation", 1), ("padding", 0)):
        sizes = getattr(conv, name)
        if name == "padding" and (isinstance(sizes, str) or (plain and plain.own_padding)):
            continue
        if not isinstance(sizes, Sequence) or len(sizes) != axes or min(sizes) < least:
            return f"its {name} is {sizes}, expected {axes} numbers of at least {least}"
    for name in ("in_channels", "out_channels"):
        if getattr(conv, name) < 1:
            return f"its {name} is {getattr(conv, name)}, expected at least 1"
    channels = conv.out_channels, conv.in_channels // conv.groups
    if isinstance(conv, TRANSPOSED):
        channels = conv.in_channels, conv.out_channels // conv.groups
        most = [max(step, d) - 1 for step, d in zip(conv.stride, conv.dilation, strict=True)]
        if any(not 0 <= pad <= end for pad, end in zip(conv.output_padding, most, strict=True)):
            return f"its output_padding is {conv.output_padding}, expected at most {tuple(most)}"
    shape = (*channels, *conv.kernel_size)
    weight = conv.weight if plain is None or plain.weight is None else plain.weight
    if tuple(weight.shape) != shape:
        return (
            f"its weight has the shape {tuple(weight.shape)}, expected {shape}; set its"
            " in_channels, out_channels, groups and kernel_size to those of the weight"
        )
    return None
