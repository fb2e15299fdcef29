#!/usr/bin/env bash
# Subject: an integer mask of ones and zeros, such as a tokenizer's attention mask, in MLX's attention.
# On: mlx 0.32.4, on the CPU.
# Most expect: it is refused, as a mask is boolean or additive, or read as truth values: 0 blocks.
# Observed: it is added to the scores without a message, in mlx.core.fast.scaled_dot_product_attention and in
#   mlx.nn.MultiHeadAttention. A padded key loses only a factor e, whatever the scores are.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet 'mlx[cpu]==0.32.4' numpy
cat > "$folder/observe.py" <<'PYTHON'
import math

import mlx.core as mx
import mlx.nn as nn
import numpy as np

mx.set_default_device(mx.cpu)
TOKENS = 4
integer = mx.array([[1, 1, 1, 0]])  # one padded token
# All scores are 0 and the values are the identity: a row of the output holds the attention weights.
v = mx.eye(TOKENS)[None]
layer = nn.MultiHeadAttention(TOKENS, 1)
layer.query_proj.weight = mx.zeros((TOKENS, TOKENS))
layer.value_proj.weight = layer.out_proj.weight = mx.eye(TOKENS)
functions = {
    "scaled_dot_product_attention": lambda mask: mx.fast.scaled_dot_product_attention(
        0 * v[None], v[None], v[None], scale=1.0, mask=mask
    )[0],
    "MultiHeadAttention": lambda mask: layer(v, v, v, mask),
}
for name, function in functions.items():
    boolean = np.array(function(integer.astype(mx.bool_)))[0, 0]
    np.testing.assert_allclose(boolean, [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-6)
    added = np.array(function(integer))[0, 0]
    np.testing.assert_allclose(added, np.array([math.e, math.e, math.e, 1]) / (3 * math.e + 1), atol=1e-6)
    print(f"{name}: boolean mask {boolean.round(3)}, integer mask {added.round(3)}")
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
