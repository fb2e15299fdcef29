#!/usr/bin/env bash
# Subject: dropout of attention weights in Flax (linen and nnx).
# On: flax 0.12.8, jax 0.10.2.
# Most expect: dropout draws each attention weight on its own, as in torch and as Flax's own Dropout layer does.
# Observed: by default (broadcast_dropout=True) one query-key mask is drawn for all examples of the batch and, beyond
#   the docstring's "along batch dims", for all heads. Equal examples get equal outputs. broadcast_dropout=False
#   draws each weight.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import jax
import jax.numpy as jnp
from flax import linen, nnx

BATCH, TOKENS, HEADS = 3, 6, 2
key = jax.random.key(0)
x = jnp.broadcast_to(jax.random.normal(key, (1, TOKENS, 8)), (BATCH, TOKENS, 8))


def of_nnx(**settings):
    layer = nnx.MultiHeadAttention(
        HEADS, 8, dropout_rate=0.5, deterministic=False, decode=False, rngs=nnx.Rngs(0), **settings
    )
    return layer(x)


def of_linen(**settings):
    layer = linen.MultiHeadDotProductAttention(HEADS, dropout_rate=0.5, deterministic=False, **settings)
    return layer.apply(layer.init(key, x), x, rngs={"dropout": key})


def equal(outputs):
    return bool((outputs == outputs[:1]).all())


for layer in (of_nnx, of_linen):
    for settings in ({}, {"broadcast_dropout": False}):
        same = equal(layer(**settings))
        print(f"{layer.__name__[3:]}, {settings}: equal examples get {'equal' if same else 'different'} outputs")
        assert same == (not settings)
assert not equal(nnx.Dropout(0.5, rngs=nnx.Rngs(0))(x))
print("nnx.Dropout: equal examples get different outputs")

query = jnp.zeros((1, TOKENS, HEADS, 4))
identity = jnp.broadcast_to(jnp.eye(TOKENS)[None, :, None], (1, TOKENS, HEADS, TOKENS))
for function in (nnx.dot_product_attention, linen.dot_product_attention):
    weights = function(query, query, identity, dropout_rng=key, dropout_rate=0.5)
    assert (weights[:, :, 0] == weights[:, :, 1]).all() and (weights == 0).any()
print("and both heads lose the same weights")
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
