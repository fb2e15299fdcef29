"""Intercept the attention weights that a model forms in a forward pass, and check each of them.

Letters: B images, N_h heads, T queries, S keys, D features of a value.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from math import isfinite, prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

#: Largest gap between weights @ values and what the model computed, relative to the largest value.
TOLERANCE = 1e-5
#: Number of scores that are computed at a time, about 2 MB in float32.
SCORES = 2**19
SOFTMAX = {F.softmax, torch.softmax, torch.special.softmax, Tensor.softmax}
PRODUCTS = {
    torch.matmul,
    torch.bmm,
    Tensor.matmul,
    Tensor.bmm,
    Tensor.__matmul__,
    torch.einsum,
    torch.functional.einsum,
}
SORTS = {torch.argsort, Tensor.argsort}
NO_PROBABILITIES = (
    "its weights are negative or do not sum to 1, as in differential attention or talking heads"
)
AGAIN = "its weights multiply more than one set of values"


@dataclass
class Weights:
    """The weights `(..., T, S)` of one product of attention weights and values.

    `values` is the tensor that they multiply. `gap` is the largest difference between this product
    and the model's own result, relative to the largest value. `problem` says why the weights cannot
    be read, if they cannot. `product` returns what the model would go on with if it had formed
    other weights of the same shape.
    """

    weights: Tensor
    values: Tensor
    gap: float
    product: Callable[[Tensor], Any]
    problem: str = ""


@dataclass
class _Softmax:
    """A softmax that is followed to its product with values.

    `shape` `(..., T, S)` has the keys last, and `memory` is the address of the output in this form.
    """

    shape: tuple[int, ...]
    memory: int
    used: bool = False


class Interception(TorchFunctionMode):
    """Report the weights of each attention that runs while this mode is active.

    It calls `found` with the weights of `scaled_dot_product_attention`, `nn.MultiheadAttention` and
    `flex_attention`, and with each softmax that later multiplies values, as it is then: if heads
    were mixed in between, it is the mixture. The fused functions do not return their weights, so
    these are computed from the arguments. In all cases, weights times values are compared with what
    the model goes on with. If `found` returns other weights of the same shape, the model goes on
    with their product; if it returns None, the model's own result is not changed. Nothing is
    watched while `paused` is True. `reordered` is True after the model has sorted something into
    another order than it had.
    """

    def __init__(self, found: Callable[[Weights], Tensor | None]):
        super().__init__()
        self.found = found
        self.paused = False
        self.reordered = False

    def __torch_function__(
        self, func: Callable, types: Any, args: Sequence[Any] = (), kwargs: Mapping | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.paused:
            return result
        if func is F.scaled_dot_product_attention:
            return self._report(_of_fused(result, *args, **kwargs), result)
        if func is F.multi_head_attention_forward:
            if isinstance(result[0], Tensor):
                return self._report(_of_multi_head(result, args, kwargs), result)
        elif getattr(func, "__name__", "") == "flex_attention":
            return self._report(_of_flex(func, result, args, kwargs), result)
        elif func in SOFTMAX:
            _start_following(result, args, kwargs)
        elif func in SORTS:
            self.reordered |= not _is_sorted(result, args, kwargs)
        else:
            return self._follow(func, args, kwargs, result)
        return result

    def _report(self, seen: Weights, result: Any) -> Any:
        """Report weights, and return the model's result or the product with other weights."""
        other = self.found(seen)
        return result if other is None else seen.product(other)

    def _follow(self, func: Callable, args: Sequence, kwargs: Mapping, result: Any) -> Any:
        """Follow a softmax through a function, up to its product with values."""
        operands: list[Any] = list(_tensors((*args, *kwargs.values())))
        sources = [each for each in operands if hasattr(each, "_attnconv_softmax")]
        if not sources:
            return result
        softmax: _Softmax = sources[0]._attnconv_softmax
        if func in PRODUCTS and len(operands) == 2 and len(sources) == 1:
            equation = args[0] if isinstance(args[0], str) else None
            found = _of_product(softmax, operands, sources[0], equation, result)
            if found is not None:
                softmax.used = True
                return self._report(found, result)
        for each in _tensors(result if isinstance(result, tuple | list) else (result,)):
            if 1 < each.numel() <= prod(softmax.shape) and each.is_floating_point():
                each._attnconv_softmax = softmax  # type: ignore[attr-defined]
        return result


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _start_following(result: Tensor, args: Sequence, kwargs: Mapping) -> None:
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(dim, int) and result.ndim >= 3:
        over_keys = result.movedim(dim, -1)
        softmax = _Softmax(tuple(over_keys.shape), over_keys.data_ptr())
        result._attnconv_softmax = softmax  # type: ignore[attr-defined]


