"""Theorem 1 in LiteRT (TensorFlow Lite), which runs Keras's attention layer once it is exported.

Expected: LiteRT has no operator for attention; the exporter writes the layer as matrix products and
a softmax. With codes beside the content and a scale of 1/4 in the exported layer, the file computes
the convolution up to rounding in float32. Whether the file can be in bfloat16 is unclear: the
exporter may refuse the type.
"""

import os
import tempfile

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np
from ai_edge_litert.interpreter import Interpreter
from common import cost, gap, problem, record, versions

versions("ai-edge-litert", "keras", "tensorflow-cpu")
HEADS, CHANNELS, SIZE = 9, 8, 16


def exported(inputs, outputs, array):
    """Return a function that runs the exported model on the array in LiteRT."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.tflite"
        keras.Model(inputs, outputs).export(path, format="litert", verbose=False)
        with open(path, "rb") as file:
            interpreter = Interpreter(model_content=file.read(), num_threads=1)
    interpreter.allocate_tensors()
    place = interpreter.get_input_details()[0]["index"]
    result = interpreter.get_output_details()[0]["index"]

    def run():
        interpreter.set_tensor(place, np.float32(array))
        interpreter.invoke()
        return interpreter.get_tensor(result)

    return run


def attention(dtype):
    x = np.concatenate([problem["tokens"], problem["codes"][None]], axis=-1)
    layer = keras.layers.MultiHeadAttention(
        HEADS, SIZE, CHANNELS, output_shape=CHANNELS, dtype=dtype
    )
    inputs = keras.Input(x.shape[1:], batch_size=1)
    outputs = keras.ops.cast(layer(inputs, inputs), "float32")
    below = [(0, 0), (CHANNELS, 0), (0, SIZE - 6)]  # the codes follow the content
    query = np.pad(problem["query_matrices"], below) * np.sqrt(SIZE)
    key = np.pad(problem["key_matrices"], below)
    value = np.pad(problem["values"], [(0, 0), (0, 5), (0, 0)])
    kernels = [matrices.transpose(1, 0, 2) for matrices in (query, key, value)]
    biases = [np.zeros((HEADS, size)) for size in (SIZE, SIZE, CHANNELS)]
    output = problem["output"].reshape(HEADS, CHANNELS, CHANNELS)
    pairs = zip([*kernels, output], [*biases, problem["bias"]], strict=True)
    layer.set_weights([weight for pair in pairs for weight in pair])
    return exported(inputs, outputs, x)


def convolution():
    layer = keras.layers.Conv2D(CHANNELS, 3, padding="same")
    inputs = keras.Input(problem["image"].shape[1:], batch_size=1)
    outputs = layer(inputs)
    layer.set_weights([problem["kernel"], problem["bias"]])
    return exported(inputs, outputs, problem["image"])


in_float32 = attention("float32")
try:
    gap_bfloat16 = gap(attention("bfloat16")())
except RuntimeError as error:
    assert "Select TensorFlow op" in str(error), error
    gap_bfloat16 = None
record(
    "keras.layers.MultiHeadAttention, exported to LiteRT",
    "codes beside the content",
    expresses=True,
    gap_float32=gap(in_float32()),
    gap_bfloat16=gap_bfloat16,
    cost=cost(in_float32, convolution()),
    expected="The exported layer computes the convolution up to rounding; bfloat16 is unclear.",
    observed="As expected; the file in bfloat16 holds TensorFlow's operators, which do not run.",
)
