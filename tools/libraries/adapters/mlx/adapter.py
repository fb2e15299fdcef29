"""Theorem 1 in MLX's own attention function and layer, on the CPU.

Expected: a floating-point mask is added to the scores, so the heads' scores can be used unchanged
in the function and in the layer. The layer splits `dims` among the heads and the values take
`value_dims`, so 9 heads of 16 dimensions hold the codes' queries and keys, W_qry times 4, without
any mask. In float32 and bfloat16 both differ from the convolution by rounding.
"""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from common import cost, gap, problem, record, versions

versions("mlx")
mx.set_default_device(mx.cpu)
TYPES = (mx.float32, mx.bfloat16)
HEADS, CHANNELS, SIZE = 9, 8, 16


def array(of, dtype):
    return mx.array(np.ascontiguousarray(of, dtype=np.float32)).astype(dtype)


def function(dtype):
    p = {name: array(of, dtype) for name, of in problem.items()}
    scores = p["scores"][None]

    @mx.compile
    def run(tokens):
        values = tokens[:, None] @ p["values"]
        zero = mx.zeros_like(values)
        heads = mx.fast.scaled_dot_product_attention(zero, zero, values, scale=1.0, mask=scores)
        return heads.swapaxes(1, 2).flatten(2) @ p["output"] + p["bias"]

    return lambda: run(p["tokens"])


def layer(dtype, *, codes):
    x = np.concatenate([problem["tokens"], problem["codes"][None]], axis=-1)
    attention = nn.MultiHeadAttention(
        HEADS * SIZE,
        HEADS,
        query_input_dims=x.shape[-1],
        key_input_dims=x.shape[-1],
        value_dims=HEADS * CHANNELS,
        value_output_dims=CHANNELS,
        bias=True,
    )
    below = [(0, 0), (CHANNELS, 0), (0, SIZE - 6)]  # the codes follow the content
    for name, parts in {
        "query_proj": np.pad(problem["query_matrices"], below) * np.sqrt(SIZE) * codes,
        "key_proj": np.pad(problem["key_matrices"], below),
        "value_proj": np.pad(problem["values"], [(0, 0), (0, 5), (0, 0)]),
        "out_proj": problem["output"][None],
    }.items():
        linear = getattr(attention, name)
        linear.weight = array(np.concatenate(parts, axis=-1).T, dtype)
        linear.bias = array(np.zeros(len(linear.weight)), dtype)
    attention.out_proj.bias = array(problem["bias"], dtype)
    x = array(x, dtype)
    mask = None if codes else array(problem["scores"][None], dtype)
    run = mx.compile(lambda x: attention(x, x, x, mask))
    return lambda: run(x)


def convolution():
    conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
    conv.weight = array(problem["kernel"].transpose(3, 0, 1, 2), mx.float32)
    conv.bias = array(problem["bias"], mx.float32)
    image = array(problem["image"], mx.float32)
    run = mx.compile(lambda image: conv(image))
    return lambda: run(image)


def measure(build, **settings):
    runs = [build(dtype, **settings) for dtype in TYPES]
    gaps = [gap(run().astype(mx.float32)) for run in runs]
    plain = convolution()
    ratio = cost(lambda: mx.eval(runs[0]()), lambda: mx.eval(plain()))
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


ADDED = "The mask is added to the scores, so the construction runs unchanged."
for name, position, build, settings, expected in (
    ("mlx.core.fast.scaled_dot_product_attention", "mask argument", function, {}, ADDED),
    ("mlx.nn.MultiHeadAttention", "mask argument", layer, {"codes": False}, ADDED),
    (
        "mlx.nn.MultiHeadAttention",
        "codes beside the content",
        layer,
        {"codes": True},
        "The codes' queries and keys give the scores, and the layer differs by rounding.",
    ),
):
    record(
        name,
        position,
        expresses=True,
        **measure(build, **settings),
        expected=expected,
        observed="As expected.",
    )
