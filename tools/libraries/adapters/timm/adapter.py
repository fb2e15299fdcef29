"""Theorem 1 in timm's attention layers.

Expected: `Attention` takes an additive `attn_mask` with one matrix per head, and its query and key
matrices can read codes beside the content. The tables of Swin's `WindowAttention` and of BEiT's
`Attention` hold equation (9); BEiT's class token needs a bias that blocks it. LeViT and TinyViT
index their biases by the absolute value of the shift, so a head cannot tell left from right; in
LeViT, codes can, and its activation before the last projection is undone by values so large that a
hard swish is the identity. `AttentionRope` has biases for queries and keys: constant queries that
are the rotated constant keys prefer one shift. `EvaAttention` has no key bias, so all its scores
are 0 unless the input has a constant channel. bfloat16 should round values alone, except in LeViT.
"""

import torch
from common import SIDE, record, versions
from in_torch import HEADS, arrays, measure, projections, relative_scores, set_linear
from timm.layers import (
    Attention,
    AttentionRope,
    RotaryEmbeddingCat,
    RotaryEmbeddingDinoV3,
    apply_rot_embed_cat,
)
from timm.models.beit import Attention as BeitAttention
from timm.models.eva import EvaAttention
from timm.models.levit import Attention as LevitAttention
from timm.models.swin_transformer import WindowAttention
from timm.models.tiny_vit import Attention as TinyVitAttention
from torch import nn
from torch.nn import functional as F

versions("torch", "timm")


