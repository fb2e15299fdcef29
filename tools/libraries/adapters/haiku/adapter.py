"""Theorem 1 in Haiku's own attention layer.

Expected: `mask` has the shape of the logits with one head, `[..., H=1, T', T]`; a mask per head may
broadcast as well, and if it is added to the logits, the heads' scores can be used unchanged. If
not, codes beside the content give the scores: `key_size=16` and `value_size=8`, with W_qry times 4
to undo the scale. In float32 and bfloat16 the layer differs from the convolution by rounding.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from common import cost, gap, problem, record, versions

versions("dm-haiku", "jax", "jaxlib")
TYPES = (jnp.float32, jnp.bfloat16)
LAYER = "haiku.MultiHeadAttention"
HEADS, CHANNELS, SIZE = 9, 8, 16


def matrix(parts):
    """Return a matrix (inputs, outputs) of all heads from (heads, inputs, size)."""
    return np.concatenate(parts, axis=-1)


def attention(dtype, *, mask=None):
    x = np.concatenate([problem["tokens"], problem["codes"][None]], axis=-1)
    below = [(0, 0), (CHANNELS, 0), (0, SIZE - 6)]  # the codes follow the content
    query = np.pad(problem["query_matrices"], below) * np.sqrt(SIZE) * (mask is None)
    matrices = {
        "query": matrix(query),
        "key": matrix(np.pad(problem["key_matrices"], below)),
        "value": matrix(np.pad(problem["values"], [(0, 0), (0, 5), (0, 0)])),
        "linear": problem["output"],
    }
    parameters = {
        f"multi_head_attention/{name}": {
            "w": jnp.asarray(w, dtype),
            "b": jnp.zeros(w.shape[-1], dtype),
        }
        for name, w in matrices.items()
    }
    parameters["multi_head_attention/linear"]["b"] = jnp.asarray(problem["bias"], dtype)
    x = jnp.asarray(x, dtype)

    def layer(x, mask):
        w_init = hk.initializers.Constant(0)
        settings = {"value_size": CHANNELS, "model_size": CHANNELS, "w_init": w_init}
        return hk.MultiHeadAttention(HEADS, SIZE, **settings)(x, x, x, mask)

    run = jax.jit(hk.without_apply_rng(hk.transform(layer)).apply)
    return lambda: run(parameters, x, mask).block_until_ready()


def convolution():
    names = {"w": problem["kernel"], "b": problem["bias"]}
    parameters = {"conv2_d": {name: jnp.asarray(of, jnp.float32) for name, of in names.items()}}
    image = jnp.asarray(problem["image"], jnp.float32)
    run = jax.jit(hk.without_apply_rng(hk.transform(lambda x: hk.Conv2D(CHANNELS, 3)(x))).apply)
    return lambda: run(parameters, image).block_until_ready()


def measure(**settings):
    layers = [attention(dtype, **settings) for dtype in TYPES]
    gaps = [gap(layer().astype(jnp.float32)) for layer in layers]
    ratio = cost(layers[0], convolution())
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


record(
    LAYER,
    "mask argument",
    expresses=False,
    **measure(mask=jnp.asarray(problem["scores"][None], jnp.float32)),
    prevented_by="the mask is read as truth values",
    expected="A floating-point mask is added to the logits, so the construction runs unchanged.",
    observed="No error: nonzero scores keep their key and 0, the best key's score, removes it.",
)
record(
    LAYER,
    "codes beside the content",
    expresses=True,
    **measure(),
    expected="The codes' queries and keys give the scores, and the layer differs by rounding.",
    observed="As expected.",
)
