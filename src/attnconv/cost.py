"""Parameter and operation counts: in the paper's convention, in full, and as executed.

Letters: T = H * W pixels, N_h heads, D_k key dimension, D_p position dimension. A multiplication
and an addition count as two operations.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from .layers.attention import ContentAttention, PositionAttention
from .layers.conv_as_attention import ConvAsAttention
from .layers.encodings import GeneralizedQuadraticEncoding, QuadraticEncoding
from .layers.mode import call, evaluation_mode, run_uncompiled, uncompiled

COUNTED = (nn.Linear, nn.Conv1d, nn.Conv2d, PositionAttention, ContentAttention, ConvAsAttention)
# D_p of equation (9) and of appendix E
POSITION_DIMENSIONS = {QuadraticEncoding: 3, GeneralizedQuadraticEncoding: 5}


@dataclass(frozen=True)
class Cost:
    """A model's parameter count and the number of operations in its forward pass.

    Attributes:
        parameters: The number of parameters.
        flops_paper: Twice the number of multiply-adds in linear and convolutional layers, as in
            Tables 1 and 4. A converted convolution counts as the convolution.
        flops: Every product in the paper's dense formulation, including attention times values, q .
            k, q . r and v . r_delta. In a converted convolution, the kept queries attend to all
            pixels of the padded image.
        flops_executed: The matrix products that this implementation executes, as reported by torch.
    """

    parameters: int
    flops_paper: int
    flops: int
    flops_executed: int


def cost_of(
    model: nn.Module,
    image_size: int | Sequence[int] = 32,
    *,
    images: Tensor | tuple[Any, ...] | Mapping[str, Any] | None = None,
) -> Cost:
    """Return the cost of a model for one image, or for the given inputs.

    Dropout is off, and the model is not changed. `flops_paper` and `flops` omit linear maps that
    are not modules, such as the projections of `nn.MultiheadAttention`. Models with FlexAttention
    need torch 2.15, because the counters of earlier versions fail in them.

    Args:
        model: Any model.
        image_size: The size of the image in pixels. One number means a square image; `(H, W)` is
            any image and `(L,)` a sequence. The image has the channels that the model's
            `in_channels` states, or else three, or else those of its first convolution.
        images: Instead of an image size, the model's argument, a tuple of its arguments, or a dict
            of its named ones. The cost is that of the whole batch.

    Returns:
        The number of parameters and three counts of operations.

    Raises:
        ValueError: If the model does not run on an image of the given size.

    Example:
        >>> import attnconv, torch
        >>> conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        >>> cost = attnconv.cost_of(conv, image_size=32)
        >>> cost.parameters == 27 * 8 + 8, cost.flops_paper == 2 * 27 * 8 * 32**2
        (True, True)
    """
    if images is not None:
        return run_uncompiled(partial(_cost, model, images))
    sizes = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    dtype_and_device = next(model.parameters(), torch.zeros(()))
    errors = []
    for channels in _channels(model):
        image = dtype_and_device.new_zeros(1, channels, *sizes)
        try:
            return run_uncompiled(partial(_cost, model, image))
        except Exception as error:  # the model's own, of any type
            errors.append((tuple(image.shape), error))
    shape, error = errors[0]
    raise ValueError(
        f"{type(model).__name__} does not run on an image of shape {shape} ({error}); expected a"
        " model of images of this size; give the inputs of any other model, such as"
        " cost_of(model, images=(first, second))"
    ) from error


def _channels(model: nn.Module) -> list[int]:
    """Return the numbers of channels that a model's images may have, the likeliest first."""
    convolutions = (nn.Conv1d, nn.Conv2d, ConvAsAttention)
    of_layers = [layer.in_channels for layer in model.modules() if isinstance(layer, convolutions)]
    stated = getattr(model, "in_channels", 3)
    return list(dict.fromkeys([stated, *of_layers[:1]]))


@torch.no_grad()
def _cost(model: nn.Module, images: Any) -> Cost:
    flops = {"layers": 0, "attention": 0}

    def count(module: nn.Module, inputs: tuple[Any, ...], named: Any, output: Tensor) -> None:
        flops["layers"] += 2 * _terms(module) * output.numel()
        if isinstance(module, PositionAttention | ContentAttention):
            flops["attention"] += 2 * len(output) * _products(module, *output.shape[1:3])
        if isinstance(module, ConvAsAttention):
            x = inputs[0] if inputs else named["input"]
            flops["attention"] += 2 * _products_of_converted(module, x, output)

    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, COUNTED):
                hook = module.register_forward_hook(count, with_kwargs=True)
                stack.callback(hook.remove)
        fast = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)  # its products would not be counted
        # torch 2.11 counts no products of its fused kernel for the CPU
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(evaluation_mode(model))
        stack.enter_context(uncompiled())  # torch's counter fails where flex_attention is compiled
        stack.enter_context(_frozen(model))
        counter = stack.enter_context(FlopCounterMode(display=False))
        call(model, images)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Cost(parameters, flops["layers"], sum(flops.values()), counter.get_total_flops())


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Exclude a model's parameters from differentiation inside the block."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


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
