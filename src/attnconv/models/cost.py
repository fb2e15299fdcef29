"""Parameters and floating-point operations: in the paper's convention, in full, and as executed.

Letters: T = H * W pixels, N_h heads, D_k key dimension, D_p position dimension. A multiplication
and an addition count as two.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..theory.encodings import GeneralizedQuadraticEncoding, QuadraticEncoding
from ..theory.layers import ContentAttention, PositionAttention

# D_p of equation (9) and of appendix E
POSITION_DIMENSIONS = {QuadraticEncoding: 3, GeneralizedQuadraticEncoding: 5}


@dataclass(frozen=True)
class Cost:
    """What a model holds, and what one image costs it in a forward pass without dropout.

    `flops_paper`: 2 x multiply-adds of the linear and convolution layers alone, the column of
    Tables 1 and 4. `flops`: every product of the paper's dense formulation: also attention times
    values, q . k, q . r and v . r_delta. `flops_executed`: the matrix products that this
    implementation does, as counted by torch.
    """

    parameters: int
    flops_paper: int
    flops: int
    flops_executed: int


@torch.no_grad()
def cost_of(model: nn.Module, image_size: int = 32) -> Cost:
    """The cost of a model for one square image of `image_size` pixels a side. Leaves the model as
    it was."""
    weight = next(model.parameters())
    image = torch.zeros(
        1,
        getattr(model, "in_channels", 3),
        image_size,
        image_size,
        dtype=weight.dtype,
        device=weight.device,
    )
    layers, products = [], []
    hooks = [
        module.register_forward_hook(_count_layer(layers))
        for module in model.modules()
        if _is_layer(module)
    ]
    hooks += [
        module.register_forward_hook(_count_values(layers))
        for module in model.modules()
        if isinstance(module, PositionAttention)
    ]
    hooks += [
        module.register_forward_hook(_count_products(products))
        for module in model.modules()
        if _attends(module)
    ]
    was_training = model.training
    model.eval()
    try:
        with FlopCounterMode(display=False) as counter:
            model(image)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Cost(parameters, sum(layers), sum(layers) + sum(products), counter.get_total_flops())


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d)


def _attends(module: nn.Module) -> bool:
    return isinstance(module, PositionAttention | ContentAttention)


def _count_layer(counts: list[int]):
    def hook(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        terms = cast(nn.Linear, module).weight[0].numel()  # products per output number
        counts.append(2 * terms * output.numel())

    return hook


def _count_values(counts: list[int]):
    """The linear layer `value` of position-only attention, which multiplies its weights head by
    head."""

    def hook(module: PositionAttention, inputs: tuple[Tensor], output: Tensor) -> None:
        counts.append(2 * module.value.in_features * output.numel())

    return hook


def _count_products(counts: list[int]):
    """The products of dense attention that no linear layer does."""

    def hook(
        module: PositionAttention | ContentAttention, inputs: tuple[Tensor], output: Tensor
    ) -> None:
        height, width = output.shape[1:3]
        pixels = height * width
        if isinstance(module, ContentAttention):
            pairs = module.num_heads * pixels**2
            # q . r by row and by column
            relative = module.num_heads * pixels * (height + width) * module.embedding.dim
            counts.append(2 * (pairs * (module.dim_key + module.dim_in) + relative))
        else:  # a learned encoding's v . r_delta are linear layers, counted as such
            pairs = module.num_heads * pixels**2
            counts.append(
                2 * pairs * (module.dim_in + POSITION_DIMENSIONS.get(type(module.encoding), 0))
            )

    return hook
