#!/usr/bin/env bash
# Subject: ONNX's Attention with a floating-point mask that holds the type's lowest number, as exporters write it, for a
#   query whose keys are all blocked (a row of padding).
# On: onnxruntime 1.32.0 and onnx 1.23.2 (reference evaluator), opset 24, on the CPU.
# Most expect: the mask is added to the scores, so finite scores give some average of the values. Zeros are for a row
#   of -inf only, as the operator's text says, and a slightly smaller mask makes no difference.
# Observed: ONNX Runtime gives zeros for the lowest number as for -inf, and the mean of the values for any number above
#   it. The reference evaluator and the same graph of MatMul, Add and Softmax give the mean for both.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet onnxruntime==1.32.0 onnx==1.23.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

make = helper.make_node
attention = [make("Attention", ["q", "k", "v", "mask"], ["y"], scale=1.0)]
decomposed = [
    make("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
    make("MatMul", ["q", "t"], ["products"]),
    make("Add", ["products", "mask"], ["scores"]),
    make("Softmax", ["scores"], ["weights"]),
    make("MatMul", ["weights", "v"], ["y"]),
]
q = np.ones((1, 1, 4, 4), np.float32)
v = np.eye(4, dtype=np.float32)[None, None]


def model(nodes):
    shapes = {"q": [1, 1, 4, 4], "k": [1, 1, 4, 4], "v": [1, 1, 4, 4], "mask": [4, 4]}
    inputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def row(run, number):
    mask = np.zeros((4, 4), np.float32)
    mask[1] = number
    y = run(None, {"q": q, "k": q, "v": v, "mask": mask})[0][0, 0]
    np.testing.assert_allclose(y[[0, 2, 3]], 0.25)
    return y[1]


lowest = np.finfo(np.float32).min
above = np.nextafter(lowest, np.float32(0))
runs = {
    "ONNX Runtime, Attention": onnxruntime.InferenceSession(model(attention).SerializeToString()).run,
    "ONNX Runtime, MatMul, Add, Softmax": onnxruntime.InferenceSession(model(decomposed).SerializeToString()).run,
    "reference evaluator, Attention": ReferenceEvaluator(model(attention)).run,
}
for name, run in runs.items():
    for number in (lowest, above):
        print(f"{name}, row of {number:.9g}: {row(run, number)}")
    zeros = name == "ONNX Runtime, Attention"
    np.testing.assert_allclose(row(run, lowest), 0 if zeros else 0.25)
    np.testing.assert_allclose(row(run, above), 0.25)
    if "Attention" in name:
        np.testing.assert_array_equal(row(run, -np.inf), 0)
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
