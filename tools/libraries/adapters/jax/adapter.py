"""Theorem 1 in JAX's own attention function.

Expected: `bias` is added to the scaled logits, so the heads' scores can be used unchanged, and in
float32 and bfloat16 the output differs from the convolution by rounding. With `scale=1` the codes'
queries and keys give the same scores; they must be padded to the size of the values. `mask` is
boolean: it removes keys and carries no scores, so scores passed as a mask raise an error.
"""

import jax
import jax.numpy as jnp
from common import cost, gap, problem, record, versions

versions("jax", "jaxlib")
TYPES = (jnp.float32, jnp.bfloat16)
LAYER = "jax.nn.dot_product_attention"


def arrays(dtype):
    return {name: jnp.asarray(array, dtype) for name, array in problem.items()}


@jax.jit
def convolution(p):
    return p["bias"] + jax.lax.conv_general_dilated(
        p["image"], p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@jax.jit
def with_bias(p):
    values = jnp.einsum("bnc,hcd->bnhd", p["tokens"], p["values"])
    zero = jnp.zeros_like(values)
    heads = jax.nn.dot_product_attention(zero, zero, values, bias=p["scores"][None])
    return heads.reshape(1, 256, -1) @ p["output"] + p["bias"]


@jax.jit
def with_codes(p):
    values = jnp.einsum("bnc,hcd->bnhd", p["tokens"], p["values"])
    projected = [
        jnp.pad(jnp.einsum("ne,hed->nhd", p["codes"], p[name])[None], [(0, 0)] * 3 + [(0, 2)])
        for name in ("query_matrices", "key_matrices")
    ]
    heads = jax.nn.dot_product_attention(*projected, values, scale=1.0)
    return heads.reshape(1, 256, -1) @ p["output"] + p["bias"]


def measure(attention):
    gaps = [gap(attention(arrays(dtype)).astype(jnp.float32)) for dtype in TYPES]
    p = arrays(jnp.float32)
    ratio = cost(
        lambda: attention(p).block_until_ready(), lambda: convolution(p).block_until_ready()
    )
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


record(
    LAYER,
    "bias argument",
    expresses=True,
    **measure(with_bias),
    expected="The bias is added to the scaled logits, so the construction runs unchanged.",
    observed="As expected.",
)
record(
    LAYER,
    "codes beside the content",
    expresses=True,
    **measure(with_codes),
    expected="With scale=1 the codes' queries and keys, padded to 8 channels, give the scores.",
    observed="As expected.",
)
