#!/usr/bin/env bash
# Subject: rope_shift_coords, the random shift of rotary coordinates in training, and rope_grid_offset of timm's Eva.
# On: timm 1.0.31, torch 2.15.0.
# Most expect: the shift augments the positions of all tokens, so that features vary from one forward pass in training
#   mode to the next, as with rope_rescale_coords; and an offset of the grid changes the features.
# Observed: without a class token, neither changes anything beyond rounding, as all patches move alike and scores depend
#   on offsets. With one, both change the features, because of the class token alone: it is not rotated, which places it
#   at coordinate 0 while the patches move.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet timm==1.0.31 torch==2.15.0 torchvision==0.29.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from timm.models.eva import Eva


def network_of(class_token, **options):
    """Return a small network whose attention is far from uniform; options are those of its rotary embedding."""
    torch.manual_seed(0)
    network = Eva(
        img_size=64,
        patch_size=8,
        embed_dim=64,
        depth=3,
        num_heads=1,
        num_classes=0,
        use_rot_pos_emb=True,
        use_abs_pos_emb=False,
        class_token=class_token,
        global_pool="avg",
        **options,
    )
    for path, parameter in network.named_parameters():
        if path.endswith(("qkv.weight", "q_proj.weight", "k_proj.weight", "v_proj.weight")):
            torch.nn.init.normal_(parameter, std=0.3)
    return network


def gap(features, others):
    return ((features - others).norm() / others.norm()).item()


images = torch.rand(2, 3, 64, 64)
with torch.no_grad():
    for class_token in (False, True):
        print(f"{'with' if class_token else 'without'} a class token, relative gap of the features")
        plain = network_of(class_token).eval()(images)
        offset = gap(network_of(class_token, rope_grid_offset=7.0).eval()(images), plain)
        print(f"  between grid offsets 0 and 7: {offset:.1e}")
        assert offset > 0.05 if class_token else offset < 1e-5
        for rope_type in ("cat", "mixed", "mrope", "dinov3"):
            shifted = network_of(class_token, rope_type=rope_type, rope_shift_coords=5.0).train()
            rescaled = network_of(class_token, rope_type=rope_type, rope_rescale_coords=2.0).train()
            shift = gap(shifted(images), shifted(images))
            rescale = gap(rescaled(images), rescaled(images))
            print(f"  between two training passes, {rope_type}: shift {shift:.1e}, rescale {rescale:.1e}")
            assert rescale > 1e-3 and (shift > 0.01 if class_token else shift < 1e-5)
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
