#!/usr/bin/env bash
# Subject: two equinox.nn.RotaryPositionalEmbedding with different theta in one program.
# On: equinox 0.13.8, jax 0.10.2, on the CPU.
# Most expect: each turns queries and keys by the frequencies of its own theta, in any order of calls.
# Observed: modules of the same size and dtype share one table of cosines and sines, which forgets theta. The first
#   call, or the call with the longest sequence so far, decides the frequencies of all: the second module turns by
#   theta of the first, and one longer sequence in it changes what the first computes for the same input.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet equinox==0.13.8 jax==0.10.2 jaxlib==0.10.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import equinox as eqx
import jax.numpy as jnp
import numpy as np

DIM, TOKENS = 4, 16


def slow_angle(rotary, tokens=TOKENS):
    """Return by how much the rotary embedding turns its slowest pair of channels per token, in radians."""
    x = jnp.zeros((tokens, DIM)).at[:, DIM // 2 - 1].set(1.0)
    rotated = np.asarray(rotary(x), dtype=np.float64)[1]
    return np.arctan2(rotated[DIM - 1], rotated[DIM // 2 - 1])


far, near = eqx.nn.RotaryPositionalEmbedding(DIM, theta=10_000.0), eqx.nn.RotaryPositionalEmbedding(DIM, theta=100.0)
expected = {"far": 10_000.0**-0.5, "near": 100.0**-0.5}
print(f"expected angle per token: theta 10000 {expected['far']:.2f}, theta 100 {expected['near']:.2f}")

angles = slow_angle(far), slow_angle(near)
print(f"theta 10000 called first: theta 10000 {angles[0]:.2f}, theta 100 {angles[1]:.2f}")
np.testing.assert_allclose(angles, [expected["far"], expected["far"]], rtol=1e-4)

longer = slow_angle(near, TOKENS + 1)
again = slow_angle(far)
print(f"then theta 100 with one more token: {longer:.2f}, and theta 10000 with the same input as before: {again:.2f}")
np.testing.assert_allclose([longer, again], [expected["near"], expected["near"]], rtol=1e-4)

eqx.clear_caches()
alone = slow_angle(far)
print(f"theta 10000 after equinox.clear_caches(): {alone:.2f}")
np.testing.assert_allclose(alone, expected["far"], rtol=1e-4)
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
