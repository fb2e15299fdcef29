#!/usr/bin/env bash
# Subject: SwinModel of transformers after an image whose map is as small as a window.
# On: transformers 5.24.0, torch 2.15.0.
# Most expect: in evaluation mode, the output for an image does not depend on the images before it.
# Observed: a layer whose map is no larger than its window stores the shift 0 in itself, and keeps it. After one
#   image of 32 pixels, the same image of 64 pixels gives another output, because its windows are no longer
#   shifted. Neither parameters nor buffers have changed. Swinv2Model gives the same output as before.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from transformers import SwinConfig, SwinModel, Swinv2Config, Swinv2Model

SIZES = {
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}


@torch.no_grad()
def change(network):
    """Return by how much the output for an image changes after a smaller image."""
    large, small = torch.randn(1, 3, 64, 64), torch.randn(1, 3, 32, 32)
    state = {name: value.clone() for name, value in network.state_dict().items()}
    before = network(large).last_hidden_state
    again = network(large).last_hidden_state
    assert torch.equal(before, again)
    network(small)
    after = network(large).last_hidden_state
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    return (after - before).abs().max().item()


torch.manual_seed(0)
first = change(SwinModel(SwinConfig(**SIZES)).eval())
second = change(Swinv2Model(Swinv2Config(**SIZES)).eval())
print(f"SwinModel: the output changes by up to {first:.2f}; Swinv2Model: {second}")
assert first > 0.01 and second == 0
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
