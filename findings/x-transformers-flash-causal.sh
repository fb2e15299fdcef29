#!/usr/bin/env bash
# Subject: x_transformers' Attention, called with causal=True.
# On: x-transformers 2.31.10, torch 2.15.0.
# Most expect: flash=True chooses another computation of the same output, so that a call with causal=True hides later
#   tokens in both.
# Observed: with flash=True the argument of the call is ignored without a message, and later tokens change the outputs
#   of earlier ones. With flash=False they do not. causal=True in the constructor works in both.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet x-transformers==2.31.10 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from x_transformers.x_transformers import Attention

x = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(0))
changed = x.clone()
changed[0, -1] += 1


@torch.no_grad()
def change(flash, of_layer, of_call):
    """Return how much the last token changes the outputs of the others."""
    torch.manual_seed(0)
    layer = Attention(16, dim_head=8, heads=2, flash=flash, causal=of_layer).eval()
    outputs = [layer(tokens, **of_call)[0, :-1] for tokens in (x, changed)]
    return (outputs[0] - outputs[1]).abs().max().item()


for of_layer, of_call in ((False, {}), (True, {}), (False, {"causal": True})):
    for flash in (False, True):
        value = change(flash, of_layer, of_call)
        print(f"Attention(causal={of_layer}, flash={flash}) called with {of_call}:", end=" ")
        print(f"the last token changes the others by {value:.2g}")
        hidden = of_layer or (of_call and not flash)
        assert value == 0 if hidden else value > 1e-3
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
