#!/usr/bin/env bash
# Subject: options of open_clip's towers that no published configuration uses.
# On: open_clip_torch 3.3.0, torch 2.15.0.
# Most expect: an option that a configuration accepts, and for which a network is built, runs.
# Observed: with "scaled_cosine_attn" the network has its logit scales, but every forward pass raises an error, because
#   the attention multiplies maps of all heads with a product of matrices for one. "attentional_pool": "parallel" builds
#   two poolers and then raises an error as well. "qk_norm" and "scale_heads" run.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet open_clip_torch==3.3.0 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from open_clip.transformer import VisionTransformer

SIZES = {"image_size": 32, "patch_size": 8, "width": 64, "layers": 1, "heads": 2, "mlp_ratio": 2, "output_dim": 32}
POOL = {"attn_pooler_heads": 2, "attn_pooler_queries": 4}


def outcome(**options):
    """Return the shape of the output, or the error's text."""
    network = VisionTransformer(**SIZES, **options).eval()
    try:
        return tuple(network(torch.rand(2, 3, 32, 32)).shape)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


for options, runs in (
    ({}, True),
    ({"block_type": "custom", "qk_norm": True}, True),
    ({"block_type": "custom", "scale_heads": True}, True),
    ({"block_type": "custom", "scaled_cosine_attn": True}, False),
    ({"attentional_pool": True, **POOL}, True),
    ({"attentional_pool": "parallel", **POOL}, False),
):
    seen = outcome(**options)
    print(options, seen)
    assert (seen == (2, 32)) == runs
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
