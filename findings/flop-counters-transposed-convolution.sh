#!/usr/bin/env bash
# Subject: the multiply-adds of a transposed convolution in five counters.
# On: torchinfo 1.8.0, calflops 0.3.2, fvcore 0.1.5.post20221221, ptflops 0.7.5, torch 2.15.0.
# Most expect: every weight is multiplied once per pixel of the input, so counters agree, as for convolutions.
# Observed: torchinfo multiplies the weights by the pixels of the output, 4.5 times too many with a stride of 2 here;
#   with 4 groups, calflops divides by the groups twice. For convolutions with the same sizes, all agree up to biases.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torchinfo==1.8.0 calflops==0.3.2 fvcore==0.1.5.post20221221 \
    ptflops==0.7.5 torch==2.15.0 transformers==5.24.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import contextlib
import io

import torch
from calflops import calculate_flops
from fvcore.nn import FlopCountAnalysis
from ptflops import get_model_complexity_info
from torch.utils.flop_counter import FlopCounterMode
from torchinfo import summary

SHAPE = (1, 8, 9, 9)


def counts(layer):
    """Return the multiply-adds by each counter."""
    x = torch.rand(SHAPE)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    with contextlib.redirect_stdout(io.StringIO()):
        by_ptflops, _ = get_model_complexity_info(layer, SHAPE[1:], as_strings=False, print_per_layer_stat=False)
        _, by_calflops, _ = calculate_flops(layer, SHAPE, print_results=False, output_as_string=False)
    return {
        "torch": counter.get_total_flops() // 2,
        "fvcore": int(FlopCountAnalysis(layer, x).total()),
        "ptflops": by_ptflops,
        "torchinfo": summary(layer, input_data=x, verbose=0).total_mult_adds,
        "calflops": int(by_calflops),
    }


for kind in (torch.nn.Conv2d, torch.nn.ConvTranspose2d):
    for groups in (1, 4):
        layer = kind(8, 16, 3, stride=2, groups=groups)
        seen = counts(layer)
        right = layer.weight.numel() * (16 if kind is torch.nn.Conv2d else SHAPE[2] * SHAPE[3])
        print(f"{kind.__name__}, {groups} groups:", ", ".join(f"{name} {count:,}" for name, count in seen.items()))
        off = {name for name, count in seen.items() if not right <= count < 1.3 * right}
        assert off == (
            set()
            if kind is torch.nn.Conv2d
            else {"torchinfo"}
            if groups == 1
            else {"torchinfo", "calflops"}
        )
        if kind is torch.nn.ConvTranspose2d:
            assert seen["calflops"] * groups == right and seen["torchinfo"] > 4.4 * right
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
