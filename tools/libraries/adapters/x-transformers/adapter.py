"""Theorem 1 in x-transformers' attention layer.

Expected: `Attention` has no bias in its projections, so the convolution's bias comes from a channel
that is 1. Its `attn_mask` is boolean, and `attn_bias` is added to the scores, so equation (9) goes
there; `flash=True` changes the speed alone. With `l2_distance=True` the scores are the negative
squared distances of queries and keys, which are equation (9) if queries are the positions of the
targets and keys the positions. In bfloat16 the squares may be rounded by more than the distance of
two pixels.
"""

import torch
from common import record, versions
from in_torch import HEADS, arrays, measure, projections, set_linear
from torch.nn import functional as F
from x_transformers.x_transformers import Attention

versions("torch", "x-transformers")


def prepared(dtype, **options):
    """Return a layer with the values and W_out, and the padded tokens."""
    p = arrays(dtype)
    layer = Attention(144, dim_head=16, heads=HEADS, **options).to(dtype).eval()
    values, output = projections(dtype, 144, 16)
    values[8, 8] = 1  # a channel that is 1, for the convolution's bias
    output[:8, 8] = p["bias"]
    for linear in (layer.to_q, layer.to_k):
        set_linear(linear, torch.zeros(0, 0))
    set_linear(layer.to_v, values)
    set_linear(layer.to_out, output)
    x = F.pad(p["tokens"], (0, 136))
    x[..., 8] = 1
    return layer, x


def bias(dtype, flash):
    layer, x = prepared(dtype, flash=flash)
    scores = arrays(dtype)["scores"]
    return lambda: layer(x, attn_bias=scores)[..., :8]


def distances(dtype, flash):
    """Return the layer with queries 32 (q + offset) and keys 32 k; the scores are divided by 4."""
    layer, x = prepared(dtype, flash=flash, l2_distance=True)
    p = arrays(dtype)
    x[..., 9:11] = p["codes"][:, 1:3]
    query = layer.to_q.weight.view(HEADS, 16, 144)
    key = layer.to_k.weight.view(HEADS, 16, 144)
    for axis in range(2):
        query[:, axis, 8] = 32 * p["centers"][:, axis]
        query[:, axis, 9 + axis] = 32
        key[:, axis, 9 + axis] = 32
    return lambda: layer(x)[..., :8]


record(
    "x_transformers.Attention",
    "bias argument",
    expresses=True,
    **measure(lambda dtype: bias(dtype, flash=False)),
    expected="attn_bias is added to the scores, and a channel that is 1 gives the convolution's "
    "bias.",
    observed="As expected.",
)
record(
    "x_transformers.Attention, flash=True",
    "bias argument",
    expresses=True,
    **measure(lambda dtype: bias(dtype, flash=True)),
    expected="As with flash=False, but faster.",
    observed="As expected.",
)
record(
    "x_transformers.Attention, l2_distance=True",
    "codes beside the content",
    expresses=True,
    **measure(lambda dtype: distances(dtype, flash=False)),
    expected="The scores are equation (9) itself; bfloat16 may round the squares too much.",
    observed="As expected in float32; in bfloat16, distances are accurate enough.",
)
record(
    "x_transformers.Attention, l2_distance=True, flash=True",
    "codes beside the content",
    expresses=True,
    **measure(lambda dtype: distances(dtype, flash=True)),
    expected="As with flash=False, but faster.",
    observed="As expected in float32. In bfloat16, the squared norms of queries and keys enter the "
    "product as rounded numbers, and several pixels share the largest score.",
)
