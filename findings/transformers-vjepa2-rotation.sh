#!/usr/bin/env bash
# Subject: the rotary attention of transformers' VJEPA2Model.
# On: transformers 5.24.0, torch 2.15.0.
# Most expect: as with any rotary encoding, queries and keys are rotated: they keep their length, and scores of constant
#   queries and keys depend on the offset between two tokens alone.
# Observed: neither holds. The two channels of a pair are neighbours, but their angles are those of two different
#   frequencies, so that the pair is not rotated. Scores of one offset vary nearly as much as all scores do.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from transformers import VJEPA2Config
from transformers.models.vjepa2.modeling_vjepa2 import VJEPA2RopeAttention

SIDE, DIM = 8, 64
config = VJEPA2Config(
    crop_size=SIDE * 16, frames_per_clip=2, hidden_size=DIM, num_attention_heads=1, attn_implementation="eager"
)
torch.manual_seed(0)
layer = VJEPA2RopeAttention(config, DIM, 1).eval()


@torch.no_grad()
def attention_map():
    """Return the attention of one head with constant queries and keys on one frame of SIDE x SIDE patches."""
    x = torch.ones(1, SIDE**2, DIM)
    layer.query.weight.copy_(torch.randn(DIM, DIM) / DIM**0.5)
    layer.key.weight.copy_(layer.query.weight)
    layer.query.bias.zero_()
    layer.key.bias.zero_()
    return layer(x)[1][0, 0].double()


@torch.no_grad()
def stretches():
    """Return the largest and smallest factor by which the layer's rotation changes the length of a query."""
    queries = torch.eye(DIM)[:, None, None].expand(DIM, 1, SIDE**2, DIM)
    ids = layer.get_position_ids(torch.empty(1, SIDE**2, DIM))
    factors = torch.linalg.svdvals(layer.apply_rotary_embeddings(queries, ids)[:, 0].transpose(0, 1))
    return factors.max().item(), factors.min().item()


scores = attention_map().log()
scores = scores - scores.diagonal()[:, None]
y, x = torch.arange(SIDE**2) // SIDE, torch.arange(SIDE**2) % SIDE
offset = (y - y[:, None]) * 2 * SIDE + x - x[:, None]
groups = [scores[offset == d] for d in offset.unique()]
within = max((group.max() - group.min()).item() for group in groups)
total = (scores.max() - scores.min()).item()
largest, smallest = stretches()
print(f"scores less the query's own: range {total:.2f}; at one and the same offset they differ by up to {within:.2f}")
print(f"the length of a query changes by a factor of {smallest:.2f} to {largest:.2f}")
assert within > 0.3 * total and smallest < 0.5 and largest > 1.2
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
