#!/usr/bin/env bash
# Subject: torch.utils.flop_counter.FlopCounterMode and the backward pass of a grouped convolution.
# On: torch 2.15.0.
# Most expect: the backward pass of a convolution counts twice its forward pass, once for the gradient of the
#   input and once for that of the weight, with any number of groups, as for a convolution without groups.
# Observed: the gradient of the weight is counted as if there were no groups, so the backward pass counts
#   (1 + groups) times the forward pass: 2 with one group, 5 with four and 33 for a depthwise one of 32 channels.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from torch.utils.flop_counter import FlopCounterMode

x = torch.randn(2, 32, 16, 16, requires_grad=True)
for groups in (1, 4, 32):
    layer = torch.nn.Conv2d(32, 32, 3, padding=1, groups=groups, bias=False)
    with FlopCounterMode(display=False) as forward:
        output = layer(x)
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    # each of 2 * 16 * 16 * 32 outputs sums 9 * 32 / groups products
    assert forward.get_total_flops() == 2 * (2 * 16 * 16 * 32) * (9 * 32 // groups)
    ratio = backward.get_total_flops() / forward.get_total_flops()
    print(f"{groups} groups: backward / forward = {ratio}")
    assert ratio == 1 + groups
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
