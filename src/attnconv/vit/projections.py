"""Find the weights of an attention layer's queries, keys and values, in any of several libraries.

Letters: N_h heads, D_h dimension of a head, D hidden dimension.
"""

from typing import Any, NamedTuple

from torch import Tensor, nn

#: Names under which layers keep one matrix for queries, keys and values: timm and torchvision's
#: Swin (qkv), vit-pytorch and torchvision's MaxViT (to_qkv), and torch's MultiheadAttention.
FUSED = {
    "qkv": ("qkv.weight", "qkv.bias"),
    "to_qkv": ("to_qkv.weight", "to_qkv.bias"),
    "in_proj_weight": ("in_proj_weight", "in_proj_bias"),
}
#: Names of three separate projections, as in transformers.
SEPARATE = (("q_proj", "k_proj", "v_proj"), ("query", "key", "value"))
HEADS = ("num_heads", "num_attention_heads", "n_heads", "heads")
SCALES = ("scale", "scaling")
#: Names of the layers that normalise queries and keys.
QUERY_KEY_NORMS = ("q_norm", "k_norm", "ln_q", "ln_k")
#: Everything that an attention layer of a supported plain vision transformer may consist of.
PARTS = {
    *("qkv", "to_qkv", "in_proj_weight", "in_proj_bias"),
    *(name for names in SEPARATE for name in names),
    *("proj", "o_proj", "out_proj", "to_out"),
    *("attn_drop", "proj_drop", "out_drop", "dropout", "attend"),
    *("norm", "head_scale", "ln_inner"),
    *QUERY_KEY_NORMS,
}


class Projection(NamedTuple):
    """The weight `(N_h, D_h, D)` and biases `(N_h, D_h)` of queries, keys or values, as views."""

    weight: Tensor
    biases: tuple[Tensor, ...]

    def zero_(self) -> None:
        """Set the weight and the biases to zero."""
        for tensor in (self.weight, *self.biases):
            tensor.zero_()


def is_attention(module: nn.Module) -> bool:
    """Return whether a module has projections of queries, keys and values by a known name."""
    fused = any(_get(module, weight) is not None for weight, _ in FUSED.values())
    return fused or any(
        all(isinstance(getattr(module, name, None), nn.Linear) for name in names)
        for names in SEPARATE
    )


def num_heads(attention: Any) -> int:
    """Return the number of an attention layer's heads; raise TypeError if it is unknown."""
    for name in HEADS:
        if isinstance(number := getattr(attention, name, None), int):
            return number
    raise TypeError(f"{type(attention).__name__} has none of the attributes {', '.join(HEADS)}")


def score_scale(attention: Any) -> float:
    """Return the factor with which an attention layer multiplies products of queries and keys."""
    for name in SCALES:
        if isinstance(scale := getattr(attention, name, None), float):
            return scale
    return projections(attention)[0].weight.shape[1] ** -0.5


def projections(attention: Any) -> tuple[Projection, Projection, Projection]:
    """Return the projections of an attention layer's queries, keys and values.

    Raises TypeError if the layer does not have one query, key and value of the same dimension for
    each head.
    """
    heads = num_heads(attention)
    for weight, bias in FUSED.values():
        if (matrix := _get(attention, weight)) is not None:
            return _split(attention, matrix.flatten(1), _get(attention, bias), heads)
    for names in SEPARATE:
        if isinstance(getattr(attention, names[0], None), nn.Linear):
            query, key, value = (_by_head(getattr(attention, name), heads) for name in names)
            return query, key, value
    raise TypeError(f"{type(attention).__name__} has no queries, keys and values by a known name")


def _split(
    attention: Any, matrix: Tensor, bias: Tensor | None, heads: int
) -> tuple[Projection, Projection, Projection]:
    """Return the three parts of a matrix that holds queries, keys and values."""
    if len(matrix) % (3 * heads):
        raise TypeError(
            f"{type(attention).__name__} has {len(matrix)} rows for queries, keys and values,"
            f" expected a multiple of 3 x {heads} heads"
        )
    # most layers list all queries first; some list the query, key and value of each head
    axis, sizes = (
        (1, (heads, 3, -1)) if getattr(attention, "head_first", False) else (0, (3, heads, -1))
    )
    weights = matrix.unflatten(0, sizes).unbind(axis)
    biases = [()] * 3 if bias is None else [(b,) for b in bias.unflatten(0, sizes).unbind(axis)]
    # timm's k_bias is a buffer of zeros, which a state dict does not store
    own = [attention._parameters.get(name) for name in ("q_bias", "k_bias", "v_bias")]
    query, key, value = (
        Projection(weight, shared + (() if extra is None else (extra.unflatten(0, (heads, -1)),)))
        for weight, shared, extra in zip(weights, biases, own, strict=True)
    )
    return query, key, value


def _by_head(projection: nn.Linear, heads: int) -> Projection:
    biases = () if projection.bias is None else (projection.bias.unflatten(0, (heads, -1)),)
    return Projection(projection.weight.unflatten(0, (heads, -1)), biases)


def _get(module: Any, path: str) -> Tensor | None:
    """Return the tensor at a dotted path, or None if there is none."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module if isinstance(module, Tensor) else None
