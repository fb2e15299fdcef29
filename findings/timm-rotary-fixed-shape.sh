#!/usr/bin/env bash
# Subject: timm.layers.RotaryEmbedding and RotaryEmbeddingCat with feat_shape, called on a feature map of another shape.
# On: timm 1.0.31, torch 2.15.0.
# Most expect: forward(x) turns each channel by the position in x, as RotaryEmbeddingDinoV3 with the same arguments
#   does; a shape that does not fit feat_shape is refused or computed anew.
# Observed: x gets the positions of feat_shape in reading order. A map of 2 x 8 is rotated as one of 4 x 4, without a
#   message, and get_embed(shape=[2, 8]) returns the positions of 4 x 4 too.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet timm==1.0.31 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from timm.layers import RotaryEmbedding, RotaryEmbeddingCat, RotaryEmbeddingDinoV3

DIM = 64
torch.manual_seed(0)
wide = torch.rand(1, DIM, 2, 8)
square = wide.reshape(1, DIM, 4, 4)
for cls in (RotaryEmbedding, RotaryEmbeddingCat, RotaryEmbeddingDinoV3):
    free, fixed = cls(DIM), cls(DIM, feat_shape=[4, 4])
    gap = (fixed(wide) - free(wide)).abs().max().item()
    gap_to_square = (fixed(wide) - free(square).reshape(wide.shape)).abs().max().item()
    print(f"{cls.__name__} with feat_shape 4 x 4 on a map of 2 x 8: largest gap to the rotation")
    print(f"  of the map of 2 x 8 {gap:.2g}, of its 16 tokens as a map of 4 x 4 {gap_to_square:.2g}")
    if cls is RotaryEmbeddingDinoV3:
        assert gap < 1e-6
    else:
        assert gap > 0.1 and gap_to_square < 1e-6
    if cls is RotaryEmbeddingCat:
        assert torch.equal(fixed.get_embed([2, 8]), fixed.get_embed([4, 4]))
        assert not torch.equal(free.get_embed([2, 8]), free.get_embed([4, 4]))
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
