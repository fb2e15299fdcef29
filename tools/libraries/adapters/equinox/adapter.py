"""Theorem 1 in Equinox's own attention layer.

Expected: the layer has no argument for a bias, but separate sizes for queries and values, so codes
beside the content give the scores with 6 and 8 dimensions per head. W_qry is multiplied by sqrt(6)
to undo the scale, which is inexact: in bfloat16 the best key may lose. `mask` is boolean, so scores
as a mask raise an error.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from common import cost, gap, problem, record, versions

versions("equinox", "jax", "jaxlib")
TYPES = (jnp.float32, jnp.bfloat16)
LAYER = "equinox.nn.MultiheadAttention"
HEADS, CHANNELS, SIZE = 9, 8, 6


def weights(parts):
    """Return a weight (outputs, inputs) of all heads from (heads, inputs, size)."""
    return np.concatenate(parts, axis=-1).T


def attention(dtype, mask=None):
    x = np.concatenate([problem["tokens"][0], problem["codes"]], axis=-1)
    layer = eqx.nn.MultiheadAttention(
        HEADS,
        x.shape[-1],
        output_size=CHANNELS,
        qk_size=SIZE,
        vo_size=CHANNELS,
        use_output_bias=True,
        dtype=dtype,
        key=jax.random.key(0),
    )
    below = [(0, 0), (CHANNELS, 0), (0, 0)]  # the codes follow the content
    query = np.pad(problem["query_matrices"], below) * np.sqrt(SIZE) * (mask is None)
    parameters = (
        weights(query),
        weights(np.pad(problem["key_matrices"], below)),
        weights(np.pad(problem["values"], [(0, 0), (0, 5), (0, 0)])),
        problem["output"].T,
        problem["bias"],
    )
    layer = eqx.tree_at(
        lambda layer: (
            layer.query_proj.weight,
            layer.key_proj.weight,
            layer.value_proj.weight,
            layer.output_proj.weight,
            layer.output_proj.bias,
        ),
        layer,
        [jnp.asarray(parameter, dtype) for parameter in parameters],
    )
    x = jnp.asarray(x, dtype)
    run = eqx.filter_jit(lambda layer, x, mask: layer(x, x, x, mask))
    return lambda: run(layer, x, mask)[None].block_until_ready()


def convolution():
    layer = eqx.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, key=jax.random.key(0))
    kernel = jnp.asarray(problem["kernel"].transpose(3, 2, 0, 1), jnp.float32)
    bias = jnp.asarray(problem["bias"][:, None, None], jnp.float32)
    layer = eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, (kernel, bias))
    image = jnp.asarray(problem["image"][0].transpose(2, 0, 1), jnp.float32)
    run = eqx.filter_jit(lambda layer, image: layer(image))
    return lambda: run(layer, image).block_until_ready()


def measure(mask=None):
    layers = [attention(dtype, mask) for dtype in TYPES]
    gaps = [gap(layer().astype(jnp.float32)) for layer in layers]
    ratio = cost(layers[0], convolution())
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


record(
    LAYER,
    "codes beside the content",
    expresses=True,
    **measure(),
    expected="6 dimensions for queries and 8 for values; bfloat16 cannot undo the scale 1/sqrt(6).",
    observed="bfloat16 only rounds: the scale moves the scores, but the best key leads by 120.",
)
record(
    LAYER,
    "mask argument",
    expresses=False,
    **measure(mask=jnp.asarray(problem["scores"], jnp.float32)),
    prevented_by="the mask is read as truth values",
    expected="Scores are no boolean mask and raise an error.",
    observed="No error: nonzero scores keep their key and 0, the best key's score, removes it.",
)
