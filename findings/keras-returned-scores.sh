#!/usr/bin/env bash
# Subject: return_attention_scores of keras.layers.MultiHeadAttention on an input with padding (Embedding, mask_zero).
# On: keras 3.15.1 (backend jax 0.10.2).
# Most expect: the argument adds a second output and leaves the first one as it is.
# Observed: it changes the outputs at padded positions, whose keys are all blocked. Without scores, heads return the
#   mean of all values there, padding included; with scores, zeros. A positive dropout rate gives zeros as well, although
#   dropout does nothing at inference.
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
SIZE = 8
tokens = np.array([[3, 1, 2, 0, 0]])
embedding = keras.layers.Embedding(5, SIZE, mask_zero=True)


def output(dropout, **settings):
    x = embedding(tokens)
    layer = keras.layers.MultiHeadAttention(1, SIZE, use_bias=False, dropout=dropout)
    layer.build(x.shape, x.shape)
    layer.set_weights([np.eye(SIZE).reshape(weight.shape) for weight in layer.weights])
    result = layer(x, x, training=False, **settings)
    return np.asarray(result[0] if settings else result)[0]


plain = output(0)
mean = np.asarray(embedding(tokens))[0].mean(0)
assert np.abs(mean).max() > 0.01
for case, other in {
    "dropout 0, with scores": output(0, return_attention_scores=True),
    "dropout 0.1, without scores": output(0.1),
    "dropout 0.1, with scores": output(0.1, return_attention_scores=True),
}.items():
    np.testing.assert_allclose(other[:3], plain[:3], atol=1e-6)
    assert (other[3:] == 0).all()
    print(f"{case}: zeros at padded positions")
np.testing.assert_allclose(plain[3:], [mean, mean], atol=1e-6)
print("dropout 0, without scores: the mean of all values at padded positions")
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
