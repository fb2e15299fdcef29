#!/usr/bin/env bash
# Subject: what attention functions return for a query whose keys are all blocked (a row of padding).
# On: jax 0.10.2, mlx 0.32.4, onnxruntime 1.32.0, openvino 2026.4.1, paddlepaddle 3.3.1, on the CPU.
# Most expect: a boolean mask and the additive mask with -inf in its place are the same mask, and libraries agree, so a
#   ported model keeps its outputs.
# Observed: there are three results: zeros, NaN and the mean of all values, blocked ones included. In JAX and MLX the
#   boolean mask gives the mean and the additive one NaN. In JAX, blocking the query itself (query_seq_lengths) gives
#   zeros, and blocking its keys (key_value_seq_lengths) the mean. Paddle's function gives NaN for both masks, its
#   MultiHeadAttention the mean for the boolean one. ONNX Runtime gives zeros and OpenVINO NaN.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet jax==0.10.2 jaxlib==0.10.2 'mlx[cpu]==0.32.4' onnxruntime==1.32.0 \
    onnx==1.23.2 openvino==2026.4.1 paddlepaddle==3.3.1 numpy
cat > "$folder/observe.py" <<'PYTHON'
import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np
import onnxruntime
import openvino
import paddle
from onnx import TensorProto, helper
from openvino import opset13

mx.set_default_device(mx.cpu)
TOKENS = 4
allowed = np.ones((1, 1, TOKENS, TOKENS), bool)
allowed[..., 1, :] = False
MASKS = {"boolean": allowed, "additive": np.where(allowed, 0, -np.inf).astype(np.float32)}
# (batch, heads, tokens, channels); the values are the identity, so the output is the attention map
q = np.zeros((1, 1, TOKENS, TOKENS), np.float32)
v = np.eye(TOKENS, dtype=np.float32)[None, None]


def of_jax(mask, **lengths):
    masks = {} if mask is None else {"mask" if mask.dtype == bool else "bias": jnp.asarray(mask)}
    q_, v_ = (jnp.asarray(x.swapaxes(1, 2)) for x in (q, v))
    return jax.nn.dot_product_attention(q_, q_, v_, **masks, **lengths)[0, :, 0]


def of_mlx(mask):
    q_, v_, mask = map(mx.array, (q, v, mask))
    return mx.fast.scaled_dot_product_attention(q_, q_, v_, scale=1.0, mask=mask)[0, 0]


def of_onnxruntime(mask):
    feeds = {"q": q, "k": q, "v": v, "mask": mask}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.BOOL if of.dtype == bool else TensorProto.FLOAT, of.shape)
        for name, of in feeds.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Attention", [*feeds], ["y"])], "graph", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0][0, 0]


def of_openvino(mask):
    arrays = [q, q, v, mask]
    inputs = [opset13.parameter(of.shape, of.dtype) for of in arrays]
    model = openvino.Model([opset13.scaled_dot_product_attention(*inputs)], inputs)
    return openvino.compile_model(model, "CPU")(arrays)[0][0, 0]


def of_paddle(mask):
    q_, v_ = (paddle.to_tensor(x.swapaxes(1, 2)) for x in (q, v))
    return paddle.nn.functional.scaled_dot_product_attention(q_, q_, v_, paddle.to_tensor(mask))[0, :, 0].numpy()


def of_paddle_layer(mask):
    layer = paddle.nn.MultiHeadAttention(TOKENS, 1, bias_attr=False)
    layer.q_proj.weight.set_value(q[0, 0])
    for linear in (layer.k_proj, layer.v_proj, layer.out_proj):
        linear.weight.set_value(v[0, 0])
    return layer(paddle.to_tensor(v[0]), attn_mask=paddle.to_tensor(mask))[0].numpy()


def name_of(row):
    """Return what the row of the attention map is."""
    for name, value in {"zeros": 0, "mean": 1 / TOKENS, "NaN": np.nan}.items():
        if np.allclose(row, value, equal_nan=True):
            return name
    raise AssertionError(row)


expected = {
    of_jax: ("mean", "NaN"),
    of_mlx: ("mean", "NaN"),
    of_onnxruntime: ("zeros", "zeros"),
    of_openvino: ("NaN", "NaN"),
    of_paddle: ("NaN", "NaN"),
    of_paddle_layer: ("mean", "NaN"),
}
for function, results in expected.items():
    for (mask, of), result in zip(MASKS.items(), results, strict=True):
        output = np.array(function(of))
        np.testing.assert_allclose(output[[0, 2, 3]], 1 / TOKENS, atol=1e-6)
        print(f"{function.__name__[3:]}, {mask} mask: {name_of(output[1])}")
        assert name_of(output[1]) == result
for argument, result in {"query_seq_lengths": "zeros", "key_value_seq_lengths": "mean"}.items():
    seen = name_of(of_jax(None, **{argument: jnp.array([0])})[1])
    print(f"jax, {argument} of 0: {seen}")
    assert seen == result
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