def _is_sorted(order: Tensor, args: Sequence, kwargs: Mapping) -> bool:
    given = args[1] if len(args) > 1 and isinstance(args[1], int) else -1
    ascending = order.movedim(kwargs.get("dim", given), -1)
    return bool((ascending == torch.arange(ascending.shape[-1], device=order.device)).all())


def _of_fused(
    result: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *options: Any,
    enable_gqa: bool = False,
    **named: Any,
) -> Weights:
    """Return the weights of `scaled_dot_product_attention`, checked against its result."""
    weights = fused_weights(query, key, value, *options, enable_gqa=enable_gqa, **named)
    if enable_gqa:
        value = _for_each_query_head(value, query)
    return _checked(weights, value, result)


def fused_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return the weights softmax(Q K^T scale + mask) of `scaled_dot_product_attention`.

    It takes the function's own arguments. The weights `(..., N_h, T, S)` are those without dropout,
    in float32 or float64. They are 0 for a query whose keys are all blocked by the mask.
    """
    if enable_gqa:
        key = _for_each_query_head(key, query)
    query, key = _at_least_float32(query), _at_least_float32(key)
    query = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        queries, keys = query.shape[-2], key.shape[-2]
        attn_mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = query.new_zeros(attn_mask.shape).masked_fill(~attn_mask, float("-inf"))
    return _softmax_of_scores(query, key, attn_mask)


def _of_flex(func: Callable, result: tuple, args: Sequence, kwargs: Mapping) -> Weights:
    """Return the weights of torch's `flex_attention`: its result for values of one key each."""
    query, key, value, *options = args
    identity = torch.eye(key.shape[-2], dtype=value.dtype, device=value.device)
    weights = func(query, key, identity.expand(*key.shape[:2], -1, -1), *options, **kwargs)[0]
    seen = _checked(weights, _for_each_query_head(value, query), result[0])
    return replace(seen, product=lambda other: (seen.product(other), *result[1:]))


