#!/usr/bin/env bash
# Subject: flax.nnx.MultiHeadAttention in bfloat16 in evaluation mode.
# On: flax 0.12.8, jax 0.10.2.
# Most expect: with deterministic=True the dropout rate makes no difference, and sow_weights only stores the weights.
# Observed: both change the output. Without dropout and sowing, the layer calls jax.nn.dot_product_attention, which
#   computes scores and softmax in float32. A positive dropout rate or sow_weights=True computes them in bfloat16,
#   which more than doubles the error of the output. In float32 the outputs agree.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import jax
import jax.numpy as jnp
from flax import nnx

x = 3 * jax.random.normal(jax.random.key(0), (1, 64, 32))
x = x.astype(jnp.bfloat16)


def output(dtype, dropout_rate=0.0, **settings):
    layer = nnx.MultiHeadAttention(
        2, 32, dropout_rate=dropout_rate, deterministic=True, decode=False, dtype=dtype, rngs=nnx.Rngs(0)
    )
    # Queries, keys, values and output are the input, so that only attention rounds.
    for linear in (layer.query, layer.key, layer.value, layer.out):
        linear.kernel[...] = jnp.eye(32).reshape(linear.kernel.shape)
    return layer(x.astype(dtype), **settings).astype(jnp.float32)


exact = output(jnp.float32)
cases = {
    "dropout rate 0": {},
    "dropout rate 0.1": {"dropout_rate": 0.1},
    "dropout rate 0, sow_weights": {"sow_weights": True},
}
errors = []
for case, settings in cases.items():
    assert jnp.allclose(output(jnp.float32, **settings), exact, atol=1e-5)
    errors.append(float(jnp.abs(output(jnp.bfloat16, **settings) - exact).mean()))
    print(f"{case}: mean error in bfloat16 {errors[-1]:.5f}")
assert errors[1] == errors[2] > 2 * errors[0]
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
