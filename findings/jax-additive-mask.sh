#!/usr/bin/env bash
# Subject: an additive mask (0 and -inf) in the attention layers of Flax, Haiku, Equinox and Keras.
# On: jax 0.10.2, flax 0.12.8, dm-haiku 0.0.17, equinox 0.13.8, keras 3.15.1 (backend jax).
# Most expect: a floating-point mask is added to the scores, as in torch and MLX, or refused, as by
#   jax.nn.dot_product_attention.
# Observed: all four layers take it as truth values without a message. -inf is true and 0 is false, so a causal mask
#   blocks just the keys that it should let through: each token sees only its future, and the last one, which has none,
#   sees all tokens.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet jax==0.10.2 jaxlib==0.10.2 flax==0.12.8 dm-haiku==0.0.17 \
    equinox==0.13.8 keras==3.15.1 numpy
cat > "$folder/observe.py" <<'PYTHON'
import os

os.environ["KERAS_BACKEND"] = "jax"
import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import keras
import numpy as np
from flax import linen, nnx

SIZE = 4
x = jnp.eye(SIZE)[None]
causal = jnp.tri(SIZE, dtype=bool)
additive = jnp.where(causal, 0, -jnp.inf)
# The queries are zero, and values and output are the identity: a layer returns its attention map.
kernels = {"query": 0 * x[0], "key": x[0], "value": x[0], "out": x[0]}


def flax_nnx(mask):
    layer = nnx.MultiHeadAttention(1, SIZE, decode=False, rngs=nnx.Rngs(0))
    for name, kernel in kernels.items():
        parameter = getattr(layer, name).kernel
        parameter[...] = kernel.reshape(parameter.shape)
    return layer(x, mask=mask[None, None])


def flax_linen(mask):
    layer = linen.MultiHeadDotProductAttention(1, use_bias=False)
    parameters = layer.init(jax.random.key(0), x)["params"]
    for name, kernel in kernels.items():
        parameters[name]["kernel"] = kernel.reshape(parameters[name]["kernel"].shape)
    return layer.apply({"params": parameters}, x, mask=mask[None, None])


def haiku(mask):
    layer = hk.transform(
        lambda x: hk.MultiHeadAttention(1, SIZE, w_init=hk.initializers.Identity())(0 * x, x, x, mask[None, None])
    )
    return layer.apply(layer.init(jax.random.key(0), x), None, x)


def equinox(mask):
    layer = eqx.nn.MultiheadAttention(1, SIZE, key=jax.random.key(0))
    weights = lambda layer: [
        getattr(layer, f"{name}_proj").weight for name in ("query", "key", "value", "output")
    ]
    layer = eqx.tree_at(weights, layer, list(kernels.values()))
    return layer(x[0], x[0], x[0], mask)[None]


def keras_layer(mask):
    layer = keras.layers.MultiHeadAttention(1, SIZE, use_bias=False)
    layer.build(x.shape, x.shape, x.shape)
    layer.set_weights([k.reshape(w.shape) for k, w in zip(kernels.values(), layer.weights)])
    return layer(x, x, attention_mask=mask[None])


expected = np.tri(SIZE) / np.tri(SIZE).sum(-1, keepdims=True)
future = 1 - np.tri(SIZE)
future[-1] = 1
inverted = future / future.sum(-1, keepdims=True)
print("attention map with the boolean causal mask:", *expected.round(2), sep="\n")
print("attention map with the additive causal mask:", *inverted.round(2), sep="\n")
for layer in (flax_nnx, flax_linen, haiku, equinox, keras_layer):
    np.testing.assert_allclose(layer(causal)[0], expected, atol=1e-6)
    np.testing.assert_allclose(layer(additive)[0], inverted, atol=1e-6)
    print(f"{layer.__name__}: these two maps")
try:
    jax.nn.dot_product_attention(x[:, :, None], x[:, :, None], x[:, :, None], mask=additive[None, None])
except ValueError as error:
    print(f"jax.nn.dot_product_attention: {error}")
else:
    raise AssertionError("jax.nn.dot_product_attention takes the mask")
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
