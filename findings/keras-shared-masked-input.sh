#!/usr/bin/env bash
# Subject: several keras.layers.MultiHeadAttention that read one input with padding (Embedding with mask_zero), as the
#   cross-attention layers of a decoder read the encoder's output.
# On: keras 3.15.1 with jax 0.10.2 and with tensorflow-cpu 2.21.0.
# Most expect: each layer ignores the padding.
# Observed: only the layer that runs first does. It deletes the mask from the tensor, so the next layer attends to the
#   padding as well: when layers are called directly, in a functional model and in its predict.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 tensorflow-cpu==2.21.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import keras
import numpy as np

SIZE = 8
tokens = np.array([[3, 1, 2, 0, 0]])
queries = np.ones((1, 1, SIZE))
embedding = keras.layers.Embedding(5, SIZE, mask_zero=True)


def attention():
    layer = keras.layers.MultiHeadAttention(1, SIZE, use_bias=False)
    layer.build(queries.shape, (1, 5, SIZE))
    # Queries of zeros give all keys that are not blocked the same weight.
    matrices = np.zeros((SIZE, SIZE)), *[np.eye(SIZE)] * 3
    layer.set_weights([m.reshape(w.shape) for m, w in zip(matrices, layer.weights)])
    return layer


def decoder(x, y):
    first = layers[0](y, x)
    return first, layers[1](first, x)


layers = [attention(), attention()]
inputs = keras.Input((5,)), keras.Input((None, SIZE))
x = embedding(inputs[0])
model = keras.Model(inputs, decoder(x, inputs[1]))
cases = {
    "layers": decoder(embedding(tokens), queries),
    "functional model": model([tokens, queries]),
    "predict": model.predict([tokens, queries], verbose=0),
}
values = keras.ops.convert_to_numpy(embedding(tokens))[0]
for case, outputs in cases.items():
    first, second = (keras.ops.convert_to_numpy(output)[0, 0] for output in outputs)
    np.testing.assert_allclose(first, values[:3].mean(0), atol=1e-6)
    np.testing.assert_allclose(second, values.mean(0), atol=1e-6)
    assert not np.allclose(first, second, atol=1e-3)
    print(f"{keras.backend.backend()}, {case}: the first layer averages 3 tokens, the second one all 5")
PYTHON
for backend in jax tensorflow; do
    KERAS_BACKEND=$backend "$folder/venv/bin/python" "$folder/observe.py"
done
