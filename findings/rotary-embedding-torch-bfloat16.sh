#!/usr/bin/env bash
# Subject: rotary_embedding_torch.RotaryEmbedding with bfloat16 queries and keys, as under autocast.
# On: rotary-embedding-torch 0.9.1, torch 2.15.0.
# Most expect: positions and angles are computed in float32, as the module's frequencies are, so that scores of
#   constant queries and keys differ from those in float32 by rounding alone.
# Observed: the positions themselves are made in the dtype of the queries, and bfloat16 has no odd integers above 256.
#   From token 256 on, neighbours are zero or two positions apart, never one. Angles are cached: after a first call in
#   bfloat16, float32 calls of the module get the rounded positions, and after a first call in float32, bfloat16 calls
#   get the exact ones.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet rotary-embedding-torch==0.9.1 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from rotary_embedding_torch import RotaryEmbedding

DIM, TOKENS = 32, 400


def neighbour_scores(rotary, dtype):
    """Return the scores of constant queries with the next token's key, relative to those with their own key."""
    x = torch.ones(1, 1, TOKENS, DIM, dtype=dtype)
    rotated = rotary.rotate_queries_or_keys(x)[0, 0].double()
    scores = rotated @ rotated.mT
    return scores.diagonal(1) / scores.diagonal()[:-1]


def describe(name, scores):
    print(f"{name}: tokens 0, 1: {scores[0]:.3f}; 300, 301: {scores[300]:.3f}; 301, 302: {scores[301]:.3f}")


def is_rounded(scores, tolerance):
    """Return whether all tokens from 256 on are zero or two positions away from the next."""
    return all(min(abs(score - SAME), abs(score - TWO)) < tolerance for score in scores[256:].tolist())


angles = 10_000.0 ** (-torch.arange(0, DIM, 2) / DIM)
SAME, TWO = 1.0, (2 * angles).cos().mean().item()
exact = neighbour_scores(RotaryEmbedding(DIM), torch.float32)
describe("float32", exact)
assert exact.max() - exact.min() < 1e-4 and 0.94 < exact[0] < 0.97 and TWO < 0.87

rotary = RotaryEmbedding(DIM)
rounded = neighbour_scores(rotary, torch.bfloat16)
describe("bfloat16", rounded)
assert (rounded[:256] - exact[:256]).abs().max() < 0.02 and is_rounded(rounded, 0.02)

later = neighbour_scores(rotary, torch.float32)
describe("float32 after bfloat16, same module", later)
assert is_rounded(later, 1e-4)

rotary = RotaryEmbedding(DIM)
neighbour_scores(rotary, torch.float32)
mended = neighbour_scores(rotary, torch.bfloat16)
describe("bfloat16 after float32, same module", mended)
assert (mended - exact).abs().max() < 0.02
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
