#!/usr/bin/env bash
# Subject: the multiply-adds that torchinfo reports for a transformer.
# On: torchinfo 1.8.0, timm 1.0.31, torch 2.15.0.
# Most expect: those of all linear layers, perhaps without the products of queries and keys, which no layer computes.
# Observed: a linear layer counts once per example, whatever the number of tokens, and nn.MultiheadAttention counts
#   nothing. For ViT-Tiny with 224 x 224 pixels it reports 34 million, where torch counts 1254 million. Convolutions
#   count once per pixel, so ResNet-18 is right, and the two do not compare.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torchinfo==1.8.0 timm==1.0.31 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import timm
import torch
from torch.utils.flop_counter import FlopCounterMode
from torchinfo import summary


def counts(network, *shape):
    """Return the multiply-adds by torchinfo and by torch."""
    x = torch.rand(shape)
    inputs = [x, x, x] if isinstance(network, torch.nn.MultiheadAttention) else [x]
    with FlopCounterMode(display=False) as counter:
        network(*inputs)
    return summary(network, input_data=inputs, verbose=0).total_mult_adds, counter.get_total_flops() // 2


linear = torch.nn.Linear(64, 64, bias=False)
attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
seen = {
    "Linear, 1 token": counts(linear, 1, 1, 64),
    "Linear, 100 tokens": counts(linear, 1, 100, 64),
    "MultiheadAttention, 100 tokens": counts(attention, 1, 100, 64),
    "ResNet-18": counts(timm.create_model("resnet18").eval(), 1, 3, 224, 224),
    "ViT-Tiny": counts(timm.create_model("vit_tiny_patch16_224").eval(), 1, 3, 224, 224),
}
for name, (reported, counted) in seen.items():
    print(f"{name}: torchinfo {reported:,}, torch {counted:,} multiply-adds")
assert seen["Linear, 1 token"] == (4096, 4096) and seen["Linear, 100 tokens"] == (4096, 409_600)
assert seen["MultiheadAttention, 100 tokens"][0] == 0
assert abs(seen["ResNet-18"][0] / seen["ResNet-18"][1] - 1) < 0.001
assert 35 < seen["ViT-Tiny"][1] / seen["ViT-Tiny"][0] < 38
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
