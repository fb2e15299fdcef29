"""Theorem 1 in OpenVINO's own attention operator, on the CPU.

Expected: a floating-point `attention_mask` is added to the scores, so the heads' scores can be used
unchanged. With the scale 1 the codes' queries and keys, of 6 dimensions beside values of 8, give
the same scores. In float32 the output differs from the convolution by rounding; a graph in bfloat16
compiles as well, and is computed in the precision of its tensors.
"""

import numpy as np
import openvino
from common import cost, gap, problem, record, versions
from openvino import Type, opset13

versions("openvino")
CORE = openvino.Core()
SETTINGS = {"INFERENCE_NUM_THREADS": 1}


def compiled(output, inputs, arrays):
    run = CORE.compile_model(openvino.Model([output], inputs), "CPU", SETTINGS)
    return lambda: run(arrays)[0]


def attention(dtype, *, codes):
    tokens = opset13.parameter([1, 1, 256, 8], Type.f32)
    p = {name: opset13.constant(np.float32(of), dtype) for name, of in problem.items()}
    content = opset13.convert(tokens, dtype)
    values = opset13.matmul(content, p["values"], False, False)
    one = opset13.constant(1, dtype)
    if codes:
        queries, keys = (
            opset13.unsqueeze(opset13.matmul(p["codes"], p[name], False, False), 0)
            for name in ("query_matrices", "key_matrices")
        )
        heads = opset13.scaled_dot_product_attention(queries, keys, values, scale=one)
    else:
        zero = opset13.multiply(values, opset13.constant(0, dtype))
        scores = opset13.unsqueeze(p["scores"], 0)
        heads = opset13.scaled_dot_product_attention(zero, zero, values, scores, one)
    output = opset13.constant(np.float32(problem["output"].reshape(9, 8, 8)), dtype)
    terms = opset13.matmul(heads, output, False, False)
    outputs = opset13.add(opset13.reduce_sum(terms, 1), p["bias"])
    array = np.float32(problem["tokens"][:, None])
    return compiled(opset13.convert(outputs, Type.f32), [tokens], [array])


def convolution():
    image = opset13.parameter([1, 8, 14, 14], Type.f32)
    kernel = opset13.constant(np.float32(problem["kernel"].transpose(3, 2, 0, 1)))
    outputs = opset13.convolution(image, kernel, [1, 1], [1, 1], [1, 1], [1, 1])
    bias = opset13.constant(np.float32(problem["bias"][:, None, None]))
    array = np.float32(problem["image"].transpose(0, 3, 1, 2))
    return compiled(opset13.add(outputs, bias), [image], [array])


def measure(**settings):
    runs = [attention(dtype, **settings) for dtype in (Type.f32, Type.bf16)]
    gaps = [gap(run()) for run in runs]
    ratio = cost(runs[0], convolution())
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


for position, codes, expected in (
    ("mask argument", False, "The mask is added to the scores, so it runs unchanged."),
    ("codes beside the content", True, "With the scale 1 the codes give the scores."),
):
    record(
        "openvino.opset13.scaled_dot_product_attention",
        position,
        expresses=True,
        **measure(codes=codes),
        expected=expected,
        observed="As expected, but the CPU computes the bfloat16 graph in float32.",
    )
