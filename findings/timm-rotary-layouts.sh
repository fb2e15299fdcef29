#!/usr/bin/env bash
# Subject: timm.layers.RotaryEmbeddingDinoV3 with timm.layers.AttentionRope or EvaAttention, all with their defaults.
# On: timm 1.0.31, torch 2.15.0.
# Most expect: the layers rotate queries and keys by the embedding, so that scores of constant queries and keys depend
#   on the shift between two tokens alone, as with RotaryEmbeddingCat.
# Observed: they depend on both positions. The embedding is laid out in halves by default (rotate_half=True), the layers
#   take it as interleaved (rotate_half=False), both have the same shape, and neither tells. With rotate_half=True in
#   the layer, scores depend on the shift alone.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet timm==1.0.31 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from timm.layers import AttentionRope, RotaryEmbeddingCat, RotaryEmbeddingDinoV3
from timm.models.eva import EvaAttention

SIDE, DIM = 4, 64
CAT = RotaryEmbeddingCat(DIM, in_pixels=False, feat_shape=[SIDE, SIDE])
DINO = RotaryEmbeddingDinoV3(DIM, feat_shape=[SIDE, SIDE])


@torch.no_grad()
def attention_map(cls, embedding, **options):
    """Return the attention of one head with constant queries and keys, read off with one-hot values."""
    torch.manual_seed(0)
    if cls is EvaAttention:
        options |= {"scale_norm": False}
    layer = cls(DIM, num_heads=1, qkv_bias=False, num_prefix_tokens=0, **options).eval()
    layer.qkv.weight.zero_()
    layer.qkv.weight[2 * DIM :] = torch.eye(DIM)
    layer.proj.weight.copy_(torch.eye(DIM))
    layer.proj.bias.zero_()
    x = torch.eye(SIDE**2, DIM)[None]
    x[..., -1] = 1  # a constant channel, since EvaAttention has no key bias
    layer.qkv.weight[: 2 * DIM, -1] = torch.randn(2 * DIM)
    attention = layer(x, rope=embedding.get_embed())[0, :, : SIDE**2].double()
    assert attention.sum(dim=1).allclose(torch.ones(SIDE**2).double(), atol=1e-5)
    return attention


def spread(attention):
    """Return how much the scores of two pairs of tokens with the same shift differ at most."""
    scores = attention.log() - attention.log().diagonal()[:, None]
    y, x = torch.arange(SIDE**2) // SIDE, torch.arange(SIDE**2) % SIDE
    shift = (y - y[:, None]) * 2 * SIDE + x - x[:, None]
    groups = [scores[shift == d] for d in shift.unique()]
    return max((group.max() - group.min()).item() for group in groups)


for cls in (AttentionRope, EvaAttention):
    usual = spread(attention_map(cls, CAT))
    default = spread(attention_map(cls, DINO))
    half = spread(attention_map(cls, DINO, rotate_half=True))
    print(f"{cls.__name__}: scores of the same shift differ by up to")
    print(f"  {usual:.2g} with RotaryEmbeddingCat, {default:.2g} with RotaryEmbeddingDinoV3,")
    print(f"  {half:.2g} with RotaryEmbeddingDinoV3 and rotate_half=True in the layer")
    assert usual < 1e-4 and half < 1e-4 and default > 0.1
assert CAT.get_embed().shape == DINO.get_embed().shape
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
