"""Theorem 1 in transformers' attention layers, computed with scaled_dot_product_attention.

Expected: `ViTAttention` adds its `attention_mask` to the scores and broadcasts it over heads, and
its query and key matrices can read codes beside the content. The relative biases of BEiT and Swin
hold equation (9). T5's biases belong to ranges of 1-D shifts: the default 32 leave only shifts up
to 7 distinct, not the 17 of a kernel's corner in an image of 16 pixels a row, while 128 do; its
layer has no output bias, so the convolution's bias comes from a channel that is 1. DINOv3's layer
has no key bias by default, so scores are 0; `key_bias=True` gives it one, and then constant queries
that are the rotated constant keys prefer one shift. In bfloat16 its rotation is computed in
bfloat16, but the best score exceeds the next by more than that error.
"""

import torch
from common import SIDE, record, versions
from in_torch import HEADS, arrays, measure, projections, relative_scores, set_linear
from torch.nn import functional as F
from transformers import BeitConfig, DINOv3ViTConfig, SwinConfig, T5Config, ViTConfig
from transformers.models.beit.modeling_beit import BeitAttention, BeitRelativePositionBias
from transformers.models.dinov3_vit.modeling_dinov3_vit import (
    DINOv3ViTAttention,
    DINOv3ViTRopePositionEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.swin.modeling_swin import SwinAttention
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.vit.modeling_vit import ViTAttention

versions("torch", "transformers")


def config(cls, dim, **options):
    options = {"hidden_size": dim, "num_attention_heads": HEADS} | options
    return cls(attn_implementation="sdpa", image_size=SIDE, patch_size=1, **options)


def prepared(layer, dim, dtype):
    """Put the values and W_out into a layer; return it and the padded tokens."""
    p = arrays(dtype)
    layer = layer.to(dtype).eval()
    values, output = projections(dtype, dim, dim // HEADS)
    for linear in (layer.q_proj, layer.k_proj):
        set_linear(linear, torch.zeros(0, 0))
    set_linear(layer.v_proj, values)
    set_linear(layer.o_proj, output, p["bias"])
    return layer, F.pad(p["tokens"], (0, dim - 8))


def mask(dtype):
    layer, x = prepared(ViTAttention(config(ViTConfig, 72)), 72, dtype)
    scores = arrays(dtype)["scores"][None]
    return lambda: layer(x, attention_mask=scores)[0][..., :8]


def codes(dtype):
    p = arrays(dtype)
    layer, x = prepared(ViTAttention(config(ViTConfig, 144)), 144, dtype)
    x[..., 8:13] = p["codes"]
    query = layer.q_proj.weight.view(HEADS, 16, 144)
    query[:, :6, 8:13] = 4 * p["query_matrices"].mT  # the layer divides scores by sqrt(16)
    layer.k_proj.weight.view(HEADS, 16, 144)[:, :6, 8:13] = p["key_matrices"].mT
    return lambda: layer(x)[0][..., :8]


def table(dtype):
    """Return the table of BEiT and Swin, (961, 9), which is ordered by query - key."""
    return relative_scores(dtype).flip(1, 2).flatten(1).T


def beit(dtype):
    """The last three rows of the table are class to tokens, tokens to class, class to class."""
    options = config(BeitConfig, 72)
    layer, x = prepared(BeitAttention(options), 72, dtype)
    biases = BeitRelativePositionBias(options).to(dtype)
    biases.relative_position_bias_table.copy_(F.pad(table(dtype), (0, 0, 0, 3), value=-1e5))
    x = F.pad(x, (0, 0, 1, 0), value=1)
    return lambda: layer(x, attention_mask=biases((SIDE, SIDE)))[0][:, 1:, :8]


def swin(dtype):
    layer, x = prepared(SwinAttention(config(SwinConfig, 72), 72, HEADS, SIDE), 72, dtype)
    layer.relative_position_bias.relative_position_bias_table.copy_(table(dtype))
    return lambda: layer(x)[0][..., :8]


def t5(dtype, buckets):
    """Set the bias of each head to 0 in the range of its shift and to -128 elsewhere."""
    p = arrays(dtype)
    options = {"relative_attention_num_buckets": buckets, "attn_implementation": "sdpa"}
    options = T5Config(d_model=144, d_kv=16, num_heads=HEADS, **options)
    layer = T5Attention(options, has_relative_attention_bias=True).to(dtype).eval()
    values, output = projections(dtype, 144, 16)
    values[8, 8] = 1  # a channel that is 1, for the convolution's bias
    output[:8, 8] = p["bias"]
    for linear, weight in ((layer.v, values), (layer.o, output)):
        set_linear(linear, weight)
    for linear in (layer.q, layer.k):
        set_linear(linear, torch.zeros(0, 0))
    shifts = (p["centers"].float() @ torch.tensor([SIDE, 1.0])).long()
    places = layer._relative_position_bucket(shifts, num_buckets=buckets)
    layer.relative_attention_bias.weight.fill_(-128)
    layer.relative_attention_bias.weight[places, range(HEADS)] = 0
    x = F.pad(p["tokens"], (0, 136))
    x[..., 8] = 1
    return lambda: layer(x)[0][..., :8]


def rotated(cos, sin, gap=100):
    """Return constant queries of all heads, (9, 64), that attend to their offset with keys 1.

    The keys are (1, ..., 1). The queries are these keys, rotated by the encoding of the offset and
    scaled so that the best score of a query exceeds the next by `gap`.
    """

    def rotate(x, cos, sin):
        x = x.expand(cos.shape)
        return apply_rotary_pos_emb(x, x, cos, sin)[0]

    key = torch.ones(1, 64, dtype=torch.float64)
    middle = SIDE // 2 * (SIDE + 1)
    here = slice(middle, middle + 1)
    queries = []
    for y, x in arrays(torch.float32)["centers"].long().tolist():
        there = slice(middle + SIDE * y + x, middle + SIDE * y + x + 1)
        query = rotate(rotate(key, cos[there], sin[there]), cos[here], -sin[here])
        scores = rotate(key, cos, sin) @ rotate(query, cos[here], sin[here]).flatten() / 8
        best, second = scores.topk(2).values
        queries.append(query * gap / (best - second))
    return torch.cat(queries)


def dinov3(dtype, key_bias):
    options = config(DINOv3ViTConfig, 576, key_bias=key_bias)
    layer, x = prepared(DINOv3ViTAttention(options), 576, dtype)
    positions = DINOv3ViTRopePositionEmbedding(options).eval()
    exact = positions(torch.zeros(1, 3, SIDE, SIDE, dtype=torch.float64))
    layer.q_proj.bias.copy_(rotated(*exact).flatten())
    if key_bias:
        layer.k_proj.bias.fill_(1)
    codes = positions(torch.zeros(1, 3, SIDE, SIDE, dtype=dtype))
    return lambda: layer(x, position_embeddings=codes)[0][..., :8]


record(
    "transformers ViTAttention",
    "mask argument",
    expresses=True,
    **measure(mask),
    expected="A floating-point attention_mask is added to the scores and broadcasts over heads.",
    observed="As expected.",
)
record(
    "transformers ViTAttention",
    "codes beside the content",
    expresses=True,
    **measure(codes),
    expected="The query and key matrices of the codes are parameters of the layer.",
    observed="As expected.",
)
record(
    "transformers BeitAttention with BeitRelativePositionBias",
    "parameters",
    expresses=True,
    **measure(beit),
    expected="The table holds equation (9), and -100000 for the class token blocks it.",
    observed="As expected; it would fail for a padded image that is not square "
    "(findings/transformers-beit-not-square.sh).",
)
record(
    "transformers SwinAttention",
    "parameters",
    expresses=True,
    **measure(swin),
    expected="The table of relative biases holds equation (9), so the construction runs.",
    observed="As expected.",
)
record(
    "transformers T5Attention",
    "parameters, 32 ranges of shifts",
    expresses=False,
    **measure(lambda dtype: t5(dtype, 32)),
    prevented_by="the shifts of 15, 16 and 17 tokens to the rows above and below share their "
    "biases with other shifts",
    expected="With the default 32 ranges, only shifts up to 7 are distinct.",
    observed="As expected.",
)
record(
    "transformers T5Attention",
    "parameters, 128 ranges of shifts",
    expresses=True,
    **measure(lambda dtype: t5(dtype, 128)),
    expected="Shifts up to 31 are distinct, and a channel that is 1 gives the convolution's bias.",
    observed="As expected.",
)
record(
    "transformers DINOv3ViTAttention",
    "rotary",
    expresses=False,
    **measure(lambda dtype: dinov3(dtype, key_bias=False)),
    prevented_by="by default, the layer has no key bias, so constant keys are zero",
    expected="All scores are 0, and every query averages all pixels.",
    observed="As expected.",
)
record(
    "transformers DINOv3ViTAttention",
    "rotary, key_bias=True",
    expresses=True,
    **measure(lambda dtype: dinov3(dtype, key_bias=True)),
    expected="Rotated constants attend to one shift, also with the rotation in bfloat16.",
    observed="As expected.",
)
