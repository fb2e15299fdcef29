"""Uses of a convolution's weight, each with a converted layer and with the convolution itself."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from attnconv import conv_to_attention, convert_network
from attnconv.layers.convert import CONVOLUTIONS
from companion.gaps import largest_gap

X = torch.randn(2, 6, 9, 8, generator=torch.Generator().manual_seed(1)).double()


def a_convolution():
    return nn.Conv2d(6, 8, 3, stride=2, padding=(1, 2), groups=2).double()


def fuse_by_hand(layer):
    norm = a_norm()
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    fused = scale[:, None] * layer.weight.reshape(8, -1)
    layer.weight.data = fused.reshape(8, 3, 3, 3)
    layer.bias.data = (layer.bias - norm.running_mean) * scale + norm.bias
    return layer(X)


def fuse_with_torch(layer):
    return nn.utils.fuse_conv_bn_eval(layer.eval(), a_norm())(X)


def a_norm():
    norm = nn.BatchNorm2d(8).double().eval()
    norm.running_mean[:] = torch.arange(8) / 8
    norm.running_var[:] = 1 + torch.arange(8)
    return norm


def start_again(layer):
    for start in (nn.init.kaiming_normal_, nn.init.xavier_uniform_, nn.init.orthogonal_):
        torch.manual_seed(3)
        start(layer.weight)
    return layer(X)


def spectral_norm(layer):
    torch.manual_seed(3)
    return parametrizations.spectral_norm(layer).eval()(X)


def weight_norm(layer):
    parametrizations.weight_norm(layer)
    gains = layer.parametrizations.weight.original0
    assert gains.shape == (8, 1, 1, 1)
    gains.data *= torch.arange(8).view(gains.shape)
    return layer(X)


def prune_structured(layer):
    prune.ln_structured(layer, "weight", amount=3, n=2, dim=0)
    assert (layer.weight == 0).sum() == 3 * 27
    return layer(X)


def prune_permanently(layer):
    prune.l1_unstructured(layer, "weight", 0.3)
    prune.remove(layer, "weight")
    return layer(X)


def read_the_weight(layer):
    functional = F.conv2d(X, layer.weight, layer.bias, layer.stride, layer.padding, groups=2)
    return torch.cat([functional, layer(X) / layer.weight.flatten(1).norm(dim=1).view(-1, 1, 1)])


def tied_decoder(layer):
    return F.conv_transpose2d(layer(X), layer.weight, None, layer.stride, layer.padding, groups=2)


def standardise(layer):
    weight = layer.weight.view(8, -1)
    mean, deviation = weight.mean(dim=1, keepdim=True), weight.std(dim=1, keepdim=True)
    layer.weight.data = ((weight - mean) / deviation).view_as(layer.weight)
    return layer(X)


def merge_lora(layer):
    torch.manual_seed(3)
    down, up = torch.randn(2, 27).double(), torch.randn(8, 2).double()
    layer.weight.data += (up @ down).view(layer.weight.shape)
    return layer(X)


def merge_dora(layer):
    before = torch.linalg.vector_norm(layer.weight, dim=(1, 2, 3), keepdim=True)
    merge_lora(layer)
    after = torch.linalg.vector_norm(layer.weight, dim=(1, 2, 3), keepdim=True)
    layer.weight.data *= before / after
    return layer(X)


def as_a_vector(layer):
    vector = nn.utils.parameters_to_vector(layer.parameters())
    nn.utils.vector_to_parameters(vector.cumsum(0) / len(vector), layer.parameters())
    return layer(X)


def with_other_weights(layer):
    torch.manual_seed(3)
    other = a_convolution().state_dict()
    return torch.func.functional_call(layer, other, (X,))


@pytest.mark.parametrize(
    "use",
    [
        fuse_by_hand,
        fuse_with_torch,
        start_again,
        spectral_norm,
        weight_norm,
        prune_structured,
        prune_permanently,
        read_the_weight,
        tied_decoder,
        standardise,
        merge_lora,
        merge_dora,
        as_a_vector,
        with_other_weights,
    ],
)
def test_a_use_of_the_weight_gives_what_the_convolution_gives(use):
    conv = a_convolution()
    layer = conv_to_attention(conv)
    before = conv(X)
    ours, theirs = use(layer), use(conv)
    assert not isinstance(layer, CONVOLUTIONS)
    assert largest_gap(ours, theirs) < 1e-12
    assert theirs.shape != before.shape or largest_gap(theirs, before) > 1e-3  # it has an effect


def make_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def make_adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.1)


def make_lbfgs(parameters):
    return torch.optim.LBFGS(parameters, lr=0.1, max_iter=3)


@pytest.mark.parametrize("make", [make_sgd, make_adam, make_lbfgs])
def test_the_state_of_an_optimizer_carries_over(make):
    cnn = nn.Sequential(a_convolution(), nn.Tanh(), nn.Conv2d(8, 3, 1)).double()
    steps = make(cnn.parameters())

    def train(network, optimizer):
        def loss():
            optimizer.zero_grad()
            value = network(X).square().mean()
            value.backward()
            return value

        for _ in range(3):
            optimizer.step(loss)

    train(cnn, steps)
    converted = convert_network(cnn)
    assert [p.shape for p in converted.parameters()] == [p.shape for p in cnn.parameters()]
    others = make(converted.parameters())
    others.load_state_dict(copy.deepcopy(steps.state_dict()))
    trained = [parameter.detach().clone() for parameter in cnn.parameters()]
    train(cnn, steps)
    train(converted, others)
    for ours, theirs, before in zip(converted.parameters(), cnn.parameters(), trained, strict=True):
        assert largest_gap(ours, theirs) < 1e-10 and largest_gap(theirs, before) > 1e-3


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_network_moves_to_another_memory_format_as_its_cnn_does(layout):
    cnn = nn.Sequential(nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).double()
    converted = convert_network(cnn).to(memory_format=layout)
    cnn = cnn.to(memory_format=layout)
    for ours, theirs in zip(converted.parameters(), cnn.parameters(), strict=True):
        assert ours.stride() == theirs.stride()
    assert converted(X).stride() == cnn(X).stride()
    assert largest_gap(converted(X), cnn(X)) < 1e-12


@pytest.mark.parametrize("padding", ["same", "valid", 1, (1, 2)])
def test_the_layer_has_the_attributes_of_the_convolution(padding):
    conv = nn.Conv2d(4, 6, 3, padding=padding, dilation=2, groups=2, padding_mode="reflect")
    conv.note = "set by the user"
    conv.register_buffer("mask", torch.ones(4))
    layer = conv_to_attention(conv)
    tensors = ("_parameters", "_buffers", "_modules")
    for name, value in vars(conv).items():
        if name not in tensors and "hook" not in name:
            assert getattr(layer, name) == value
    assert torch.equal(layer.mask, conv.mask)
    layer.load_state_dict(conv.state_dict(), strict=True)


def test_a_weight_normalised_by_a_parametrisation_can_be_made_permanent():
    layer = conv_to_attention(a_convolution())
    before = layer(X)
    parametrizations.weight_norm(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert largest_gap(layer(X), before) < 1e-12
