"""Theorem 1 in tinygrad's own attention function, on the CPU.

Expected: a floating-point `attn_mask` is added to the scores, so the heads' scores can be used
unchanged. There is no argument for the scale, so the codes' queries are padded to 16 dimensions and
multiplied by 4, which bfloat16 can represent. In float32 and bfloat16 the output differs from the
convolution by rounding.
"""

import os
import sys
from pathlib import Path

import numpy as np
from common import cost, gap, problem, record, versions

# The CPU backend calls clang, which the package ziglang contains.
compiler = Path(sys.prefix, "bin/zig-clang")
compiler.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang clang "$@"\n')
compiler.chmod(0o755)
os.environ["CC"] = str(compiler)
from tinygrad import Tensor, TinyJit, dtypes  # noqa: E402

versions("tinygrad", "ziglang")
TYPES = (dtypes.float32, dtypes.bfloat16)
SIZE = 16


def tensor(of, dtype):
    return Tensor(np.ascontiguousarray(of, dtype=np.float32), device="CPU").cast(dtype).realize()


def attention(dtype, *, codes):
    p = {name: tensor(of, dtype) for name, of in problem.items()}
    pad = [(0, 0), (0, 0), (0, SIZE - 6)]
    query = tensor(np.pad(problem["query_matrices"], pad) * np.sqrt(SIZE) * codes, dtype)
    key = tensor(np.pad(problem["key_matrices"], pad), dtype)
    mask = None if codes else p["scores"].unsqueeze(0)

    @TinyJit
    def run(tokens):
        queries, keys = ((p["codes"] @ matrices).unsqueeze(0) for matrices in (query, key))
        values = tokens.unsqueeze(1) @ p["values"]
        heads = queries.scaled_dot_product_attention(keys, values, attn_mask=mask)
        return (heads.transpose(1, 2).flatten(2) @ p["output"] + p["bias"]).realize()

    return lambda: run(p["tokens"]).float().numpy()


def convolution():
    p = {name: tensor(of, dtypes.float32) for name, of in problem.items()}
    kernel = p["kernel"].permute(3, 2, 0, 1).contiguous().realize()
    image = p["image"].permute(0, 3, 1, 2).contiguous().realize()
    run = TinyJit(lambda image: image.conv2d(kernel, p["bias"], padding=1).realize())
    return lambda: run(image).numpy()


def measure(**settings):
    runs = [attention(dtype, **settings) for dtype in TYPES]
    gaps = [gap(run()) for run in runs]
    ratio = cost(runs[0], convolution())
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


for position, codes, expected in (
    ("mask argument", False, "The mask is added to the scores, so it runs unchanged."),
    ("codes beside the content", True, "Queries of 16 dimensions, times 4, give the scores."),
):
    record(
        "tinygrad.Tensor.scaled_dot_product_attention",
        position,
        expresses=True,
        **measure(codes=codes),
        expected=expected,
        observed="As expected.",
    )
