"""Theorem 1 in torch's own attention layers.

Expected: `attn_mask` is added to the scores, so the heads' scores can be used as a mask unchanged,
and in float32 and bfloat16 the layer differs from the convolution by rounding. `MultiheadAttention`
splits its embedding among the heads, so the 8 channels must stand beside zeros in 72 dimensions;
its 3-D masks hold one matrix per head. With absolute codes beside the content it needs no mask, and
16 dimensions per head, so that the scale 1/4 is exact. `TransformerEncoderLayer` adds its input and
normalizes each token, so it should not compute a linear map of the image. FlexAttention takes the
scores as a function of query and key, and without compilation it also runs on the CPU. Without
padding, `add_bias_kv` offers a key with a value for the pixels outside the image.
"""

import torch
from common import record, versions
from in_torch import HEADS, arrays, measure, projections, set_linear
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

versions("torch")


def heads_first(run):
    """Return a function that calls `run(values)` and puts the heads through W_out."""

    def build(dtype):
        p = arrays(dtype)

        def attention():
            values = p["tokens"][:, None] @ p["values"]
            heads = run(torch.zeros_like(values), values, p["scores"])
            return heads.transpose(1, 2).flatten(2) @ p["output"] + p["bias"]

        return attention

    return build


@torch.no_grad()
def set_values(layer, p):
    """Put the values and W_out into a MultiheadAttention; set its queries and keys to zero."""
    dim = layer.embed_dim
    values, output = projections(p["tokens"].dtype, dim, layer.head_dim)
    layer.in_proj_weight.zero_()
    layer.in_proj_weight[2 * dim :] = values
    set_linear(layer.out_proj, output, p["bias"])
    return layer


def with_mask(dtype):
    p = arrays(dtype)
    layer = set_values(nn.MultiheadAttention(72, HEADS, batch_first=True, dtype=dtype), p).eval()
    x = F.pad(p["tokens"], (0, 64))
    return lambda: layer(x, x, x, attn_mask=p["scores"], need_weights=False)[0][..., :8]


def with_codes(dtype):
    p = arrays(dtype)
    layer = set_values(nn.MultiheadAttention(144, HEADS, batch_first=True, dtype=dtype), p).eval()
    query, key, _ = layer.in_proj_weight.view(3, HEADS, 16, 144)
    query[:, :6, 8:13] = 4 * p["query_matrices"].mT  # the layer divides scores by sqrt(16)
    key[:, :6, 8:13] = p["key_matrices"].mT
    x = torch.cat([p["tokens"], p["codes"][None], p["tokens"].new_zeros(1, 256, 131)], dim=2)
    return lambda: layer(x, x, x, need_weights=False)[0][..., :8]


def with_bias_key(dtype):
    """Run on the image without padding; each query times the key's bias is -4 * 64."""
    p = arrays(dtype)
    layer = nn.MultiheadAttention(144, HEADS, batch_first=True, add_bias_kv=True, dtype=dtype)
    set_values(layer, p).eval()
    query, key, _ = layer.in_proj_weight.view(3, HEADS, 16, 144)
    query[:, :6, 8:13] = 4 * p["query_matrices"].mT
    key[:, :6, 8:13] = p["key_matrices"].mT
    nn.init.zeros_(layer.bias_k)
    nn.init.zeros_(layer.bias_v)
    layer.bias_k.view(HEADS, 16)[:, 2] = 0.5  # the third entry of all queries is -4 * 128
    codes = p["codes"].unflatten(0, (16, 16))[1:-1, 1:-1].flatten(0, 1)
    x = F.pad(torch.cat([p["image"].flatten(1, 2), codes[None]], dim=2), (0, 131))
    return lambda: layer(x, x, x, need_weights=False)[0][..., :8].unflatten(1, (14, 14))


def encoder_layer(dtype, constant):
    """Return the layer; 36 of 144 channels hold +-constant, so all tokens are normalized alike."""
    p = arrays(dtype)
    layer = nn.TransformerEncoderLayer(144, HEADS, 1, batch_first=True, dtype=dtype).eval()
    set_values(layer.self_attn, p)
    out, bias = layer.self_attn.out_proj.weight, layer.self_attn.out_proj.bias
    out[8:16], out[16:24] = out[:8].clone(), -out[:8]
    bias[8:16], bias[16:24] = bias[:8].clone(), -bias[:8]
    out[:8], bias[:8] = 0, 0
    nn.init.zeros_(layer.linear2.weight)
    nn.init.zeros_(layer.linear2.bias)
    if constant:  # then the standard deviation of a token is constant / 2, nearly
        layer.norm1.weight.fill_(constant / 2)
        layer.norm2.weight.fill_(constant / 2)
    x = torch.zeros(1, 256, 144, dtype=dtype)
    x[..., :8] = p["tokens"]
    x[..., 24:32] = -p["tokens"]
    x[..., -36::2] = constant
    x[..., -35::2] = -constant
    return lambda: layer(x, src_mask=p["scores"])[..., 8:16]


def fused(query, values, scores):
    return F.scaled_dot_product_attention(query, query, values, attn_mask=scores[None])


def flexible(query, values, scores):
    def score(_, batch, head, q, k):
        return scores[head, q, k]

    return flex_attention(query, query, values, score_mod=score)


record(
    "torch.nn.functional.scaled_dot_product_attention",
    "bias argument",
    expresses=True,
    **measure(heads_first(fused)),
    expected="The mask is added to the scores, so the construction runs unchanged.",
    observed="As expected.",
)
record(
    "torch.nn.MultiheadAttention",
    "mask argument",
    expresses=True,
    **measure(with_mask),
    expected="A 3-D attn_mask is added to the scores of each head, so the construction runs.",
    observed="As expected.",
)
record(
    "torch.nn.MultiheadAttention",
    "codes beside the content",
    expresses=True,
    **measure(with_codes),
    expected="The query and key matrices of the codes are parameters of the layer; queries are "
    "multiplied by 4, since the layer divides scores by 4.",
    observed="As expected.",
)
record(
    "torch.nn.MultiheadAttention, add_bias_kv=True",
    "codes beside the content, without padding",
    expresses=True,
    **measure(with_bias_key),
    border="the layer's own key has score -64 and value 0: it stands for the pixels outside",
    expected="This key wins against wrong pixels, not against the right one.",
    observed="As expected.",
)
record(
    "torch.nn.TransformerEncoderLayer",
    "mask argument",
    expresses=False,
    **measure(lambda dtype: encoder_layer(dtype, constant=0)),
    prevented_by="each token is divided by its own standard deviation, twice",
    expected="The residual and the normalization prevent it.",
    observed="The residual is harmless if outputs have channels of their own; the normalization "
    "prevents it.",
)
record(
    "torch.nn.TransformerEncoderLayer",
    "mask argument, constant channels beside the content",
    expresses=True,
    **measure(lambda dtype: encoder_layer(dtype, constant=4096)),
    expected="The residual and the normalization prevent it.",
    observed="With 36 channels of +-4096 and the content's negative in the input, all tokens have "
    "nearly the same mean and standard deviation, and the norms' weights undo the division. With "
    "an even number of heads, the layer would block keys whose mask is not 0 instead of adding it.",
)
record(
    "torch.nn.attention.flex_attention.flex_attention",
    "bias argument",
    expresses=True,
    **measure(heads_first(flexible)),
    expected="score_mod can read the scores from a tensor, so the construction runs unchanged; "
    "without compilation it is slow.",
    observed="As expected; a warning recommends torch.compile.",
)
