#!/usr/bin/env bash
# Subject: keras_hub.layers.RotaryEmbedding with rope_type="dynamic".
# On: keras-hub 0.32.0, keras 3.15.1, jax 0.10.2, on the CPU.
# Most expect: dynamic NTK scaling, as under this name elsewhere: it enlarges the base, so that the highest frequency
#   stays as it is and the lowest is divided by scaling_factor, and it depends on the sequence length.
# Observed: all frequencies are divided by one number, scaling_factor ** (d / (d - 2)) for d channels, at any length.
#   It is rope_type="linear" with a larger factor.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet keras-hub==0.32.0 keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import numpy as np
from keras_hub.layers import RotaryEmbedding

DIM, FACTOR = 8, 4.0


def frequencies(tokens, **options):
    """Return the angles by which the layer turns the pairs of channels per token, in radians."""
    halves = DIM // 2
    x = np.zeros((halves, tokens, DIM), dtype=np.float32)
    x[range(halves), :, range(halves)] = 1
    rotated = np.asarray(RotaryEmbedding(**options)(x), dtype=np.float64)[range(halves), 1]
    return np.arctan2(rotated[range(halves), np.arange(halves) + halves], rotated[range(halves), range(halves)])


plain = frequencies(16)
dynamic = frequencies(16, rope_type="dynamic", scaling_factor=FACTOR)
long = frequencies(8192, rope_type="dynamic", scaling_factor=FACTOR)
linear = frequencies(16, rope_type="linear", scaling_factor=FACTOR ** (DIM / (DIM - 2)))
ntk = (10_000.0 * FACTOR ** (DIM / (DIM - 2))) ** (-np.arange(0, DIM, 2) / DIM)
print(f"frequencies divided by those without scaling, factor {FACTOR}, from the highest to the lowest:")
print(f"  NTK scaling {(ntk / plain).round(3)}")
print(f"  dynamic, 16 tokens {(dynamic / plain).round(3)}, 8192 tokens {(long / plain).round(3)}")
print(f"  linear with factor {FACTOR ** (DIM / (DIM - 2)):.2f} {(linear / plain).round(3)}")
np.testing.assert_allclose(dynamic, linear, rtol=1e-4)
np.testing.assert_allclose(dynamic, long, rtol=1e-4)
assert ntk[0] == 1 and abs(dynamic[0] - FACTOR ** (-DIM / (DIM - 2))) < 1e-4
PYTHON
KERAS_BACKEND=jax TF_CPP_MIN_LOG_LEVEL=3 "$folder/venv/bin/python" "$folder/observe.py"
