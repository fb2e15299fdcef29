"""Transposed convolutions as attention on the image spread out, against torch's."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

from attnconv import conv_to_attention, convert_back, convert_network, cost_of, hard_alpha
from attnconv.layers.conv_as_attention import ConvAsAttention
from attnconv.layers.transposed import TransposedAsAttention, spread_out
from companion.gaps import largest_gap


@st.composite
def transposed_convolutions(draw):
    """A random transposed convolution, and images that it accepts."""
    axes = draw(st.sampled_from([1, 2, 2]))
    per_axis = lambda strategy: tuple(draw(strategy) for _ in range(axes))  # noqa: E731
    kernel, stride = per_axis(st.integers(1, 5)), per_axis(st.integers(1, 4))
    dilation, padding = per_axis(st.integers(1, 3)), per_axis(st.integers(0, 4))
    most = [max(s, d) - 1 for s, d in zip(stride, dilation, strict=True)]
    output_padding = tuple(draw(st.integers(0, end)) for end in most)
    sizes = []
    for k, s, d, p, o in zip(kernel, stride, dilation, padding, output_padding, strict=True):
        least = max(1, -(-(2 * p - o - d * (k - 1)) // s) + 1)  # the output has a pixel
        sizes.append(least + draw(st.integers(0, 4)))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    kind = nn.ConvTranspose1d if axes == 1 else nn.ConvTranspose2d
    how = (stride, padding, output_padding, groups, draw(st.booleans()), dilation)
    conv = kind(*channels, kernel, *how).double()
    batch = draw(st.sampled_from([(), (0,), (1,), (2,)]))
    return conv, torch.randn(*batch, channels[0], *sizes).double()


@settings(max_examples=300, deadline=None)
@given(transposed_convolutions())
def test_any_transposed_convolution(case):
    conv, x = case
    layer = conv_to_attention(conv)
    assert type(layer) is TransposedAsAttention
    ours, theirs = layer(x).detach(), conv(x).detach()
    assert ours.shape == theirs.shape
    # torch gives an output of an empty batch other strides
    assert ours.stride() == theirs.stride() or theirs.numel() == 0
    assert not x.numel() or largest_gap(ours, theirs) < 1e-12


@pytest.mark.parametrize("size", [(2, 3, 12, 20), (10, 21)])
def test_the_output_size_is_chosen_as_in_torch(size):
    conv = nn.ConvTranspose2d(4, 3, 3, stride=(3, 3), padding=1, output_padding=1).double()
    layer = conv_to_attention(conv)
    x = torch.randn(2, 4, 4, 7).double()
    ours = layer(x, output_size=list(size)).detach()
    assert ours.shape[2:] == size[-2:]
    assert largest_gap(ours, conv(x, output_size=list(size)).detach()) < 1e-12
    assert largest_gap(layer(x[0], list(size)[-2:]), layer(x, list(size))[0]) < 1e-12


@pytest.mark.parametrize("size", [(9, 20), (10, 22), (5,), (1, 2, 4, 10, 20)])
def test_an_output_size_out_of_range_is_refused(size):
    conv = nn.ConvTranspose2d(4, 3, 3, stride=3, padding=1, output_padding=1)
    layer = conv_to_attention(conv)
    x = torch.randn(2, 4, 4, 7)
    with pytest.raises(ValueError, match=r"output.size"):
        conv(x, output_size=list(size))
    with pytest.raises(ValueError, match=r"expected 2 sizes from \(10, 19\) to \(12, 21\)"):
        layer(x, size)
    assert layer(x, (10, 19)).shape[2:] == (10, 19) and layer(x, (12, 21)).shape[2:] == (12, 21)


def test_a_transposed_convolution_is_theorem_1_on_the_image_spread_out():
    conv = nn.ConvTranspose2d(2, 3, (3, 2), stride=(2, 3), bias=False).double()
    x = torch.randn(1, 2, 4, 5).double()
    image = torch.zeros(1, 2, 7, 13).double()
    for row in range(4):
        for column in range(5):
            image[:, :, 2 * row, 3 * column] = x[:, :, row, column]
    assert torch.equal(spread_out(x, (2, 3)), image)
    ordinary = nn.Conv2d(2, 3, (3, 2), bias=False).double()
    ordinary.weight.data = conv.weight.data.flip(2, 3).transpose(0, 1)
    image = F.pad(image, (1, 1, 2, 2))
    for alpha in (None, 1.5):
        ours = conv_to_attention(conv, alpha)(x).detach()
        assert largest_gap(ours, conv_to_attention(ordinary, alpha)(image).detach()) < 1e-12
    assert largest_gap(ordinary(image).detach(), conv(x).detach()) < 1e-12


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1, groups=2)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        return self.out(self.up(self.down(x).relu(), output_size=x.shape[2:]))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_network_with_a_transposed_convolution(layout):
    network = UNet().double().to(memory_format=layout)
    converted = convert_network(network)
    x = torch.randn(2, 3, 10, 13).double()
    assert all(isinstance(module, ConvAsAttention) for module in list(converted.children()))
    assert converted(x).stride() == network(x).stride()
    assert largest_gap(converted(x).detach(), network(x).detach()) < 1e-12
    assert shapes(converted) == shapes(network)
    converted.load_state_dict(network.state_dict(), strict=True)
    network.load_state_dict(converted.state_dict(), strict=True)
    back = convert_back(converted, 10, 13)
    assert type(back.up) is nn.ConvTranspose2d
    assert largest_gap(back(x), network(x)) < 1e-12
    network(x).square().sum().backward()
    converted(x).square().sum().backward()
    for ours, theirs in zip(converted.parameters(), network.parameters(), strict=True):
        assert largest_gap(ours.grad, theirs.grad) < 1e-10
    traced = torch.fx.symbolic_trace(converted)
    assert torch.equal(traced(x), converted(x))
    assert cost_of(converted).flops > cost_of(converted.down).flops > 0


@pytest.mark.slow
def test_a_transposed_convolution_is_compiled():
    layer = conv_to_attention(nn.ConvTranspose2d(4, 3, 3, stride=2))
    x = torch.randn(1, 4, 5, 6)
    compiled = torch.compile(layer, backend="eager")
    assert largest_gap(compiled(x).detach(), layer(x).detach()) < 1e-5


def shapes(module):
    return {name: value.shape for name, value in module.state_dict().items()}


def test_states_of_sequences_are_not_taken_for_those_saved_by_head():
    conv = nn.ConvTranspose1d(1, 5, 3)  # its weight has the shape of one saved by head
    layer = conv_to_attention(conv)
    other = nn.ConvTranspose1d(1, 5, 3)
    layer.load_state_dict(other.state_dict(), strict=True)
    assert torch.equal(layer.weight, other.weight)


@pytest.mark.parametrize("heads", ["soft", "moved"])
def test_soft_heads_are_not_converted_back(heads):
    conv = nn.ConvTranspose2d(2, 3, 3, stride=2)
    network = nn.Sequential(conv_to_attention(conv, 1.5 if heads == "soft" else None))
    if heads == "moved":
        network[0].encoding.centers.data += 1
    message = r"0 back: .* not one-hot .*hard_alpha\(dtype\)\) if they have not moved"
    with pytest.raises(ValueError, match=message):
        convert_back(network, 5, 5)
    if heads == "soft":
        hard = convert_network(network, alpha=hard_alpha(torch.float32))
        assert torch.equal(convert_back(hard, 5, 5)[0].weight, conv.weight)


def test_a_transposed_convolution_with_a_computed_weight_is_folded():
    conv = parametrizations.weight_norm(nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2).double())
    layer = conv_to_attention(conv, fold=True)
    x = torch.randn(1, 4, 5, 6).double()
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert largest_gap(layer(x).detach(), conv(x).detach()) < 1e-12


def test_impossible_transposed_convolutions_are_refused():
    x = torch.randn(1, 2, 5, 5)
    other = nn.ConvTranspose2d(2, 3, 3, output_padding=1)
    with pytest.raises(RuntimeError, match="output padding must be smaller"):
        other(x)
    with pytest.raises(
        ValueError, match=r"its output_padding is \(1, 1\), expected at most \(0, 0\)"
    ):
        conv_to_attention(other)
    small = nn.ConvTranspose2d(2, 3, 1, padding=3)
    with pytest.raises(RuntimeError):
        small(x)
    with pytest.raises(ValueError, match="axis 0 has -1 pixels with padding"):
        conv_to_attention(small)(x)

    class Doubled(nn.ConvTranspose2d):
        def forward(self, x):
            return 2 * super().forward(x)

    with pytest.raises(TypeError, match="its forward is not that of a plain convolution"):
        conv_to_attention(Doubled(2, 3, 3))


def test_later_changes_to_the_transposed_convolution_have_no_effect():
    conv = nn.ConvTranspose1d(2, 3, 3)
    x = torch.randn(1, 2, 5)
    layer = conv_to_attention(conv)
    before = copy.deepcopy(conv)
    conv.weight.data.zero_()
    assert largest_gap(layer(x).detach(), before(x).detach()) < 1e-6
