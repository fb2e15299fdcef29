"""Checks of the shapes in annotations only; for other wrong input the package has its errors."""

import functools
import inspect
from collections.abc import Callable
from typing import get_args, get_origin, get_type_hints

import torch
from jaxtyping import AbstractArray, jaxtyped


def jaxtyped_where_stated(typechecker):
    """Return jaxtyping's decorator, which leaves functions without shapes unchanged.

    By itself, jaxtyping wraps all functions, which then take longer than small computations.
    """

    def decorate(function):
        hints = inspect.get_annotations(function).values()
        is_stated = any(isinstance(hint, str) or _has_shape(hint) for hint in hints)
        if is_stated or inspect.isclass(function):
            return jaxtyped(function, typechecker=typechecker)
        return function

    return decorate


def check_shapes(function):
    """Return the function with a TypeError for tensors whose shape contradicts their annotation.

    It is what jaxtyping calls a type checker.
    """
    hints = {name: hint for name, hint in get_type_hints(function).items() if _has_shape(hint)}
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args, **kwargs):
        if torch.compiler.is_compiling():  # sizes are symbols then
            return function(*args, **kwargs)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            _expect(f"{function.__qualname__}({name})", value, hints.get(name))
        result = function(*args, **kwargs)
        _expect(f"{function.__qualname__}'s result", result, hints.get("return"))
        return result

    return checked if hints else function


def _has_shape(hint):
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return get_origin(hint) is not Callable and any(map(_has_shape, get_args(hint)))


def _expect(where, value, hint):
    if get_origin(hint) is tuple:
        for number, (part, of_part) in enumerate(zip(value, get_args(hint), strict=True)):
            _expect(f"{where}[{number}]", part, of_part)
    elif _has_shape(hint) and not any(_fits(value, each) for each in (get_args(hint) or (hint,))):
        found = f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "shape") else repr(value)
        raise TypeError(f"{where}: got {found}, expected {hint}")


def _fits(value, hint):
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        return isinstance(value, tuple) and all(map(isinstance, value, parts))
    return isinstance(value, hint)
