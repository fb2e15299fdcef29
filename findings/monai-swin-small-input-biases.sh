#!/usr/bin/env bash
# Subject: relative position biases of MONAI's SwinUNETR for a map that is smaller than a window.
# On: monai 1.6.1, torch 2.15.0.
# Most expect: the window shrinks to the map, and two tokens keep the bias of their offset.
# Observed: the window shrinks, but its biases are read from the upper left corner of the large window's index table,
#   whose tokens lie in rows of the large window. For 4 x 4 tokens and a window of 7 x 7, 206 of 256 pairs get the
#   bias of another offset: a token and the one below it are taken for four columns apart. There is no message.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet monai==1.6.1 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from monai.networks.nets.swin_unetr import SwinTransformerBlock

WINDOW, SIZE, CHANNELS = 7, 4, 8
torch.manual_seed(0)
block = SwinTransformerBlock(CHANNELS, 1, (WINDOW, WINDOW), (0, 0)).eval()
attention = block.attn

# every entry of the table has its own bias; without queries, an attention map tells which ones were read
with torch.no_grad():
    attention.relative_position_bias_table.copy_(torch.linspace(0, 3, (2 * WINDOW - 1) ** 2)[:, None])
    attention.qkv.weight.zero_()
    attention.qkv.bias.zero_()
maps = []
attention.softmax.register_forward_hook(lambda module, given, output: maps.append(given[0].detach()))
block(torch.randn(1, SIZE, SIZE, CHANNELS), None)
(scores,) = (each[0, 0] for each in maps)

steps = torch.arange(1 - WINDOW, WINDOW)
offsets = torch.cartesian_prod(steps, steps)
used = offsets[(scores / 3 * (len(offsets) - 1)).round().long()]
place = torch.cartesian_prod(torch.arange(SIZE), torch.arange(SIZE))
wrong = (used != place[:, None] - place).any(dim=-1)
below = used[SIZE, 0].tolist()
print(f"{SIZE} x {SIZE} tokens, window {WINDOW}: {int(wrong.sum())} of {wrong.numel()} pairs: another offset's bias")
print("a token and the one above it have the bias of", below)
assert int(wrong.sum()) == 206 and below == [0, 4]
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
