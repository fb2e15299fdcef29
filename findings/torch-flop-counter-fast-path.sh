#!/usr/bin/env bash
# Subject: torch.utils.flop_counter.FlopCounterMode and the fast path of torch's attention layers.
# On: torch 2.15.0.
# Most expect: the operations of a forward pass do not depend on whether gradients are recorded; one counts them
#   under torch.no_grad().
# Observed: in evaluation mode without gradients, MultiheadAttention and TransformerEncoderLayer take a fused
#   operation for which the counter has no formula. The count is 0, without a warning, instead of 1,179,648 and
#   2,228,224 with gradients. In training mode both counts agree.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(0)
x = torch.randn(2, 16, 64)
attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)


def count(function, training, grad):
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(grad):
        function(training)
    return counter.get_total_flops()


def attend(training):
    attention.train(training)(x, x, x)


def encode(training):
    layer.train(training)(x)


seen = {
    (function.__name__, training, grad): count(function, training, grad)
    for function in (attend, encode)
    for training in (True, False)
    for grad in (True, False)
}
for (name, training, grad), flops in seen.items():
    print(f"{name}: training mode {training}, gradients {grad}: {flops} FLOPs")
for (name, training, grad), flops in seen.items():
    fast = not training and not grad
    assert flops == (0 if fast else {"attend": 1_179_648, "encode": 2_228_224}[name])
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
