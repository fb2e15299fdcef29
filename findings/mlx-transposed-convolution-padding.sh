#!/usr/bin/env bash
# Subject: padding of MLX's transposed convolutions that is larger than the kernel minus one.
# On: mlx 0.32.4, on the CPU.
# Most expect: padding p leaves out the first p and the last p values of the result without padding, as in torch. With
#   stride 1, or up to the kernel minus one, it does.
# Observed: with a larger stride, each further unit of padding leaves out as many values as the stride, at both ends.
#   There is no message, but the result is shorter: for a kernel of 2, a stride of 2 and a padding of 3, 4 values
#   instead of 8.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet 'mlx[cpu]==0.32.4' numpy
cat > "$folder/observe.py" <<'PYTHON'
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
LENGTH = 7
x = mx.arange(1, LENGTH + 1).reshape(1, LENGTH, 1).astype(mx.float32)


def transposed(kernel, stride, padding):
    weight = mx.arange(1, kernel + 1).reshape(1, kernel, 1).astype(mx.float32)
    return np.array(mx.conv_transpose1d(x, weight, stride=stride, padding=padding))[0, :, 0]


def without_ends(values, padding):
    return values[padding : len(values) - padding]


for kernel in (1, 2, 3):
    for stride in (1, 2, 3):
        whole = transposed(kernel, stride, 0)
        assert len(whole) == (LENGTH - 1) * stride + kernel
        for padding in (0, 1, 2, 3):
            found, wanted = transposed(kernel, stride, padding), without_ends(whole, padding)
            excess = max(0, padding - (kernel - 1))
            lost = without_ends(wanted, excess * (stride - 1))
            np.testing.assert_array_equal(found, lost)
            if len(found) != len(wanted):
                print(f"kernel {kernel}, stride {stride}, padding {padding}: {len(found)} values, not {len(wanted)}")
assert len(transposed(2, 2, 3)) == 4 and len(without_ends(transposed(2, 2, 0), 3)) == 8
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
