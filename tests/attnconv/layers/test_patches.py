"""A convolution on tokens that are patches of pixels, as in vision transformers: fewer heads."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnconv import conv_to_attention


def on_patches(conv, patch):
    """The same convolution on patches: an input channel for each pixel of a patch and channel."""
    reach = -(-(conv.kernel_size[0] // 2) // patch)  # in patches, rounded up
    side = 2 * reach + 1
    weight = torch.zeros(
        conv.out_channels, patch, patch, conv.in_channels, patch, patch, side, side
    )
    weight = weight.to(conv.weight)
    for row, column in itertools.product(range(patch), repeat=2):
        for i, j in itertools.product(range(conv.kernel_size[0]), repeat=2):
            y, x = row + i - conv.kernel_size[0] // 2, column + j - conv.kernel_size[0] // 2
            (down, inner_y), (right, inner_x) = divmod(y, patch), divmod(x, patch)
            weight[:, row, column, :, inner_y, inner_x, down + reach, right + reach] = conv.weight[
                :, :, i, j
            ].detach()
    outputs, inputs = conv.out_channels * patch**2, conv.in_channels * patch**2
    result = nn.Conv2d(inputs, outputs, side, padding=reach).to(conv.weight)
    result.weight = nn.Parameter(weight.reshape(outputs, inputs, side, side))
    result.bias = nn.Parameter(conv.bias.detach().repeat_interleave(patch**2))
    return result


@pytest.mark.parametrize(
    ("kernel", "patch", "heads"),
    [(3, 1, 9), (3, 2, 9), (5, 2, 9), (7, 3, 9), (9, 4, 9), (7, 2, 25), (1, 3, 1)],
)
def test_attention_on_patches_is_the_convolution_with_fewer_heads(kernel, patch, heads):
    torch.manual_seed(kernel)
    conv = nn.Conv2d(2, 3, kernel, padding=kernel // 2).double()
    layer = conv_to_attention(on_patches(conv, patch))
    assert layer.num_heads == heads == (2 * -(-(kernel - 1) // (2 * patch)) + 1) ** 2
    x = torch.randn(2, 2, 4 * patch, 5 * patch).double()
    with torch.no_grad():
        computed = F.pixel_shuffle(layer(F.pixel_unshuffle(x, patch)), patch)
        torch.testing.assert_close(computed, conv(x), rtol=0, atol=1e-12)
