#!/usr/bin/env bash
# Subject: transformers' DINOv3ViTModel in training mode, with its default configuration.
# On: transformers 5.24.0, timm 1.0.31, torch 2.15.0.
# Most expect: training mode computes what evaluation mode does, for instance in a frozen backbone, since all dropout
#   rates are 0 by default and there is no batch normalisation.
# Observed: training mode is random. Each forward pass scales all coordinates of the rotary encoding by one factor
#   between 1/2 and 2, the same for all images of the batch. With pos_embed_rescale=None both modes agree. timm's DINOv3
#   networks have no such scaling by default: both modes agree.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 timm==1.0.31 torch==2.15.0 torchvision==0.29.2 \
    numpy
cat > "$folder/observe.py" <<'PYTHON'
import timm
import torch
from transformers import DINOv3ViTConfig, DINOv3ViTModel

sizes = {"hidden_size": 64, "num_attention_heads": 1, "num_hidden_layers": 2, "intermediate_size": 64}
torch.manual_seed(0)
image = torch.rand(1, 3, 64, 64)
images = image.repeat(2, 1, 1, 1)  # the same image twice


def gap(features, others):
    return ((features - others).norm() / others.norm()).item()


@torch.no_grad()
def gaps(network, features):
    """Return relative gaps of features: of two training passes, of training and evaluation, and within a batch."""
    evaluated = features(network.eval(), images)
    one, two = features(network.train(), images), features(network, images)
    return gap(one, two), gap(one, evaluated), gap(one[0], one[1])


def hugging_face(**options):
    config = DINOv3ViTConfig(**sizes, initializer_range=0.3, **options)
    assert config.attention_dropout == config.drop_path_rate == 0
    return gaps(DINOv3ViTModel(config), lambda network, images: network(images).last_hidden_state)


results = {
    "transformers, default": hugging_face(),
    "transformers, pos_embed_rescale=None": hugging_face(pos_embed_rescale=None),
    "timm": gaps(
        timm.create_model("vit_small_patch16_dinov3", pretrained=False, depth=2),
        lambda network, images: network.forward_features(images),
    ),
}
for name, (passes, modes, batch) in results.items():
    print(f"{name}: relative gap of two training passes {passes:.2g}, of training and evaluation {modes:.2g},")
    print(f"  of the two copies of an image in one training pass {batch:.2g}")
    assert batch < 1e-5
    if name == "transformers, default":
        assert passes > 0.01 and modes > 0.01
    else:
        assert passes == modes == 0
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
