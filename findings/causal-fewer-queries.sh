#!/usr/bin/env bash
# Subject: what causal attention means if there are fewer queries than keys, or more.
# On: torch 2.15.0, x-transformers 2.31.10, jax 0.10.2, mlx 0.32.4, keras 3.15.1, onnxruntime 1.32.0, openvino 2026.4.1,
#   on the CPU.
# Most expect: one meaning. With a cache of earlier keys, the last query sees all keys.
# Observed: two. In torch, JAX, Keras, ONNX Runtime and OpenVINO the first query sees only the first key; in MLX and
#   x-transformers the last query sees all keys. There, with more queries than keys, those before the first key get the
#   mean of all values, although all are in their future; with flash=True, x-transformers then takes the other meaning.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 x-transformers==2.31.10 jax==0.10.2 \
    jaxlib==0.10.2 'mlx[cpu]==0.32.4' keras==3.15.1 onnxruntime==1.32.0 onnx==1.23.2 openvino==2026.4.1 numpy
cat > "$folder/observe.py" <<'PYTHON'
import warnings

import jax
import jax.numpy as jnp
import keras
import mlx.core as mx
import numpy as np
import onnxruntime
import openvino
import torch
from onnx import TensorProto, helper
from openvino import opset13
from x_transformers.attend import Attend

warnings.simplefilter("ignore")
mx.set_default_device(mx.cpu)
CHANNELS = 4


def of_torch(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v)), is_causal=True)


def of_x_transformers(q, k, v):
    return Attend(causal=True)(*map(torch.tensor, (q, k, v)))[0]


def of_x_transformers_flash(q, k, v):
    return Attend(causal=True, flash=True)(*map(torch.tensor, (q, k, v)))[0]


def of_jax(*arrays):
    arrays = [jnp.asarray(each.swapaxes(1, 2)) for each in arrays]
    return jax.nn.dot_product_attention(*arrays, is_causal=True).swapaxes(1, 2)


def of_mlx(q, k, v):
    return mx.fast.scaled_dot_product_attention(*map(mx.array, (q, k, v)), scale=1.0, mask="causal")


def of_keras(q, k, v):
    return keras.layers.Attention()([q[:, 0], v[:, 0], k[:, 0]], use_causal_mask=True)[:, None]


def of_onnxruntime(*arrays):
    feeds = dict(zip("qkv", arrays, strict=True))
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, of.shape) for name, of in feeds.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Attention", [*feeds], ["y"], is_causal=1)
    graph = helper.make_graph([node], "graph", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]


def of_openvino(*arrays):
    inputs = [opset13.parameter(of.shape, of.dtype) for of in arrays]
    model = openvino.Model([opset13.scaled_dot_product_attention(*inputs, causal=True)], inputs)
    return openvino.compile_model(model, "CPU")([*arrays])[0]


def keys_seen(function, queries, keys):
    """Return how many keys each query sees; all scores are equal and the values are the identity."""
    q, k = (np.zeros((1, 1, tokens, CHANNELS), np.float32) for tokens in (queries, keys))
    v = np.eye(keys, CHANNELS, dtype=np.float32)[None, None]
    return (np.array(function(q, k, v))[0, 0] > 1e-6).sum(axis=1).tolist()


FIRST, LAST = ([1, 2], [1, 2, 2, 2]), ([3, 4], [2, 2, 1, 2])
expected = dict.fromkeys((of_torch, of_jax, of_keras, of_onnxruntime, of_openvino), FIRST)
expected |= {of_mlx: LAST, of_x_transformers: LAST, of_x_transformers_flash: (LAST[0], FIRST[1])}
for function, wanted in expected.items():
    seen = keys_seen(function, 2, 4), keys_seen(function, 4, 2)
    print(f"{function.__name__[3:]}: keys per query {seen[0]} of 4, {seen[1]} of 2")
    assert seen == wanted
PYTHON
KERAS_BACKEND=jax "$folder/venv/bin/python" "$folder/observe.py"
