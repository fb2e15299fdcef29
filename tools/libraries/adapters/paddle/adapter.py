"""Theorem 1 in Paddle's own attention function and layer, on the CPU.

Expected: a floating-point `attn_mask` is added to the scores, so the heads' scores can be used
unchanged in the function and in the layer. The layer has one size for its input, its heads and its
output, so the 8 channels and 5 codes stand beside zeros in 9 * 16 = 144 dimensions; without a mask,
the codes give the scores, W_qry times 4. In float32 both differ from the convolution by rounding;
bfloat16 does not run on the CPU.
"""

import numpy as np
import paddle
from common import cost, gap, problem, record, versions

versions("paddlepaddle")
paddle.set_device("cpu")
F = paddle.nn.functional
HEADS, CHANNELS, SIZE = 9, 8, 16
WIDTH = HEADS * SIZE


def tensor(of, dtype):
    return paddle.to_tensor(np.float32(of)).astype(dtype)


def function(dtype):
    p = {name: tensor(of, dtype) for name, of in problem.items()}
    scores = p["scores"][None]

    def run():
        values = (p["tokens"][:, None] @ p["values"]).transpose([0, 2, 1, 3])
        zero = paddle.zeros_like(values)
        heads = F.scaled_dot_product_attention(zero, zero, values, scores)
        return heads.flatten(2) @ p["output"] + p["bias"]

    return run


def padded(parts):
    """Return a matrix (144, 144) of all heads from (heads, inputs, size)."""
    joined = np.concatenate(
        [np.pad(part, [(0, 0), (0, SIZE - part.shape[1])]) for part in parts], 1
    )
    return np.pad(joined, [(0, WIDTH - len(joined)), (0, 0)])


def layer(dtype, *, codes):
    x = np.concatenate([problem["tokens"], problem["codes"][None]], axis=-1)
    x = tensor(np.pad(x, [(0, 0), (0, 0), (0, WIDTH - x.shape[-1])]), dtype)
    below = [(0, 0), (CHANNELS, 0), (0, 0)]  # the codes follow the content
    output = np.zeros((HEADS, SIZE, WIDTH))
    output[:, :CHANNELS, :CHANNELS] = problem["output"].reshape(HEADS, CHANNELS, CHANNELS)
    attention = paddle.nn.MultiHeadAttention(WIDTH, HEADS)
    for name, weight in {
        "q_proj": padded(np.pad(problem["query_matrices"], below)) * np.sqrt(SIZE) * codes,
        "k_proj": padded(np.pad(problem["key_matrices"], below)),
        "v_proj": padded(problem["values"]),
        "out_proj": output.reshape(WIDTH, WIDTH),
    }.items():
        linear = getattr(attention, name)
        linear.weight.set_value(np.float32(weight))
        linear.bias.set_value(np.zeros(WIDTH, np.float32))
    attention.out_proj.bias.set_value(np.float32(np.pad(problem["bias"], (0, WIDTH - CHANNELS))))
    attention.to(dtype=dtype)
    mask = None if codes else tensor(problem["scores"][None], dtype)
    return lambda: attention(x, x, x, mask)[..., :CHANNELS]


def convolution():
    p = {name: tensor(of, "float32") for name, of in problem.items()}
    image = p["image"].transpose([0, 3, 1, 2])
    kernel = p["kernel"].transpose([3, 2, 0, 1])
    return lambda: F.conv2d(image, kernel, p["bias"], padding=1)


@paddle.no_grad()
def measure(build, **settings):
    in_float32 = build("float32", **settings)
    try:
        in_bfloat16 = gap(build("bfloat16", **settings)().astype("float32"))
    except RuntimeError as error:
        assert "bfloat16" in str(error), error
        in_bfloat16 = None
    return {
        "gap_float32": gap(in_float32()),
        "gap_bfloat16": in_bfloat16,
        "cost": cost(in_float32, convolution()),
    }


ADDED = "The mask is added to the scores, so the construction runs unchanged."
BESIDE = "The codes' queries and keys give the scores, and the layer differs by rounding."
for name, position, build, settings, expected in (
    ("paddle.nn.functional.scaled_dot_product_attention", "mask argument", function, {}, ADDED),
    ("paddle.nn.MultiHeadAttention", "mask argument", layer, {"codes": False}, ADDED),
    ("paddle.nn.MultiHeadAttention", "codes beside the content", layer, {"codes": True}, BESIDE),
):
    record(
        name,
        position,
        expresses=True,
        **measure(build, **settings),
        expected=expected,
        observed="As expected; the CPU does not run it in bfloat16.",
    )
