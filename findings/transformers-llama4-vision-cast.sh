#!/usr/bin/env bash
# Subject: transformers' Llama4VisionModel after .to(dtype).
# On: transformers 5.24.0, torch 2.15.0.
# Most expect: model.to(torch.bfloat16) and model.bfloat16() do the same, and .to(torch.float64) gives a more precise
#   copy of the model.
# Observed: .to(dtype) also casts the complex rotary factors, to real numbers: only the cosines are left. Queries and
#   keys are then scaled by cosines instead of rotated, so that scores of constant queries and keys no longer depend on
#   the offset alone. PyTorch only warns of a discarded imaginary part. .bfloat16() and .double() leave the factors.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import copy
import warnings

import torch
from transformers import Llama4VisionConfig, Llama4VisionModel

SIDE, DIM = 4, 32
config = Llama4VisionConfig(
    hidden_size=DIM,
    num_attention_heads=1,
    num_hidden_layers=1,
    intermediate_size=4 * DIM,
    image_size=SIDE * 8,
    patch_size=8,
    attn_implementation="eager",
)
torch.manual_seed(0)
original = Llama4VisionModel(config).eval()


@torch.no_grad()
def spread(model):
    """Return how much scores of patches at the same offset differ at most, with constant queries and keys."""
    attention = model.model.layers[0].self_attn
    dtype = attention.q_proj.weight.dtype
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight.copy_(torch.eye(DIM))
        projection.bias.zero_()
    x = torch.ones(1, SIDE**2 + 1, DIM, dtype=dtype)
    weights = attention(x, freqs_ci=model.rotary_embedding(x), attention_mask=None)[1]
    scores = weights[0, 0, : SIDE**2, : SIDE**2].double().log()
    scores = scores - scores.diagonal()[:, None]
    y, x = torch.arange(SIDE**2) // SIDE, torch.arange(SIDE**2) % SIDE
    offset = (y - y[:, None]) * 2 * SIDE + x - x[:, None]
    groups = [scores[offset == d] for d in offset.unique()]
    return max((group.max() - group.min()).item() for group in groups)


warnings.simplefilter("ignore")
casts = {
    "float32": lambda model: model,
    ".double()": lambda model: model.double(),
    ".to(torch.float64)": lambda model: model.to(torch.float64),
    ".bfloat16()": lambda model: model.bfloat16(),
    ".to(torch.bfloat16)": lambda model: model.to(torch.bfloat16),
}
for name, cast in casts.items():
    model = cast(copy.deepcopy(original))
    differ, factors = spread(model), model.rotary_embedding.freqs_ci.dtype
    print(f"{name}: rotary factors in {factors}, scores of the same offset differ by up to {differ:.2g}")
    assert differ > 0.5 if ".to" in name else differ < 0.1
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
