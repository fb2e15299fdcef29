#!/usr/bin/env bash
# Subject: the dynamic position bias of CrossFormer in vit-pytorch.
# On: vit-pytorch 1.26.14, torch 2.15.0.
# Most expect: a small network computes the bias of two tokens from their offset, as in the paper.
# Observed: from the offset of no pair at all. The network's table has 2 w + 1 columns for windows of w x w, and is
#   read as if it had 2 w - 1. Each offset has a bias of its own, but for w = 7 a token's bias on itself is computed
#   from (-2, 2), and that of neighbours in a row from offsets that can be 14 columns apart.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet vit-pytorch==1.26.14 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from vit_pytorch.crossformer import Attention

WINDOW = 7


class Recorder(torch.nn.Module):
    """Stands in for the network: keeps the offsets that it is given."""

    def forward(self, offsets):
        self.offsets = offsets.long()
        return offsets.new_zeros(len(offsets))


attention = Attention(32, "short", WINDOW)
attention.dpb = Recorder()
attention(torch.rand(1, 32, WINDOW, WINDOW))
used = attention.dpb.offsets[attention.rel_pos_indices]

place = torch.cartesian_prod(torch.arange(WINDOW), torch.arange(WINDOW))
offset = place[:, None] - place
right = (used == offset).all(dim=-1)
print(f"pairs whose bias is computed from their offset: {int(right.sum())} of {right.numel()}")
print("a token and itself:", used[0, 0].tolist())
assert not right.any() and used[0, 0].tolist() == [-2, 2]

of = {}
for true, found in zip(offset.flatten(0, 1).tolist(), used.flatten(0, 1).tolist(), strict=True):
    of.setdefault(tuple(true), set()).add(tuple(found))
assert all(len(found) == 1 for found in of.values())
apart = max(
    abs(next(iter(of[row, column]))[1] - next(iter(of[row, column + 1]))[1])
    for row, column in of
    if (row, column + 1) in of
)
print("columns between the offsets used for neighbours in a row: up to", apart)
assert apart == 2 * WINDOW
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
