"""Parameter and operation counts: in the paper's convention, in full, and as executed.

Letters: T = H * W pixels, N_h heads, D_k key dimension, D_p position dimension. A multiplication
and an addition count as two operations.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from .layers.attention import ContentAttention, PositionAttention
from .layers.conv_as_attention import ConvAsAttention
from .layers.encodings import GeneralizedQuadraticEncoding, QuadraticEncoding
from .layers.mode import evaluation_mode

COUNTED = (nn.Linear, nn.Conv1d, nn.Conv2d, PositionAttention, ContentAttention, ConvAsAttention)
# D_p of equation (9) and of appendix E
POSITION_DIMENSIONS = {QuadraticEncoding: 3, GeneralizedQuadraticEncoding: 5}


@dataclass(frozen=True)
class Cost:
    """A model's parameter count and the number of operations in its forward pass on one image.

    `flops_paper` is twice the number of multiply-adds in linear and convolutional layers, as in
    Tables 1 and 4; a converted convolution counts as the convolution. `flops` counts every product
    in the paper's dense formulation, including attention times values, q . k, q . r and
    v . r_delta. In a converted convolution, the kept queries attend to all pixels of the padded
    image. `flops_executed` counts the matrix products that this implementation executes, as
    reported by torch.
    """

    parameters: int
    flops_paper: int
    flops: int
    flops_executed: int


@torch.no_grad()
def cost_of(model: nn.Module, image_size: int = 32) -> Cost:
    """Return the cost of a model for one image of `image_size` x `image_size` pixels.

    Dropout is off, and the model is not changed. `flops_paper` and `flops` omit linear maps that
    are not modules, such as the projections of `nn.MultiheadAttention`.
    """
    weight = next(model.parameters())
    flops = {"layers": 0, "attention": 0}

    def count(module: nn.Module, inputs: tuple[Any, ...], named: Any, output: Tensor) -> None:
        flops["layers"] += 2 * _terms(module) * output.numel()
        if isinstance(module, PositionAttention | ContentAttention):
            flops["attention"] += 2 * _products(module, *output.shape[1:3])
        if isinstance(module, ConvAsAttention):
            x = inputs[0] if inputs else named["input"]
            flops["attention"] += 2 * _products_of_converted(module, x, output)

    counted = [module for module in model.modules() if isinstance(module, COUNTED)]
    hooks = [module.register_forward_hook(count, with_kwargs=True) for module in counted]
    fast = torch.backends.mha.get_fastpath_enabled()
    image = weight.new_zeros(1, getattr(model, "in_channels", 3), image_size, image_size)
    try:
        torch.backends.mha.set_fastpath_enabled(False)  # its products would not be counted
        with evaluation_mode(model), FlopCounterMode(display=False) as counter:
            model(image)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for hook in hooks:
            hook.remove()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Cost(parameters, flops["layers"], sum(flops.values()), counter.get_total_flops())


def _terms(module: nn.Module) -> int:
    """Return the number of products per output value of a linear map or convolution, else 0."""
    if isinstance(module, ConvAsAttention):
        return module.ordinary_weight()[0].numel()
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
        return module.weight[0].numel()
    # position-only attention itself multiplies by the weights of its layer `value`, head by head
    return module.value.in_features if isinstance(module, PositionAttention) else 0


def _products(attention: PositionAttention | ContentAttention, height: int, width: int) -> int:
    """Return the number of products of dense attention on one image, excluding linear layers."""
    pixels = height * width
    pairs = attention.num_heads * pixels**2
    if isinstance(attention, PositionAttention):
        # a learned encoding computes v . r_delta in linear layers, which are counted separately
        dimensions = POSITION_DIMENSIONS.get(type(attention.encoding), 0)
        return pairs * (attention.dim_in + dimensions)
    relative = attention.num_heads * pixels * (height + width) * attention.embedding.dim  # q . r
    return pairs * (attention.dim_key + attention.dim_in) + relative


def _products_of_converted(layer: ConvAsAttention, inputs: Tensor, output: Tensor) -> int:
    """Return the number of products of a converted convolution, excluding the matrices W^(h)."""
    axes = len(layer.kernel_size)
    keys = math.prod(layer.padded_sizes(inputs.shape[-axes:]))
    pairs = layer.num_heads * output.numel() // layer.out_channels * keys
    return pairs * (layer.in_channels + axes + 1)  # D_p is 3 for images, equation (9)
