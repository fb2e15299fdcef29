#!/usr/bin/env bash
# Subject: timm's TinyViT and LeViT: weights loaded after a first prediction.
# On: timm 1.0.31, torch 2.15.0.
# Most expect: after load_state_dict, a network computes with the loaded weights.
# Observed: in evaluation mode, these networks keep the attention bias that they gathered at the first
#   prediction, and load_state_dict does not discard it. Predictions mix the old biases with all other new
#   weights, without a message, until train() is called. Strict loading succeeds, and the state dicts are equal.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet timm==1.0.31 torch==2.15.0 torchvision==0.29.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import timm
import torch

NAMES = ("tiny_vit_5m_224", "levit_128s")


def made(name, seed):
    """Return a network whose attention biases are random and of size 1."""
    torch.manual_seed(seed)
    network = timm.create_model(name, pretrained=False, num_classes=10).eval()
    for path, parameter in network.named_parameters():
        if path.endswith("attention_biases"):
            torch.nn.init.normal_(parameter)
    return network


def gap(network, other, images):
    with torch.no_grad():
        return ((network(images) - other(images)).norm() / other(images).norm()).item()


images = torch.rand(2, 3, 224, 224)
for name in NAMES:
    network, other = made(name, 0), made(name, 1)
    gap(network, other, images)  # both predict once
    network.load_state_dict(other.state_dict())
    mine, theirs = network.state_dict(), other.state_dict()
    assert all(torch.equal(mine[path], theirs[path]) for path in theirs)
    loaded = gap(network, other, images)
    network.train().eval()
    renewed = gap(network, other, images)
    print(f"{name}: relative gap after load_state_dict {loaded:.1e}, after train().eval() {renewed}")
    assert loaded > 1e-3 and renewed == 0
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
