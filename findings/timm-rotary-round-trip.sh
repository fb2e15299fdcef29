#!/usr/bin/env bash
# Subject: timm's networks with axial rotary embeddings after bfloat16(), float() and loading the first weights again.
# On: timm 1.0.31, torch 2.15.0.
# Most expect: after float() and a strict load_state_dict of the original float32 weights, the network computes what
#   it did at first.
# Observed: a gap remains. The table of sines and cosines was rounded to bfloat16 with the weights, is not in
#   the state dict, and float() does not make it anew, although timm rebuilds the frequencies it was made from. Networks
#   that compute the table at each call (DINOv3) or learn the frequencies (mixed) have no gap.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet timm==1.0.31 torch==2.15.0 torchvision==0.29.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import timm
import torch

NAMES = {
    "vit_small_patch16_rope_224": True,
    "eva02_tiny_patch14_224": True,
    "vit_small_patch16_rope_mixed_224": False,
    "vit_small_patch16_dinov3": False,
}


def network_of(name):
    """Return a network of four blocks whose attention is far from uniform."""
    torch.manual_seed(0)
    network = timm.create_model(name, pretrained=False, depth=4, num_classes=0).eval()
    for path, parameter in network.named_parameters():
        if path.endswith("qkv.weight"):
            torch.nn.init.normal_(parameter, std=0.1)
        if ".gamma" in path:
            torch.nn.init.ones_(parameter)
    return network


@torch.no_grad()
def round_trip(name):
    """Return the relative gap of the features after the round trip."""
    network = network_of(name)
    images = torch.rand(2, 3, *network.pretrained_cfg["input_size"][1:])
    weights = {path: weight.clone() for path, weight in network.state_dict().items()}
    before = network.forward_features(images)
    network.bfloat16().float()
    network.load_state_dict(weights)
    after = network.forward_features(images)
    assert all(torch.equal(weights[path], weight) for path, weight in network.state_dict().items())
    return ((after - before).norm() / before.norm()).item()


for name, has_table in NAMES.items():
    gap = round_trip(name)
    print(f"{name}: relative gap after the round trip {gap:.1e}")
    assert gap > 2e-5 if has_table else gap == 0
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
