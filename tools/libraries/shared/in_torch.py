"""Build and measure layers in the adapters of libraries that are based on torch."""

import torch
from common import SIDE, cost, gap, problem
from torch.nn import functional as F

torch.set_num_threads(1)
TYPES = (torch.float32, torch.bfloat16)
HEADS, CHANNELS = problem["values"].shape[:2]


def arrays(dtype):
    """Return the problem's arrays as tensors."""
    return {name: torch.from_numpy(array).to(dtype) for name, array in problem.items()}


@torch.no_grad()
def measure(build):
    """Return the gaps in both types and the cost, for a layer that `build(dtype)` returns."""
    layers = {dtype: build(dtype) for dtype in TYPES}
    gaps = [gap(layers[dtype]().double()) for dtype in TYPES]
    p = arrays(torch.float32)
    image, kernel = p["image"].permute(0, 3, 1, 2), p["kernel"].permute(3, 2, 0, 1)
    ratio = cost(layers[torch.float32], lambda: F.conv2d(image, kernel, p["bias"], padding=1))
    return dict(zip(("gap_float32", "gap_bfloat16"), gaps, strict=True), cost=ratio)


def projections(dtype, dim, size):
    """Return the weights of the values, (9 size, dim), and of the output, (dim, 9 size).

    The image has the first 8 of `dim` channels before and after; a head has `size` dimensions.
    """
    p = arrays(dtype)
    values = torch.zeros(HEADS, size, dim, dtype=dtype)
    values[:, :CHANNELS, :CHANNELS] = p["values"].mT
    output = torch.zeros(HEADS, size, dim, dtype=dtype)
    output[:, :CHANNELS, :CHANNELS] = p["output"].unflatten(0, (HEADS, CHANNELS))
    return values.flatten(0, 1), output.flatten(0, 1).T


def set_linear(layer, weight, bias=None):
    """Fill a linear layer, with zeros in rows, columns and biases that are not given."""
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[: weight.shape[0], : weight.shape[1]] = weight
        if layer.bias is not None:
            layer.bias.zero_()
            if bias is not None:
                layer.bias[: len(bias)] = bias


def relative_scores(dtype):
    """Return -alpha ||d - offset||^2 for the shifts d = key - query, (9, 31, 31), from -15."""
    p = arrays(torch.float64)
    alpha = -p["scores"][4, 0, 1]  # of the head with offset 0
    assert not p["centers"][4].any()
    d = torch.arange(1 - SIDE, SIDE, dtype=torch.float64)
    y, x = p["centers"].T[:, :, None]
    return (-alpha * ((d - y)[:, :, None] ** 2 + (d - x)[:, None] ** 2)).to(dtype)
