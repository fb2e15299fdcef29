"""Theorem 2: position-only attention, in layers and networks, against its convolutions."""

import copy

import pytest
import torch
from helpers.encodings import H, W, kinds
from helpers.models import small_cnn
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from attnconv import (
    attention_probabilities,
    attention_to_conv,
    build_model,
    conv_to_attention,
    convert_back,
    convert_network,
    load_model,
)
from attnconv.layers.attention import PositionAttention
from attnconv.layers.attention_as_conv import AttentionAsConv, HeadsAsConv
from attnconv.layers.conv_as_attention import ConvAsAttention
from attnconv.layers.encodings import QuadraticEncoding, RelativeBias
from companion.gaps import largest_gap
from companion.runs.select import Records
from companion.runs.weights import WEIGHTS_FILE
from companion.studies.freed.network import START_ALPHA, as_free_attention

CONVOLVES = (nn.Conv1d, nn.Conv2d, AttentionAsConv)  # each runs one convolution
BOUND = {torch.float64: 1e-10, torch.float32: 1e-5}


class Operations(TorchDispatchMode):
    """The names of the operations that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))

    def count(self, part):
        return sum(part in name for name in self.names)


@torch.no_grad()
def compare(network, back, x):
    """The largest gap between both; the second one convolves and never attends."""
    with Operations() as operations:
        found = back(x)
    assert not operations.count("softmax") and not operations.count("scaled_dot_product")
    modules = [module for module in back.modules() if isinstance(module, CONVOLVES)]
    assert operations.count("convolution") == len(modules) > 0
    return largest_gap(found, network(x))


CONVOLUTIONS = {
    "groups": nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2), groups=2),
    "depthwise": nn.Conv2d(4, 8, 3, stride=3, groups=4, bias=False),
    "even, same": nn.Conv2d(4, 5, 4, padding="same", padding_mode="reflect"),
    "circular": nn.Conv2d(4, 5, 3, padding=1, padding_mode="circular"),
    "replicate": nn.Conv2d(4, 5, 5, padding=2, padding_mode="replicate"),
    "one pixel": nn.Conv2d(4, 5, 1, stride=2),
    "sequence": nn.Conv1d(4, 6, 5, stride=2, padding=1, dilation=2, groups=2),
}


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("heads", ["hard", "soft", "moved", "moved and soft", "unlike"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_layer_becomes_convolutions(name, heads, dtype):
    conv = copy.deepcopy(CONVOLUTIONS[name]).to(dtype)
    sizes = (10, 12)[: len(conv.kernel_size)]
    layer = conv_to_attention(conv, None if heads in ("hard", "moved") else 1.5)
    with torch.no_grad():
        if heads == "moved":  # to a pixel of each padded image
            layer.encoding.centers[0] += 1
        if heads == "moved and soft":
            layer.encoding.centers += torch.rand_like(layer.encoding.centers) - 0.5
        if heads == "unlike":
            layer.encoding.spread *= 1 + torch.rand_like(layer.encoding.spread)
    back = convert_back(layer, *sizes)
    x = torch.randn(2, 4, *sizes, dtype=dtype)
    assert compare(layer, back, x) < BOUND[dtype]
    assert largest_gap(back(x[0]), layer(x[0])) < BOUND[dtype]
    if heads != "hard":
        assert type(back) is HeadsAsConv and largest_gap(back(x), conv(x)) > 1e-3
        return
    assert type(back) is type(conv) and torch.equal(back.weight, conv.weight)
    for attribute in ("stride", "padding", "dilation", "groups", "padding_mode"):
        assert getattr(back, attribute) == getattr(conv, attribute), attribute


def test_a_converted_cnn_becomes_the_cnn_again():
    cnn = small_cnn()
    images = torch.randn(2, 3, 20, 18, dtype=torch.float64)
    back = convert_back(convert_network(cnn), 20, 18)
    assert [type(m) for m in back.modules()] == [type(m) for m in cnn.modules()]
    assert back.state_dict().keys() == cnn.state_dict().keys()
    assert all(torch.equal(value, cnn.state_dict()[n]) for n, value in back.state_dict().items())
    assert torch.equal(back(images), cnn(images))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_freed_heads_become_convolutions(dtype, bound):
    freed = as_free_attention(small_cnn(), START_ALPHA, random_places=True).to(dtype)
    images = torch.randn(2, 3, 20, 18, dtype=dtype)
    back = convert_back(freed, 20, 18)
    assert compare(freed, back, images) < bound
    assert not any(isinstance(module, ConvAsAttention) for module in back.modules())
    with pytest.raises(ValueError, match=r"for which the network was converted"):
        back(images[:, :, :18])


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("name", ["sa-quadratic", "sa-generalized", "sa-learned"])
def test_self_attention_networks_become_convolutions(name, dtype):
    sizes = {"hidden": 24, "intermediate": 24, "num_layers": 3, "image_size": 12, "pooling": 2}
    network = build_model(name, **sizes).to(dtype)  # in training, with dropout
    back = convert_back(network, 12, 12)
    images = torch.randn(2, 3, 12, 12, dtype=dtype)
    assert network.training and not back.training
    assert compare(network.eval(), back, images) < BOUND[dtype]
    assert not any(isinstance(module, PositionAttention) for module in back.modules())


@pytest.mark.parametrize("name", list(kinds()))
def test_a_lone_layer_is_a_network(name):
    layer = PositionAttention(kinds(torch.float64)[name], 3, 5).double()
    back = convert_back(layer, H, W)
    assert compare(layer, back, torch.randn(2, H, W, 3, dtype=torch.float64)) < 1e-10


def test_the_given_network_stays_as_it_was():
    network = convert_network(small_cnn().train())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.random.get_rng_state()
    hooks = len(network._forward_hooks)
    back = convert_back(network, 20, 20)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert network.training and len(network._forward_hooks) == hooks == len(back._forward_hooks)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    with torch.no_grad():
        for parameter in back.parameters():
            parameter.zero_()
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_a_shared_layer_stays_shared_and_other_modules_stay():
    shared = nn.Conv2d(3, 3, 3, padding=1)
    network = nn.Sequential(shared, nn.Softmax(dim=1), shared, nn.Flatten(), nn.Linear(108, 2))
    network.append(nn.Softmax(dim=-1))  # over classes, which is no attention
    back = convert_back(convert_network(network), 6, 6)
    assert back[0] is back[2] and type(back[0]) is nn.Conv2d
    x = torch.randn(1, 3, 6, 6)
    assert torch.equal(back(x), network(x))


class Tokens(nn.Module):
    """Pixels as tokens of a transformer's layer, by torch's attention or by hand."""

    def __init__(self, attention):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, stride=4)
        self.attention = attention

    def forward(self, images):
        return self.attention(self.conv(images).flatten(2).mT)


class ByHand(nn.Module):
    def forward(self, X):
        return (X @ X.mT).softmax(-1) @ X


@pytest.mark.parametrize(
    ("network", "named"),
    [
        (
            build_model("sa-learned-content", hidden=16, intermediate=16, image_size=16),
            r"blocks\.0\.attention \(ContentAttention\)",
        ),
        (
            Tokens(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)),
            r"attention(\.self_attn \(MultiheadAttention\)| \(TransformerEncoderLayer\))",
        ),
        (Tokens(nn.Sequential(ByHand())), r"attention\.0 \(ByHand\)"),
    ],
)
def test_attention_that_depends_on_the_image_is_refused(network, named):
    with pytest.raises(TypeError, match=rf"cannot convert {named} back: its attention depends"):
        convert_back(network, 16, 16)


def test_layers_without_a_size_of_their_own_and_sharp_heads_are_refused():
    layer = conv_to_attention(nn.Conv2d(3, 3, 3, stride=2), alpha=1.0)
    with pytest.raises(ValueError, match=r"convert 0 back: it met .* \(7, 7\), \(15, 15\)"):
        convert_back(nn.Sequential(layer, layer), 15, 15)
    network = nn.Sequential(nn.Conv2d(3, 3, 1))
    network[0].unused = layer
    with pytest.raises(
        ValueError, match=r"convert 0\.unused back: it met images of the sizes none"
    ):
        convert_back(network, 15, 15)
    sharp = conv_to_attention(nn.Conv2d(3, 3, 3), alpha=50.0)
    with torch.no_grad():
        sharp.encoding.centers[4] -= 3  # beyond the image, where the first query stands
    with pytest.raises(ValueError, match=r"cannot convert 0 back: the border factor of head 5"):
        convert_back(nn.Sequential(sharp), 9, 9)


class Pyramid(nn.Module):
    """One layer on images of two sizes, and one that runs only in training."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Conv2d(3, 3, 3, padding=1)
        self.auxiliary = nn.Conv2d(3, 5, 1)

    def forward(self, images):
        large = self.shared(images)
        small = self.shared(images[..., ::2, ::2])
        return large.amax((2, 3)) + small.amax((2, 3))


