#!/usr/bin/env bash
# Subject: the window of ONNX's operator Attention, new in opset 25, in OpenVINO.
# On: openvino 2026.4.1, onnx 1.23.2, onnxruntime 1.32.0, on the CPU.
# Most expect: OpenVINO refuses an opset or an attribute that it does not know, or honours it.
# Observed: it accepts the model and ignores left_window_size and right_window_size, without a message: each query
#   attends to all keys, or with is_causal to all earlier ones. ONNX Runtime and the reference honour the window.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet openvino==2026.4.1 onnx==1.23.2 onnxruntime==1.32.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import numpy as np
import onnxruntime
import openvino
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

TOKENS = 5
# without scores, and with the identity as values, the output is the attention map
q = np.zeros((1, 1, TOKENS, TOKENS), np.float32)
feeds = {"q": q, "k": q, "v": np.eye(TOKENS, dtype=np.float32)[None, None]}


def model_of(**attributes):
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, of.shape) for name, of in feeds.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, q.shape)
    graph = helper.make_graph([helper.make_node("Attention", [*feeds], ["y"], **attributes)], "graph", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


def keys(attention_map):
    """Return how many keys each query attends to."""
    return (attention_map[0, 0] > 1e-6).sum(axis=1).tolist()


def in_openvino(model):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU")
    return keys(compiled([*feeds.values()])[0])


def in_onnxruntime(model):
    return keys(onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0])


def in_reference(model):
    return keys(ReferenceEvaluator(model).run(None, feeds)[0])


causal = [1, 2, 3, 4, 5]
cases = {
    "is_causal": ({"is_causal": 1}, causal, causal),
    "a key to the left": ({"is_causal": 1, "left_window_size": 1}, [1, 2, 2, 2, 2], causal),
    "a key to both sides": ({"left_window_size": 1, "right_window_size": 1}, [2, 3, 3, 3, 2], [TOKENS] * TOKENS),
}
for name, (attributes, wanted, observed) in cases.items():
    model = model_of(**attributes)
    print(f"{name}: keys per query {in_reference(model)}, in OpenVINO {in_openvino(model)}")
    assert in_reference(model) == in_onnxruntime(model) == wanted
    assert in_openvino(model) == observed
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
