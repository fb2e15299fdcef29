"""Theorem 1 in torch's own attention layers.

Expected: `attn_mask` is added to the scores, so the heads' scores can be used as a mask unchanged,
and in float32 and bfloat16 the layer differs from the convolution by rounding. `MultiheadAttention`
splits its embedding among the heads, so the 8 channels must stand beside zeros in 72 dimensions.
FlexAttention takes the scores as a function of query and key.
"""

import torch
from common import cost, gap, problem, record, versions
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

versions("torch")
torch.set_num_threads(1)
TYPES = (torch.float32, torch.bfloat16)


def arrays(dtype):
    return {name: torch.from_numpy(array).to(dtype) for name, array in problem.items()}


@torch.no_grad()
def measure(build):
    """Return the gaps in both types and the cost, for a layer that `build(dtype)` returns."""
    layers = {dtype: build(dtype) for dtype in TYPES}
    gaps = [gap(layers[dtype]().double()) for dtype in TYPES]
    p = arrays(torch.float32)
    image, kernel = p["image"].permute(0, 3, 1, 2), p["kernel"].permute(3, 2, 0, 1)
    ratio = cost(layers[torch.float32], lambda: F.conv2d(image, kernel, p["bias"], padding=1))
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


def fused(dtype):
    p = arrays(dtype)
    scores = p["scores"][None]

    def run():
        values = p["tokens"][:, None] @ p["values"]
        zero = torch.zeros_like(values)
        heads = F.scaled_dot_product_attention(zero, zero, values, attn_mask=scores)
        return heads.transpose(1, 2).flatten(2) @ p["output"] + p["bias"]

    return run


record(
    "torch.nn.functional.scaled_dot_product_attention",
    "bias argument",
    expresses=True,
    **measure(fused),
    expected="The mask is added to the scores, so the construction runs unchanged.",
    observed="As expected.",
)
