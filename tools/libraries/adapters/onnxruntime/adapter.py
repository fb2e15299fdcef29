"""Theorem 1 in ONNX's attention operator and ONNX Runtime's own, on the CPU.

Expected: a floating-point `attn_mask` of the operator `Attention` is added to the scores, so the
heads' scores can be used unchanged, in opset 23 and 24 alike. With `scale=1` the codes' queries and
keys, of 6 dimensions beside values of 8, give the same scores. `attention_bias` of the contributed
operator `MultiHeadAttention` is added as well, and so is a constant in the operators that exporters
write instead. All differ from the convolution by rounding; the CPU does not run them in bfloat16.
"""

import numpy as np
import onnxruntime
from common import cost, gap, problem, record, versions
from onnx import TensorProto, helper, numpy_helper

versions("onnxruntime", "onnx")
SPLIT = (1, 9, 256, -1)  # batch, heads, tokens, channels
make_node = helper.make_node


def session(nodes, arrays, inputs, opset=24):
    """Return a function that runs the nodes on the inputs and returns their output `y`."""
    inputs = {name: np.float32(array) for name, array in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32(array), name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # a type that does not run raises an exception
    run = onnxruntime.InferenceSession(model.SerializeToString(), options).run
    return lambda: run(None, inputs)[0]


def attention(dtype, operators, *, codes=False, split=True, opset=24):
    """Return a function that runs the operators between the projections of all heads.

    The operators compute `mixed` from `query`, `key`, `value` and `scores`, which have `dtype`; the
    projections are computed in float32. Heads are an axis, or joined if `split` is false.
    """
    query, key = np.zeros((2, 9, 256, 8))
    if codes:
        query, key = (problem["codes"] @ problem[f"{part}_matrices"] for part in ("query", "key"))
    inputs = {"x": problem["tokens"][:, None], "q": query.reshape(SPLIT), "k": key.reshape(SPLIT)}
    arrays = {"values": problem["values"], "output": problem["output"].reshape(9, 8, 8)}
    after = [make_node("ReduceSum", ["terms", "heads"], ["sum"], keepdims=0)]
    if not split:
        inputs = {name: of.swapaxes(1, 2).reshape(1, 256, -1) for name, of in inputs.items()}
        arrays = {"values": np.concatenate(problem["values"], 1), "output": problem["output"]}
        after = [make_node("Identity", ["terms"], ["sum"])]
    before = [
        make_node("Constant", [], ["heads"], value_ints=[1]),
        make_node("MatMul", ["x", "values"], ["v"]),
    ]
    for source, name in zip("qkvs", ("query", "key", "value", "scores"), strict=True):
        before.append(make_node("Cast", [source], [name], to=dtype))
    before_output = [
        make_node("Cast", ["mixed"], ["float"], to=TensorProto.FLOAT),
        make_node("MatMul", ["float", "output"], ["terms"]),
    ]
    nodes = before + operators + before_output + after
    nodes.append(make_node("Add", ["sum", "bias"], ["y"]))
    arrays |= {"bias": problem["bias"], "s": problem["scores"][None]}
    return session(nodes, arrays, inputs, opset)


def convolution():
    arrays = {"kernel": problem["kernel"].transpose(3, 2, 0, 1), "bias": problem["bias"]}
    node = make_node("Conv", ["x", "kernel", "bias"], ["y"], pads=[1] * 4)
    return session([node], arrays, {"x": problem["image"].transpose(0, 3, 1, 2)})


def measure(operators, **settings):
    in_float32 = attention(TensorProto.FLOAT, operators, **settings)
    try:
        in_bfloat16 = gap(attention(TensorProto.BFLOAT16, operators, **settings)())
    except Exception as error:
        assert "NOT_IMPLEMENTED" in str(error), error
        in_bfloat16 = None
    return {
        "gap_float32": gap(in_float32()),
        "gap_bfloat16": in_bfloat16,
        "cost": cost(in_float32, convolution()),
    }


QKV = ["query", "key", "value"]
WITH_MASK = [make_node("Attention", [*QKV, "scores"], ["mixed"], scale=1.0)]
WITHOUT = [make_node("Attention", QKV, ["mixed"], scale=1.0)]
CONTRIBUTED = make_node(
    "MultiHeadAttention", [*QKV, "", "", "scores"], ["mixed"], num_heads=9, domain="com.microsoft"
)
DECOMPOSED = [
    make_node("Transpose", ["key"], ["key_transposed"], perm=[0, 1, 3, 2]),
    make_node("MatMul", ["query", "key_transposed"], ["products"]),
    make_node("Add", ["products", "scores"], ["logits"]),
    make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    make_node("MatMul", ["probabilities", "value"], ["mixed"]),
]
UNCHANGED = "The scores are added, so the construction runs unchanged."
BESIDE = "With scale=1 the codes' queries and keys give the scores."
for layer, position, operators, settings, expected in (
    ("ONNX Attention, opset 23", "mask argument", WITH_MASK, {"opset": 23}, UNCHANGED),
    ("ONNX Attention, opset 24", "mask argument", WITH_MASK, {}, UNCHANGED),
    ("ONNX Attention, opset 24", "codes beside the content", WITHOUT, {"codes": True}, BESIDE),
    ("ONNX MatMul, Add, Softmax, MatMul", "bias argument", DECOMPOSED, {}, UNCHANGED),
    (
        "com.microsoft MultiHeadAttention",
        "bias argument",
        [CONTRIBUTED],
        {"split": False},
        UNCHANGED,
    ),
):
    record(
        layer,
        position,
        expresses=True,
        **measure(operators, **settings),
        expected=expected,
        observed="As expected; the CPU provider does not run bfloat16.",
    )
