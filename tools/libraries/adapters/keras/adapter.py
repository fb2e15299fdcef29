"""Theorem 1 in Keras's own attention layer and operation, on two backends.

Expected: the layer has no argument for a bias, but separate sizes for keys and values, so codes
beside the content give the scores with `key_dim=16` and `value_dim=8`, W_qry times 4 to undo the
scale. `attention_mask` is boolean, so scores raise an error there. The operation adds `bias` to
the scores, so it takes the heads' scores unchanged. In float32 and bfloat16 both differ from the
convolution by rounding, and both backends give the same.
"""

import os
import subprocess
import sys

import numpy as np
from common import cost, gap, problem, record, versions

if "KERAS_BACKEND" not in os.environ:  # a process has one backend
    versions("keras", "jax", "tensorflow-cpu")
    for backend in ("jax", "tensorflow"):
        subprocess.run(
            [sys.executable, __file__], env=os.environ | {"KERAS_BACKEND": backend}, check=True
        )
    sys.exit()

import keras
from keras import ops

BACKEND = keras.backend.backend()
if BACKEND == "jax":
    from jax import jit as compiled
else:
    import tensorflow as tf
    from tensorflow import function as compiled

    tf.config.threading.set_intra_op_parallelism_threads(1)
TYPES = ("float32", "bfloat16")
HEADS, CHANNELS, SIZE = 9, 8, 16


def array(of, dtype):
    return ops.cast(ops.convert_to_tensor(np.float32(of)), dtype)


def runs(function, *inputs):
    function = compiled(function)
    return lambda: ops.convert_to_numpy(function(*inputs))


def layer(dtype, *, codes):
    x = np.concatenate([problem["tokens"], problem["codes"][None]], axis=-1)
    attention = keras.layers.MultiHeadAttention(HEADS, SIZE, output_shape=CHANNELS, dtype=dtype)
    attention.build(x.shape, x.shape, x.shape)
    below = [(0, 0), (CHANNELS, 0), (0, SIZE - 6)]  # the codes follow the content
    query = np.pad(problem["query_matrices"], below) * np.sqrt(SIZE) * codes
    key = np.pad(problem["key_matrices"], below)
    value = np.pad(problem["values"], [(0, 0), (0, 5), (0, SIZE - CHANNELS)])
    kernels = [matrices.transpose(1, 0, 2) for matrices in (query, key, value)]
    biases = [np.zeros((HEADS, SIZE))] * 3
    output = problem["output"].reshape(HEADS, CHANNELS, CHANNELS)
    output = np.pad(output, [(0, 0), (0, SIZE - CHANNELS), (0, 0)])
    pairs = zip([*kernels, output], [*biases, problem["bias"]], strict=True)
    attention.set_weights([weight for pair in pairs for weight in pair])
    mask = None if codes else array(problem["scores"][None], dtype)
    return runs(
        lambda x: ops.cast(attention(x, x, attention_mask=mask), "float32"), array(x, dtype)
    )


def operation(dtype):
    p = {name: array(of, dtype) for name, of in problem.items()}
    bias = p["scores"][None]

    def run(tokens):
        values = ops.einsum("bnc,hcd->bnhd", tokens, p["values"])
        zero = ops.zeros_like(values)
        heads = ops.dot_product_attention(zero, zero, values, bias=bias)
        joined = ops.reshape(heads, (1, 256, HEADS * CHANNELS))
        return ops.cast(joined @ p["output"] + p["bias"], "float32")

    return runs(run, p["tokens"])


def convolution():
    conv = keras.layers.Conv2D(CHANNELS, 3, padding="same")
    conv.build(problem["image"].shape)
    conv.set_weights([problem["kernel"], problem["bias"]])
    return runs(conv, array(problem["image"], "float32"))


def measure(build, **settings):
    layers = [build(dtype, **settings) for dtype in TYPES]
    gaps = [gap(run()) for run in layers]
    ratio = cost(layers[0], convolution())
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


record(
    f"keras.layers.MultiHeadAttention ({BACKEND})",
    "codes beside the content",
    expresses=True,
    **measure(layer, codes=True),
    expected="The codes' queries and keys give the scores, and the layer differs by rounding.",
    observed="JAX refuses value_dim=8 beside key_dim=16; with 16 for both, as expected.",
)
record(
    f"keras.layers.MultiHeadAttention ({BACKEND})",
    "mask argument",
    expresses=False,
    **measure(layer, codes=False),
    prevented_by="the mask is read as truth values",
    expected="Scores are no boolean mask and raise an error.",
    observed="No error: nonzero scores keep their key and 0, the best key's score, removes it.",
)
record(
    f"keras.ops.dot_product_attention ({BACKEND})",
    "bias argument",
    expresses=True,
    **measure(operation),
    expected="The bias is added to the scores, so the construction runs unchanged.",
    observed="As expected.",
)
