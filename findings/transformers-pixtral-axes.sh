#!/usr/bin/env bash
# Subject: the two-dimensional rotary embedding of transformers' PixtralVisionModel.
# On: transformers 5.24.0, torch 2.15.0.
# Most expect: rows and columns turn by the same frequencies, as its docstring says and as they do in Qwen2-VL and
#   SAM 3. If all channels of queries and keys are equal, a key k patches below then scores as a key k patches to the
#   right.
# Observed: rows turn by the even frequencies of a one-dimensional encoding and columns by the odd ones. Columns turn
#   slower by a factor theta ** (2 / head_dim), 1.33 with the defaults, so that the two scores differ.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from transformers import PixtralVisionConfig, Sam3ViTConfig
from transformers.models.pixtral.modeling_pixtral import PixtralAttention, PixtralVisionRotaryEmbedding
from transformers.models.sam3.modeling_sam3 import Sam3ViTRotaryEmbedding

SIDE, DIM = 8, 64
sizes = {"hidden_size": DIM, "num_attention_heads": 1, "image_size": SIDE * 16, "patch_size": 16}
config = PixtralVisionConfig(**sizes, attn_implementation="eager")
layer = PixtralAttention(config).eval()
rotary = PixtralVisionRotaryEmbedding(config)
places = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE))  # (y, x), row by row


def rounded(values):
    return [round(value, 2) for value in values.tolist()]


def frequencies(embedding, places):
    """Return the distinct angles, in descending order, by which the embedding turns at the second of two places."""
    cos, sin = embedding(torch.empty(1), places)
    angles = torch.atan2(sin, cos).reshape(2, -1)[1]
    return angles[angles > 0].unique().flip(0)


@torch.no_grad()
def scores_of_first_patch():
    """Return the scores of the first query with all keys, less that with its own, all channels being equal."""
    for projection in (layer.q_proj, layer.k_proj):
        projection.weight.copy_(torch.eye(DIM))
    x = torch.ones(1, SIDE**2, DIM)
    mask = torch.zeros(1, 1, SIDE**2, SIDE**2)
    attention = layer(x, attention_mask=mask, position_embeddings=rotary(x, places))[1][0, 0, 0].double()
    return (attention.log() - attention[0].log()).reshape(SIDE, SIDE)


down, right = torch.tensor([[0, 0], [1, 0]]), torch.tensor([[0, 0], [0, 1]])
print("angles of one step, in radians, the three largest:")
rows, columns = frequencies(rotary, down), frequencies(rotary, right)
print(f"  Pixtral: rows {rounded(rows[:3])}, columns {rounded(columns[:3])}")
sam3 = Sam3ViTRotaryEmbedding(Sam3ViTConfig(hidden_size=DIM, num_attention_heads=1))
sam3_rows, sam3_columns = frequencies(sam3, down), frequencies(sam3, right)
print(f"  SAM 3: rows {rounded(sam3_rows[:3])}, columns {rounded(sam3_columns[:3])}")
scores = scores_of_first_patch()
print(f"scores of keys 1, 2, 3 patches below {rounded(scores[1:4, 0])}, to the right {rounded(scores[0, 1:4])}")
assert torch.equal(sam3_rows, sam3_columns)
assert torch.allclose(rows / columns, torch.tensor(10_000.0 ** (2 / DIM)), rtol=1e-3)
assert (scores[1:4, 0] - scores[0, 1:4]).abs().min() > 0.05
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
