#!/usr/bin/env bash
# Subject: the attention_mask of transformers' BeitModel with relative position biases, shared or not.
# On: transformers 5.24.0, torch 2.15.0.
# Most expect: as the documentation says, tokens whose mask is 0 are not attended to, with either implementation of
#   attention, so their pixels cannot change the outputs of other tokens.
# Observed: with "sdpa", which is the default, masked tokens are attended to as before. The mask is a boolean there and
#   is added to the biases, so that it raises the scores of the other tokens by 1. With "eager", or in a model without
#   relative biases, masked tokens are blocked.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from transformers import BeitConfig, BeitModel

image = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
changed = image.clone()
changed[..., 12:, 12:] += 10  # the pixels of the last of 16 patches
mask = torch.ones(1, 17, dtype=torch.long)
mask[0, -1] = 0


@torch.no_grad()
def change(implementation, mask, **options):
    """Return how much the outputs of the other tokens change with the pixels of the last patch."""
    torch.manual_seed(0)
    config = BeitConfig(
        image_size=16,
        patch_size=4,
        hidden_size=16,
        intermediate_size=32,
        num_attention_heads=2,
        num_hidden_layers=1,
        layer_scale_init_value=1.0,
        attn_implementation=implementation,
        **options,
    )
    model = BeitModel(config, add_pooling_layer=False).eval()
    outputs = [model(x, attention_mask=mask).last_hidden_state[0, :-1] for x in (image, changed)]
    return (outputs[0] - outputs[1]).abs().max().item()


for options in ({}, {"use_relative_position_bias": True}, {"use_shared_relative_position_bias": True}):
    for implementation in ("eager", "sdpa"):
        masked = change(implementation, mask, **options)
        unmasked = change(implementation, None, **options)
        print(f"{implementation}, {options or 'no relative bias'}: the last patch changes the other tokens")
        print(f"  by {masked:.2g} if it is masked, by {unmasked:.2g} if not")
        blocked = implementation == "eager" or not options
        assert unmasked > 1e-4
        assert masked == 0 if blocked else masked > 1e-4
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
