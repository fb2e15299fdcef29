"""Give adapters the problem, the timing and the rows of the record; only numpy is needed.

An adapter is a script, `adapters/NAME/adapter.py`, that runs in an environment of its own, with the
versions in `requirements.txt`. Its docstring says what one would expect; it calls `record` once for
each attention layer.
"""

import json
import os
import platform
import statistics
import time
from importlib.metadata import version

import numpy as np

SIDE = 16  # pixels a side of the image with its padding
problem = dict(np.load(os.environ["THEOREM_1_PROBLEM"]))


def inner(tokens):
    """Return the outputs at the pixels of the image, (1, 14, 14, 8), from (1, 256, 8)."""
    return np.asarray(tokens, dtype=np.float64).reshape(1, SIDE, SIDE, -1)[:, 1:-1, 1:-1]


def gap(output):
    """Return the largest difference from the convolution, relative to its largest output.

    `output` has the shape (1, 14, 14, 8), or (1, 256, 8) with the outputs at the padding.
    """
    output = np.asarray(output, dtype=np.float64)
    if output.ndim == 3:
        output = inner(output)
    expected = problem["expected"]
    assert output.shape == expected.shape, output.shape
    return float(np.abs(output - expected).max() / np.abs(expected).max())


def cost(attention, convolution, turns=9, at_least=0.02):
    """Return the time of attention divided by that of the library's own convolution.

    Both functions take no arguments and return when their result is complete. They are called in
    alternating turns of at least `at_least` seconds each; the medians are compared.
    """

    def calls_for(function):
        function()
        start = time.perf_counter()
        function()
        return max(1, round(at_least / (time.perf_counter() - start)))

    def seconds(function, calls):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - start) / calls

    sides = [(function, calls_for(function), []) for function in (attention, convolution)]
    for _ in range(turns):
        for function, calls, times in sides:
            times.append(seconds(function, calls))
    one, other = (statistics.median(times) for *_, times in sides)
    return one / other


def record(
    layer,
    position,
    *,
    expresses,
    gap_float32=None,
    gap_bfloat16=None,
    border="padded image, outputs cropped",
    cost=None,
    prevented_by="",
    expected,
    observed,
):
    """Print one row of the table as JSON.

    layer: the library's name of the layer. position: how the offsets enter the scores: "bias
    argument", "mask argument", "parameters", "codes beside the content" or "rotary".
    expresses: whether the layer, with Theorem 1's parameters, computes the convolution.
    gap_float32, gap_bfloat16: from `gap`; None if the layer does not run in that type.
    border: what happens to the queries whose target lies outside the image.
    cost: from `cost`, in float32. prevented_by: the detail that prevents it, if it does.
    expected, observed: one sentence each: the guess before the run, and what was seen.
    """
    row = dict(locals())
    assert expresses != bool(prevented_by), "a reason is given exactly if it fails"
    print(json.dumps(row, allow_nan=False), flush=True)


def versions(*packages):
    """Print the versions of the packages and of Python, the first line of an adapter's output."""
    found = {package: version(package) for package in packages}
    print(json.dumps({"python": platform.python_version(), **found}), flush=True)
