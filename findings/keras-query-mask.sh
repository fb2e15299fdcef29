#!/usr/bin/env bash
# Subject: the argument query_mask of keras.layers.MultiHeadAttention.
# On: keras 3.15.1 (backend jax 0.10.2).
# Most expect: query_mask, value_mask and key_mask all count; each is combined with the attention mask.
# Observed: query_mask is ignored without a message, while value_mask and key_mask count. The same mask attached to the
#   query (by Embedding or Masking) blocks all keys of the masked queries, whose attention weights are then 0.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import os

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np

keras.utils.set_random_seed(0)
layer = keras.layers.MultiHeadAttention(2, 4)
x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
mask = np.array([[True, True, True, False, False]])


def weights(query, **masks):
    return np.asarray(layer(query, x, x, return_attention_scores=True, **masks)[1])


plain = weights(x)
np.testing.assert_array_equal(weights(x, query_mask=mask), plain)
print("query_mask: the weights are those without a mask")
for name in ("value_mask", "key_mask"):
    assert (weights(x, **{name: mask})[..., 3:] == 0).all()
    print(f"{name}: masked keys have the weight 0")
masked = keras.layers.Masking()(x * mask[..., None])
of_masked = weights(masked)
assert (of_masked[:, :, 3:] == 0).all()
np.testing.assert_allclose(of_masked[:, :, :3], plain[:, :, :3], atol=1e-6)
print("mask attached to the query: masked queries have only weights of 0")
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
