#!/usr/bin/env bash
# Subject: key_padding_mask of ONNX Runtime's operator com.microsoft.MultiHeadAttention.
# On: onnxruntime 1.32.0, on the CPU.
# Most expect: padded keys get no weight. A query whose keys are all blocked gets zeros, the mean of all values or NaN.
# Observed: padding only adds -10000 to the scores. In a sequence of nothing but padding, the mask has no effect: the
#   weights are those without a mask. A query whose tokens an attention_bias blocks (-inf or the lowest number)
#   gives all its weight to the padding.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet onnxruntime==1.32.0 onnx==1.23.2 numpy
cat > "$folder/observe.py" <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

TOKENS = 4
x = np.eye(TOKENS, dtype=np.float32)[None]
types = {"x": TensorProto.FLOAT, "padding": TensorProto.INT32, "attention_bias": TensorProto.FLOAT}


def weights(**masks):
    """Return the attention map: the values are the identity."""
    feeds = {"x": x, **masks}
    names = ["x", "x", "x", "", *(name if name in masks else "" for name in ("padding", "attention_bias"))]
    node = helper.make_node("MultiHeadAttention", names, ["y"], num_heads=1, domain="com.microsoft")
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0][0]


plain = weights()
padding = np.array([[1, 1, 0, 0]], np.int32)  # 1: a token, 0: padding
alone = weights(padding=padding)
assert (alone[:, 2:] == 0).all()
print("two tokens and two padded positions:", *alone.round(2), sep="\n")
for blocked in (-np.inf, np.finfo(np.float32).min):
    bias = np.zeros((1, 1, TOKENS, TOKENS), np.float32)
    bias[..., 0, :2] = blocked
    both = weights(padding=padding, attention_bias=bias)
    assert (both[0, :2] == 0).all()
    np.testing.assert_allclose(both[0, 2:], 0.5)
    np.testing.assert_allclose(both[1:], alone[1:])
    print(f"and a bias of {blocked:.3g} for the tokens in the first row: {both[0].round(2)}")
np.testing.assert_allclose(weights(padding=0 * padding), plain, atol=2e-3)
assert np.ptp(plain[0]) > 0.1
print("four padded positions: the weights without a mask,", plain[0].round(2))
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
