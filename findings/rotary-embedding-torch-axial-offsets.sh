#!/usr/bin/env bash
# Subject: RotaryEmbedding.get_axial_freqs(height, width, offsets=...) of rotary-embedding-torch.
# On: rotary-embedding-torch 0.9.1, torch 2.15.0.
# Most expect: each axis is shifted by its own offset, so that the angles of a crop of a larger grid are those of the
#   larger grid at its place.
# Observed: with the default freqs_for="lang", the angles of the first axis are cached without their offset, and the
#   second axis takes them if it is not longer: it gets the first axis's offset instead of its own. All later calls of
#   the module with offset 0 get the first offset too. With cache_if_possible=False or on a longer second axis the
#   offsets are honoured.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet rotary-embedding-torch==0.9.1 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from rotary_embedding_torch import RotaryEmbedding

DIM = 8  # channels per axis; the first pair of each axis turns by one radian per step
HEIGHT, WIDTH, OFFSETS = 4, 4, (2, 10)


def place(angles, row=0, column=0):
    """Return the position (y, x) that the angles encode at a row and a column."""
    return angles[row, column, 0].item(), angles[row, column, DIM].item()


exact = RotaryEmbedding(DIM, cache_if_possible=False)
whole = exact.get_axial_freqs(20, 20)[2:6, 10:14]
assert torch.allclose(exact.get_axial_freqs(HEIGHT, WIDTH, offsets=OFFSETS), whole)
print(f"offsets {OFFSETS}: place of the first token without cache {place(whole)}")

rotary = RotaryEmbedding(DIM)
cached = rotary.get_axial_freqs(HEIGHT, WIDTH, offsets=OFFSETS)
print(f"  with the default cache {place(cached)}")
assert place(whole) == (2, 10) and place(cached) == (2, 2)

later = rotary.get_axial_freqs(HEIGHT, WIDTH)
print(f"  then without offsets {place(later)}")
assert place(later) == (2, 2)
assert place(RotaryEmbedding(DIM).get_axial_freqs(HEIGHT, WIDTH)) == (0, 0)

wider = RotaryEmbedding(DIM).get_axial_freqs(HEIGHT, WIDTH + 1, offsets=OFFSETS)
print(f"  with the cache and one more column {place(wider)}")
assert place(wider) == (2, 10)
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
