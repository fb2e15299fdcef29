#!/usr/bin/env bash
# Subject: timm's option init_values=0.0 of vision transformers.
# On: timm 1.0.31, torch 2.15.0.
# Most expect: one value means the same in all families. As create_model drops None, 0.0 is the usual way to create
#   a network without LayerScale whose default has one.
# Observed: in DINOv2, vit_relpos_* and BEiT, 0.0 means no LayerScale. In networks with rotary encodings (vit_*_rope_*,
#   DINOv3) it creates LayerScales of zeros, so no block changes its tokens at first. 1.0 suits all of them.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet timm==1.0.31 torch==2.15.0 torchvision==0.29.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import timm
import torch

WITHOUT = ("vit_small_patch14_reg4_dinov2", "vit_relpos_small_patch16_224", "beit_base_patch16_224")
ZEROS = ("vit_small_patch16_rope_224", "vit_small_patch16_dinov3", "vit_medium_patch16_rope_reg1_gap_256")


@torch.no_grad()
def change(name, value):
    """Return by how much a block changes its tokens, relative to their size."""
    torch.manual_seed(0)
    side = 56 if "14" in name else 64
    network = timm.create_model(name, pretrained=False, num_classes=10, init_values=value, img_size=side)
    seen = {}
    network.blocks[1].register_forward_hook(lambda _, inputs, output: seen.update(x=inputs[0], y=output))
    network.eval()(torch.randn(1, 3, side, side))
    return ((seen["y"] - seen["x"]).norm() / seen["x"].norm()).item()


for name in (*WITHOUT, *ZEROS):
    zero, one = change(name, 0.0), change(name, 1.0)
    print(f"{name}: a block changes its tokens by {zero:.2g} with init_values=0.0, {one:.2g} with 1.0")
    assert one > 0.01 and (zero > 0.01 if name in WITHOUT else zero == 0)
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