def _for_each_query_head(shared: Tensor, query: Tensor) -> Tensor:
    """Return keys or values that groups of heads share, repeated for each head of the query."""
    return shared.repeat_interleave(query.shape[-3] // shared.shape[-3], dim=-3)


def _softmax_of_scores(query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
    """Return softmax(Q K^T + bias), some queries at a time so that their scores stay in cache."""
    queries, keys = query.shape[-2], key.shape[-2]
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    weights = query.new_empty(*leading, queries, keys)
    step = max(1, SCORES // max(1, prod(leading) * keys))
    for start in range(0, queries, step):
        rows = slice(start, start + step)
        scores = query[..., rows, :] @ key.mT
        if bias is not None:
            scores += bias if bias.ndim < 2 or bias.shape[-2] == 1 else bias[..., rows, :]
        weights[..., rows, :] = scores.softmax(dim=-1)
        if bias is not None:  # like torch, return zeros where the mask blocks every key
            blocked = scores.amax(dim=-1, keepdim=True) == float("-inf")
            weights[..., rows, :].masked_fill_(blocked, 0.0)
    return weights


def _of_product(
    softmax: _Softmax, operands: list[Tensor], source: Tensor, equation: str | None, result: Tensor
) -> Weights | None:
    """Return the weights in a product that sums over the keys of a softmax, None in any other.

    The softmax, or what has become of it, is the first or the second operand.
    """
    first = operands[0] is source
    values = operands[1] if first else operands[0]
    transposed = not first
    if equation is not None:
        inputs, _, output = equation.replace(" ", "").partition("->")
        query, key = inputs.split(",")[0 if first else 1][-2:]
        if query in output and key in output:
            return None  # it mixes heads
        transposed = key in output
    weights = source.mT if transposed else source
    if weights.shape[-2:] != softmax.shape[-2:]:
        return None

    def weighted(source: Tensor) -> Tensor:
        pair = (source, values.to(source)) if first else (values.to(source), source)
        return torch.matmul(*pair) if equation is None else torch.einsum(equation, *pair)

    def product(other: Tensor) -> Tensor:
        other = other.reshape(shape)
        return weighted(other.mT if transposed else other).to(result.dtype)

    shape = weights.shape
    gap = _gap(weighted(_at_least_float32(source)), values, result)
    problem = _problem(gap, result.dtype)
    if bool(weights.amin() < 0) or not bool((weights.sum(dim=-1) - 1).abs().max() <= 1e-2):
        problem = NO_PROBABILITIES
    if softmax.used:
        problem = AGAIN
    if softmax.memory == weights.data_ptr() and prod(softmax.shape) == weights.numel():
        weights = weights.reshape(softmax.shape)  # heads and images on axes of their own
    return Weights(_at_least_float32(weights), values, gap, product, problem)


def _of_multi_head(result: tuple[Tensor, Any], args: Sequence, kwargs: Mapping) -> Weights:
    """Return the weights of the function behind `nn.MultiheadAttention`, as `(B, N_h, T, S)`.

    The function itself returns its weights on request; they are checked against its output.
    """
    bound = signature(F.multi_head_attention_forward).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    given |= {"need_weights": True, "average_attn_weights": False}
    weights = F.multi_head_attention_forward(**given)[1]
    assert weights is not None, "they were requested"
    if bool(result[0].isfinite().all()):
        # a query whose keys are all blocked has NaN here, and 0 where no weights were requested
        weights = weights.nan_to_num()
    value, bias = given["value"], given["in_proj_bias"]  # (S, B, E)
    if weights.ndim == 3:
        weights, value = weights[None], value[:, None]
    width = given["embed_dim_to_check"]
    separate = given["use_separate_proj_weight"]
    matrix = given["v_proj_weight"] if separate else given["in_proj_weight"][2 * width :]
    value = F.linear(value, matrix, None if bias is None else bias[2 * width :])
    value = value.unflatten(-1, (weights.shape[1], -1)).permute(1, 2, 0, 3)  # (B, N_h, S, D)

    def product(weights: Tensor) -> tuple[Tensor, Any]:
        weighted = (weights.to(value) @ value).permute(2, 0, 1, 3).flatten(2)  # (T, B, E)
        output = F.linear(weighted, given["out_proj_weight"], given["out_proj_bias"])
        return output.reshape(result[0].shape), result[1]

    if given["bias_k"] is not None or given["add_zero_attn"] or given["static_v"] is not None:
        return Weights(weights, value, 0.0, product, "it has keys that belong to no token (bias_k)")
    gap = _gap(product(weights)[0], value, result[0])
    return Weights(weights, value, gap, product, _problem(gap, result[0].dtype))


def _checked(weights: Tensor, values: Tensor, result: Tensor) -> Weights:
    weights = _at_least_float32(weights)
    gap = _gap(weights @ values.to(weights), values, result)

    def product(other: Tensor) -> Tensor:
        return (other @ values.to(other)).to(result.dtype)

    return Weights(weights, values, gap, product, _problem(gap, result.dtype))


def _gap(expected: Tensor, values: Tensor, result: Tensor) -> float:
    largest = torch.maximum(values.abs().max().to(expected), result.abs().max().to(expected))
    difference = (expected - result.to(expected)).abs_().max()
    return float(difference / largest) if bool(largest > 0) else float(difference)


def _problem(gap: float, dtype: torch.dtype) -> str:
    if not isfinite(gap):
        return "its output has NaN or infinite numbers"
    allowed = max(TOLERANCE, 4 * torch.finfo(dtype).eps)
    if gap <= allowed:
        return ""
    return f"weights times values differ from its output by {gap:.1g}, more than rounding"


def _at_least_float32(values: Tensor) -> Tensor:
    return values.float() if values.element_size() < 4 else values