def test_one_hot_heads_need_no_size_of_their_own():
    network = Pyramid()
    x = torch.randn(2, 3, 12, 12)
    back = convert_back(convert_network(network), 12, 12)
    assert [type(module) for module in back.modules()] == [type(m) for m in network.modules()]
    assert torch.equal(back(x), network(x))
    assert torch.equal(back.auxiliary(x), network.auxiliary(x))
    with pytest.raises(ValueError, match=r"convert auxiliary back: it met images of .* none"):
        soft = convert_network(network)
        soft.auxiliary = conv_to_attention(network.auxiliary, alpha=2.0)
        convert_back(soft, 12, 12)


class TwoInputs(nn.Module):
    """A convolution of one image, and of another one scaled by a number."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(5, 4, 1)

    def forward(self, left, *, right, scale):
        return self.first(left) + scale * self.second(right)


WAVE = nn.Sequential(nn.Unflatten(1, (1, -1)), nn.Conv1d(1, 4, 9, stride=4), nn.ReLU())


@pytest.mark.parametrize(
    ("network", "inputs", "named"),
    [
        (
            Tokens(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)),
            (torch.randn(2, 3, 16, 16),),
            {},
        ),
        (
            TwoInputs(),
            (torch.randn(2, 3, 6, 7),),
            {"right": torch.randn(2, 5, 6, 7), "scale": 0.5},
        ),
        (WAVE, (torch.randn(2, 64),), {}),
    ],
    ids=["attention", "two inputs", "waveform"],
)
def test_a_network_of_one_hot_heads_is_not_run(network, inputs, named):
    network.eval()
    converted = convert_network(network)
    assert any(isinstance(module, ConvAsAttention) for module in converted.modules())
    back = convert_back(converted)
    assert [type(module) for module in back.modules()] == [type(m) for m in network.modules()]
    assert torch.equal(back(*inputs, **named), network(*inputs, **named))
    with pytest.raises(ValueError, match=r"needed, .* not one-hot; expected convert_back\(network"):
        convert_back(convert_network(network, alpha=2.0))


def test_pooling_by_a_softmax_over_pixels_stays():
    """Global context, as in GCNet: a softmax over pixels, but not one for each query."""
    pooling = pytest.importorskip("timm.layers").GlobalContext(8)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), pooling).eval()
    converted = convert_network(network)
    back = convert_back(converted, 12, 12)
    x = torch.randn(2, 3, 12, 12)
    assert not any(isinstance(module, ConvAsAttention) for module in back.modules())
    assert torch.equal(back(x), network(x))


def test_a_network_that_takes_no_images_is_refused():
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(48, 50), nn.Unflatten(1, (2, 5, 5)), nn.Conv2d(2, 3, 3)
    )
    with pytest.raises(ValueError, match=r"does not run on an image of shape \(1, 2, 4, 4\)"):
        convert_back(convert_network(network, alpha=2.0), 4, 4)


class Growing(nn.Module):
    """A network whose `in_channels` is a variable of its constructor, as in many ResNets."""

    def __init__(self):
        super().__init__()
        self.in_channels = 3
        layers = []
        for channels in (8, 16):
            layers.append(nn.Conv2d(self.in_channels, channels, 3, padding=1))
            self.in_channels = channels
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def test_the_channels_of_the_image_are_those_that_run():
    network = convert_network(Growing(), alpha=2.0)
    x = torch.randn(2, 3, 6, 6)
    assert largest_gap(convert_back(network, 6, 6)(x), network(x)) < 1e-5
    too_small = convert_network(nn.Sequential(nn.Conv2d(3, 4, 5)), alpha=2.0)
    with pytest.raises(ValueError, match=r"image of shape \(1, 3, 3, 3\) \(axis 0 has 3 pixels"):
        convert_back(too_small, 3, 3)


STORED = [
    run
    for run in Records.read().found
    if (run.folder / WEIGHTS_FILE).exists()
    and not run.info.parameters["model"].startswith(("vit", "resnet", "cnn"))
    and run.info.parameters["model"] != "sa-learned-content"
]


@pytest.mark.slow
@pytest.mark.parametrize("run", STORED, ids=lambda run: run.name)
def test_every_trained_network_of_position_only_attention_is_converted_back(run):
    """Trained heads reach far and are sharp, which random ones are not."""
    of = run.info.parameters
    network = load_model(of["model"], tier=of["tier"], seed=of["seed"])
    x = torch.randn(2, 3, 32, 32)
    assert compare(network, convert_back(network, 32, 32), x) < 1e-4 * network(x).abs().max()


# --- layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(kinds()))
@settings(max_examples=15, deadline=None)
@given(height=st.integers(1, 6), width=st.integers(1, 7), seed=st.integers(0, 2**31))
def test_the_converse_is_exact(name, height, width, seed):
    torch.manual_seed(seed)
    encoding = (
        RelativeBias(3 * torch.randn(4, 2 * height - 1, 2 * width - 1))
        if name == "bias"
        else kinds()[name]
    )
    layer = PositionAttention(encoding, 3, 5).double()
    X = torch.randn(2, height, width, 3).double()
    dense = layer.value(
        torch.einsum("hijkl,bkld->bijhd", attention_probabilities(layer, height, width), X).flatten(
            -2
        )
    )
    assert largest_gap(attention_to_conv(layer, height, width)(X).detach(), dense.detach()) < 1e-12


def test_the_converse_refuses_what_it_cannot_do():
    sharp = PositionAttention(
        QuadraticEncoding.from_alpha(torch.tensor([[3.0, 0.0]]), alpha=100.0), 3, 4
    )
    with pytest.raises(ValueError, match="border factor of head 1"):
        attention_to_conv(sharp, 8, 8)
    undefined = PositionAttention(RelativeBias(torch.full((1, 9, 9), torch.nan)), 3, 4)
    with pytest.raises(ValueError, match="border factor of head 1 falls to nan"):
        attention_to_conv(undefined, 5, 5)
    with pytest.raises(TypeError, match="expected a PositionAttention layer"):
        attention_to_conv(nn.Linear(2, 2), 8, 8)
    module = attention_to_conv(PositionAttention(QuadraticEncoding(4), 3, 4), 5, 6)
    with pytest.raises(ValueError, match=r"expected \(batch, 5, 6, channels\)"):
        module(torch.randn(1, 6, 5, 3))