def prepared(layer, dim, dtype):
    """Put the values and W_out into a layer with `qkv` and `proj`; return it and padded tokens."""
    p = arrays(dtype)
    values, output = projections(dtype, dim, dim // HEADS)
    layer = layer.to(dtype).eval()
    set_linear(layer.qkv, torch.cat([torch.zeros(2 * dim, dim), values]))
    set_linear(layer.proj, output, p["bias"])
    return layer, F.pad(p["tokens"], (0, dim - 8))


def mask(dtype):
    layer, x = prepared(Attention(72, HEADS), 72, dtype)
    scores = arrays(dtype)["scores"]
    return lambda: layer(x, attn_mask=scores)[..., :8]


def codes(dtype):
    p = arrays(dtype)
    layer, x = prepared(Attention(144, HEADS), 144, dtype)
    x[..., 8:13] = p["codes"]
    query, key, _ = layer.qkv.weight.view(3, HEADS, 16, 144)
    query[:, :6, 8:13] = 4 * p["query_matrices"].mT  # the layer divides scores by sqrt(16)
    key[:, :6, 8:13] = p["key_matrices"].mT
    return lambda: layer(x)[..., :8]


def swin(dtype):
    layer, x = prepared(WindowAttention(72, HEADS, window_size=SIDE), 72, dtype)
    scores = relative_scores(dtype).flip(1, 2)  # the table is ordered by query - key
    layer.relative_position_bias_table.copy_(scores.flatten(1).T)
    return lambda: layer(x)[..., :8]


def beit(dtype):
    """The last three rows of the table are class to tokens, tokens to class, class to class."""
    layer, x = prepared(BeitAttention(72, HEADS, window_size=(SIDE, SIDE)), 72, dtype)
    scores = relative_scores(dtype).flip(1, 2).flatten(1).T
    layer.relative_position_bias_table.copy_(F.pad(scores, (0, 0, 0, 3), value=-1e5))
    x = F.pad(x, (0, 0, 1, 0), value=1)
    return lambda: layer(x)[:, 1:, :8]


def distances(dtype):
    """Return the scores of the quadrant that LeViT and TinyViT store, for |key - query|."""
    scores = relative_scores(dtype)
    folded = torch.maximum(scores, scores.flip(1))
    return torch.maximum(folded, folded.flip(2))[:, SIDE - 1 :, SIDE - 1 :].flatten(1)


def levit(dtype, position, shift=32):
    """Put the matrices into LeViT's layer, whose qkv holds query, key and value of each head."""
    p = arrays(dtype)
    layer = LevitAttention(144, 16, HEADS, 1, resolution=SIDE, act_layer=nn.Hardswish).to(dtype)
    layer.eval()  # returns None
    values, output = projections(dtype, 144, 16)
    weight = torch.zeros(HEADS, 3, 16, 144, dtype=dtype)
    weight[:, 2] = values.unflatten(0, (HEADS, 16))
    x = F.pad(p["tokens"], (0, 136))
    if position == "codes":
        x[..., 8:13] = p["codes"]
        weight[:, 0, :6, 8:13] = 4 * p["query_matrices"].mT
        weight[:, 1, :6, 8:13] = p["key_matrices"].mT
    else:
        layer.attention_biases.copy_(distances(dtype))
    set_linear(layer.qkv.linear, weight.flatten(0, 2))
    set_linear(layer.proj.ln.linear, output)
    for norm in (layer.qkv.bn, layer.proj.ln.bn):
        norm.running_var.fill_(1 - norm.eps)
        norm.weight.fill_(1)
    layer.qkv.bn.bias.view(HEADS, 3, 16)[:, 2] = shift  # the hard swish is the identity from 3
    layer.proj.ln.bn.bias.copy_(-shift * output.sum(dim=1))
    layer.proj.ln.bn.bias[:8] += p["bias"]
    return lambda: layer(x)[..., :8]


def tiny_vit(dtype):
    p = arrays(dtype)
    layer = TinyVitAttention(144, 16, HEADS, 1, resolution=(SIDE, SIDE)).to(dtype)
    layer.eval()  # returns None
    values, output = projections(dtype, 144, 16)
    weight = torch.zeros(HEADS, 3, 16, 144, dtype=dtype)
    weight[:, 2] = values.unflatten(0, (HEADS, 16))
    set_linear(layer.qkv, weight.flatten(0, 2))
    set_linear(layer.proj, output, p["bias"])
    layer.attention_biases.copy_(distances(dtype))
    x = F.pad(p["tokens"], (0, 136))
    return lambda: layer(x)[..., :8]


def rotated(embedding, half, gap=100):
    """Return constant queries of all heads, (9, 64), that attend to their offset with keys 1.

    The keys are (1, ..., 1). The queries are these keys, rotated by the encoding of the offset and
    scaled so that the best score of a query exceeds the next by `gap`.
    """

    def rotate(x, code):
        return apply_rot_embed_cat(x, code, half=half)

    key = torch.ones(64, dtype=torch.float64)
    embedding = embedding.double().unflatten(0, (SIDE, SIDE))
    back = torch.cat([-embedding[8, 8, :64], embedding[8, 8, 64:]])
    queries = []
    for y, x in arrays(torch.float32)["centers"].long().tolist():
        query = rotate(rotate(key, embedding[8 + y, 8 + x]), back)
        scores = (rotate(query, embedding[8, 8]) * rotate(key, embedding)).sum(dim=2) / 8
        best, second = scores.flatten().topk(2).values  # / 8: the scale of the layer
        queries.append(query * gap / (best - second))
    return torch.stack(queries)


def rotary(dtype, embedding, cls, half=False, constant=False):
    """Set constant queries and keys with the layer's biases, or with a channel that is 1."""
    options = {"num_prefix_tokens": 0, "rotate_half": half}
    if cls is EvaAttention:
        options["scale_norm"] = False
    layer, x = prepared(cls(576, HEADS, **options), 576, dtype)
    queries = rotated(embedding.get_embed(), embedding.rotate_half).flatten().to(dtype)
    both = torch.cat([queries, torch.ones_like(queries)])
    if constant:
        x[..., 8] = 1
        layer.qkv.weight[: len(both), 8] = both
    elif cls is EvaAttention:
        layer.q_bias.copy_(queries)
    else:
        layer.qkv.bias[: len(both)] = both
    return lambda: layer(x, rope=embedding.get_embed())[..., :8]


language = RotaryEmbeddingCat(64, in_pixels=False, feat_shape=[SIDE, SIDE])
centered = RotaryEmbeddingDinoV3(64, feat_shape=[SIDE, SIDE])
record(
    "timm.layers.Attention",
    "mask argument",
    expresses=True,
    **measure(mask),
    expected="attn_mask is added to the scores and broadcasts to heads, so the construction runs.",
    observed="As expected.",
)
record(
    "timm.layers.Attention",
    "codes beside the content",
    expresses=True,
    **measure(codes),
    expected="The query and key matrices of the codes are parameters of the layer.",
    observed="As expected.",
)
record(
    "timm.models.swin_transformer.WindowAttention",
    "parameters",
    expresses=True,
    **measure(swin),
    expected="The table of relative biases holds equation (9), so the construction runs.",
    observed="As expected.",
)
record(
    "timm.models.beit.Attention",
    "parameters",
    expresses=True,
    **measure(beit),
    expected="The table holds equation (9), and -100000 for the class token blocks it.",
    observed="As expected.",
)
record(
    "timm.models.levit.Attention",
    "parameters",
    expresses=False,
    **measure(lambda dtype: levit(dtype, "biases")),
    prevented_by="biases depend on the absolute values of the shift's two components",
    expected="The head of the centre is exact, the others average two or four pixels.",
    observed="As expected. The layer's train() and eval() return None.",
)
record(
    "timm.models.levit.Attention",
    "codes beside the content",
    expresses=True,
    **measure(lambda dtype: levit(dtype, "codes")),
    expected="A bias of the values that the last bias removes undoes the activation; it costs "
    "digits.",
    observed="As expected: values stand beside 32, so the gaps are about 20 times the rounding.",
)
record(
    "timm.models.tiny_vit.Attention",
    "parameters",
    expresses=False,
    **measure(tiny_vit),
    prevented_by="biases depend on the absolute values of the shift's two components, and each "
    "token is normalized",
    expected="As LeViT, and the normalization changes the values as well.",
    observed="As expected.",
)
record(
    "timm.layers.AttentionRope",
    "rotary, RotaryEmbeddingCat",
    expresses=True,
    **measure(lambda dtype: rotary(dtype, language, AttentionRope)),
    expected="The biases of queries and keys are free, so rotated constants attend to one shift.",
    observed="As expected. With amplitude 1 in all pairs, the best score exceeds the next by 0.69, "
    "before the scale 1/8.",
)
record(
    "timm.layers.AttentionRope",
    "rotary, RotaryEmbeddingDinoV3",
    expresses=False,
    **measure(lambda dtype: rotary(dtype, centered, AttentionRope)),
    prevented_by="by default, the layer takes interleaved pairs and the embedding holds halves",
    expected="As with RotaryEmbeddingCat, with larger amplitudes.",
    observed="Neither class notices that the layouts differ, and the scores depend on absolute "
    "positions.",
)
record(
    "timm.layers.AttentionRope",
    "rotary, RotaryEmbeddingDinoV3, rotate_half=True",
    expresses=True,
    **measure(lambda dtype: rotary(dtype, centered, AttentionRope, half=True)),
    expected="As with RotaryEmbeddingCat, with larger amplitudes.",
    observed="As expected, once the layer's rotate_half agrees with the embedding's.",
)
record(
    "timm.models.eva.EvaAttention",
    "rotary, RotaryEmbeddingCat",
    expresses=False,
    **measure(lambda dtype: rotary(dtype, language, EvaAttention)),
    prevented_by="the layer has no key bias, so constant keys are zero",
    expected="All scores are 0, and every query averages all pixels.",
    observed="As expected.",
)
record(
    "timm.models.eva.EvaAttention",
    "rotary, RotaryEmbeddingCat, constant channel beside the content",
    expresses=True,
    **measure(lambda dtype: rotary(dtype, language, EvaAttention, constant=True)),
    expected="The key matrix takes the constant from a channel that is 1 in all tokens.",
    observed="As expected.",
)
