#!/usr/bin/env bash
# Subject: a range that is unpacked into the arguments of a call, f(*range(1, 3)), under torch.compile.
# On: torch 2.15.0, with the backend "eager", so without any code generation.
# Most expect: f(1, 2), as in Python; if torch.compile could not follow it, an error or a graph break.
# Observed: the call becomes f(1, 3, 1): start, stop and step of the range take the place of its numbers. Where f
#   accepts them, the result is wrong without a message: another maximum, another shape, an image mirrored along
#   other axes. Elsewhere the error is puzzling, such as dimension 4 of 4 for w.flip(*range(2, w.ndim)). An unpacked
#   list is right, and so is a range in a tuple that is passed as one argument.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import logging

import torch

logging.disable()
w = torch.rand(3, 3, 3, 3)


def largest(x):
    return x.new_tensor(max(*range(1, 3)))


def shape(x):
    return x.new_zeros(*range(1, 3))


def mirrored(x):
    return x.flip(*range(2, 3))


def mirrored_kernel(x):
    return x.flip(*range(2, x.ndim))


def of_a_tuple(x):
    return x.flip(tuple(range(2, x.ndim)))


def of_a_list(x):
    return x.flip(*list(range(2, x.ndim)))


def compiled(function):
    """Return what the compiled function returns, or the error's text."""
    torch._dynamo.reset()
    try:
        return torch.compile(function, backend="eager", fullgraph=True)(w)
    except Exception as error:
        return str(error).splitlines()[0]


for function in (largest, shape):
    print(f"{function.__name__}: {function(w)}, compiled {compiled(function)}".replace("\n", ""))
assert largest(w) == 2 and compiled(largest) == 3
assert shape(w).shape == (1, 2) and compiled(shape).shape == (1, 3, 1)

found = compiled(mirrored)
print("mirrored along axis 2; compiled, along axes 2, 3 and 1:", torch.equal(found, w.flip(2, 3, 1)))
assert torch.equal(found, w.flip(2, 3, 1)) and not torch.equal(found, mirrored(w))

print("w.flip(*range(2, w.ndim)), compiled:", compiled(mirrored_kernel))
assert "got 4" in compiled(mirrored_kernel)
for function in (of_a_tuple, of_a_list):
    assert torch.equal(compiled(function), mirrored_kernel(w))
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
