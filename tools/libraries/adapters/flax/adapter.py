"""Theorem 1 in Flax's own attention layers.

Expected: the layers have no argument for a bias, but accept another attention function. The
library's own, with the heads' scores bound to its argument `bias`, is one, so the construction runs
unchanged. Without it, codes beside the content give the scores; a head needs 16 dimensions for the
8 values and 6 products, and W_qry is multiplied by 4 to undo the scale. In float32 and bfloat16 the
layers differ from the convolution by rounding. `mask` is boolean, so scores raise an error there.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from common import cost, gap, problem, record, versions
from flax import linen, nnx

versions("flax", "jax", "jaxlib")
TYPES = (jnp.float32, jnp.bfloat16)
HEADS, SIZE = 9, 16  # dimensions per head


def kernels(codes):
    """Return the kernels (inputs, heads, 16) of queries, keys and values, and (heads, 16, 8)."""
    channels, parts = problem["tokens"].shape[-1], {}
    for name, of in {"query": "query_matrices", "key": "key_matrices", "value": "values"}.items():
        kernel = np.zeros((channels + 5 * codes, HEADS, SIZE))
        matrices = problem[of].transpose(1, 0, 2)
        if name == "value":
            kernel[:channels, :, :channels] = matrices
        elif codes:
            kernel[channels:, :, :6] = matrices * (np.sqrt(SIZE) if name == "query" else 1)
        parts[name] = kernel
    out = np.zeros((HEADS, SIZE, channels))
    out[:, :channels] = problem["output"].reshape(HEADS, channels, channels)
    return parts | {"out": out}


def inputs(codes, dtype):
    content = problem["tokens"]
    beside = [problem["codes"][None]] if codes else []
    return jnp.asarray(np.concatenate([content, *beside], axis=-1), dtype)


def biased(function, dtype):
    return partial(function, bias=jnp.asarray(problem["scores"][None], dtype))


def nnx_layer(dtype, *, codes, masked=False):
    x = inputs(codes, dtype)
    function = nnx.dot_product_attention
    layer = nnx.MultiHeadAttention(
        HEADS,
        x.shape[-1],
        HEADS * SIZE,
        problem["image"].shape[-1],
        param_dtype=dtype,
        attention_fn=function if codes or masked else biased(function, dtype),
        decode=False,
        rngs=nnx.Rngs(0),
    )
    for name, kernel in kernels(codes).items():
        getattr(layer, name).kernel[...] = jnp.asarray(kernel, dtype)
    layer.out.bias[...] = jnp.asarray(problem["bias"], dtype)
    mask = jnp.asarray(problem["scores"][None], dtype) if masked else None
    run = nnx.jit(lambda layer, x: layer(x, mask=mask))
    return lambda: run(layer, x).block_until_ready()


def linen_layer(dtype, *, codes):
    x = inputs(codes, dtype)
    function = linen.dot_product_attention
    layer = linen.MultiHeadDotProductAttention(
        HEADS,
        qkv_features=HEADS * SIZE,
        out_features=problem["image"].shape[-1],
        dtype=dtype,
        attention_fn=function if codes else biased(function, dtype),
    )
    parameters = layer.init(jax.random.key(0), x)
    parameters = jax.tree.map(lambda array: array * 0, parameters)["params"]
    for name, kernel in kernels(codes).items():
        parameters[name]["kernel"] = jnp.asarray(kernel, dtype)
    parameters["out"]["bias"] = jnp.asarray(problem["bias"], dtype)
    run = jax.jit(lambda parameters, x: layer.apply({"params": parameters}, x))
    return lambda: run(parameters, x).block_until_ready()


def convolution():
    layer = nnx.Conv(8, 8, (3, 3), rngs=nnx.Rngs(0))
    layer.kernel[...] = jnp.asarray(problem["kernel"], jnp.float32)
    layer.bias[...] = jnp.asarray(problem["bias"], jnp.float32)
    image = jnp.asarray(problem["image"], jnp.float32)
    run = nnx.jit(lambda layer, image: layer(image))
    return lambda: run(layer, image).block_until_ready()


def measure(build):
    layers = [build(dtype) for dtype in TYPES]
    gaps = [gap(layer().astype(jnp.float32)) for layer in layers]
    ratio = cost(layers[0], convolution())
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


BIASED = "The attention function with the scores as its bias runs unchanged."
BESIDE = "The codes' queries and keys give the scores, and the layer differs by rounding."
for name, build in (
    ("flax.nnx.MultiHeadAttention", nnx_layer),
    ("flax.linen.MultiHeadDotProductAttention", linen_layer),
):
    for position, codes, expected in (
        ("bias argument", False, BIASED),
        ("codes beside the content", True, BESIDE),
    ):
        record(
            name,
            position,
            expresses=True,
            **measure(partial(build, codes=codes)),
            expected=expected,
            observed="As expected.",
        )
record(
    "flax.nnx.MultiHeadAttention",
    "mask argument",
    expresses=False,
    **measure(partial(nnx_layer, codes=False, masked=True)),
    prevented_by="the mask is read as truth values",
    expected="Scores are no boolean mask and raise an error.",
    observed="No error: nonzero scores keep their key and 0, the best key's score, removes it.",
)
