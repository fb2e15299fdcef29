#!/usr/bin/env bash
# Subject: the scale of the scores in torchvision's MaxViT.
# On: torchvision 0.29.2, timm 1.0.31, torch 2.15.0.
# Most expect: one over the square root of a head's channels, as in the paper and in timm's MaxViT, so that weights
#   move from one library to the other.
# Observed: one over the square root of all channels. In the last stage of maxvit_t, which has 16 heads, scores are a
#   quarter of those in timm. With identical weights, outputs agree only after the queries are multiplied by 4.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torchvision==0.29.2 timm==1.0.31 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import functools

import torch
from timm.layers import RelPosBias
from timm.models.maxxvit import AttentionCl
from torchvision.models import maxvit_t
from torchvision.models.maxvit import RelativePositionalMultiHeadAttention

torch.manual_seed(0)
last = [each for each in maxvit_t().modules() if isinstance(each, RelativePositionalMultiHeadAttention)][-1]
channels, heads, window = last.merge.in_features, last.n_heads, last.size
ratio = last.head_dim**-0.5 / last.scale_factor
print(f"last stage: {channels} channels, {heads} heads, scores of torchvision are 1/{ratio:.0f} of timm's")
assert heads == 16 and abs(ratio - heads**0.5) < 1e-6

other = AttentionCl(
    channels,
    channels,
    dim_head=last.head_dim,
    head_first=False,
    rel_pos_cls=functools.partial(RelPosBias, window_size=(window, window)),
)
other.qkv.load_state_dict(last.to_qkv.state_dict())
other.proj.load_state_dict(last.merge.state_dict())
with torch.no_grad():
    last.relative_position_bias_table.normal_()
    other.rel_pos.relative_position_bias_table.copy_(last.relative_position_bias_table)
    x = torch.randn(2, window**2, channels)
    wanted = other.eval()(x)

    def gap():
        return (last.eval()(x.unsqueeze(1)).squeeze(1) - wanted).abs().max().item() / wanted.abs().max().item()

    before = gap()
    last.to_qkv.weight[:channels] *= ratio
    last.to_qkv.bias[:channels] *= ratio
    after = gap()
print(f"outputs differ by {before:.1%} with identical weights, by {after:.1e} with queries multiplied by {ratio:.0f}")
assert before > 0.01 and after < 1e-5
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
