"""The layers against the theory: each fast way of computing is the dense attention of the paper."""

import pytest
import torch
from helpers.encodings import H, W, kinds
from helpers.ways import WAYS, by_axes, force
from torch import nn

from attnconv import attention_to_conv, conv_to_attention
from attnconv.layers.attention import PositionAttention
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.theorem1 import convolution_by_attention, hard_alpha, heads_for
from attnconv.theory.theorem2 import attention_by_convolution
from companion.gaps import largest_gap

ALPHAS = [None, 20.0, 2.0, 0.1]
BOUND = {torch.float64: 1e-12, torch.float32: 1e-5}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("way", ["shifts", *WAYS])
@pytest.mark.parametrize("kernel", [(3, 3), (2, 5)])
def test_a_converted_convolution_is_theorem_1(kernel, way, dtype, alpha):
    conv = nn.Conv2d(3, 4, kernel, padding="same").to(dtype).requires_grad_(False)
    X = torch.randn(2, 10, 9, 3).to(dtype)
    layer = conv_to_attention(conv, alpha)
    theirs = convolution_by_attention(X, conv.weight.permute(2, 3, 1, 0), conv.bias, alpha)
    x = X.movedim(-1, 1)
    ours = layer(x) if way == "shifts" else by_axes(layer, x, way)
    assert layer.shifts((12, 11)) is not None
    assert largest_gap(ours.movedim(1, -1), theirs) < BOUND[dtype]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dim_out", [2, 5])  # `attend_and_mix`, or the averages first
def test_position_attention_is_theorem_1(dim_out, way, dtype, alpha, monkeypatch):
    """The layer with the heads of the theorem, on the padded image, cropped."""
    force(monkeypatch, way)
    X = torch.randn(2, 10, 9, 3).to(dtype)
    kernel = torch.randn(3, 3, 3, dim_out).to(dtype)
    heads = heads_for(kernel)
    encoding = QuadraticEncoding.from_alpha(heads.centers, alpha or hard_alpha(dtype))
    layer = PositionAttention(encoding, 3, dim_out).to(dtype).requires_grad_(False)
    layer.value.weight.copy_(heads.W_val.flatten(0, 1).mT)
    theirs = convolution_by_attention(X, kernel, layer.value.bias, alpha)
    ours = layer(nn.functional.pad(X, (0, 0, 1, 1, 1, 1)))[:, 1:-1, 1:-1]
    assert largest_gap(ours, theirs) < BOUND[dtype]


@pytest.mark.parametrize("name", list(kinds()))
def test_the_converse_of_a_layer_is_theorem_2(name):
    layer = PositionAttention(kinds()[name], 3, 5).double().requires_grad_(False)
    X = torch.randn(2, H, W, 3).double()
    scores = layer.encoding.offset_scores(H, W)
    averages = torch.cat([attention_by_convolution(X, of_head) for of_head in scores], dim=-1)
    assert largest_gap(attention_to_conv(layer, H, W)(X), layer.value(averages)) < 1e-12
