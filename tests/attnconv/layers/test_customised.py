"""Convolutions that pad in their own way or compute their weight, as many libraries write them."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm

from attnconv import conv_to_attention, convert_back, convert_network
from attnconv.layers.attention_as_conv import PaddedConv1d, PaddedConv2d
from attnconv.layers.conv_as_attention import ConvAsAttention
from companion.gaps import largest_gap

SIZES = ((9, 8), (10, 13), (6, 7), (7, 12))


def images(conv, size, channels=4):
    return torch.randn(2, channels, *size[: 1 if isinstance(conv, nn.Conv1d) else 2]).double()


def made(kind, *given, **options):
    torch.manual_seed(1)
    return kind(4, 6, *given, **options).double()


class SameByStride(nn.Conv2d):
    """TensorFlow's "same" padding, which depends on the size of the image."""

    def forward(self, x):
        pads = []
        for size, k, s, d in zip(
            x.shape[-2:], self.kernel_size, self.stride, self.dilation, strict=True
        ):
            total = max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
            pads = [total // 2, total - total // 2, *pads]
        x = F.pad(x, pads)
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class StaticSame(nn.Conv2d):
    """The padding is a module of its own."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.static_padding = nn.ZeroPad2d((1, 2, 0, 1))

    def forward(self, x):
        return super().forward(self.static_padding(x))


class Causal(nn.Conv1d):
    def forward(self, input):
        pads = (self.dilation[0] * (self.kernel_size[0] - 1), 0)
        return super().forward(F.pad(input, pads))


class CutAtTheEnd(nn.Conv1d):
    def forward(self, input):
        return super().forward(input)[..., : -self.padding[0]]


PADDED = {
    "same by stride": made(SameByStride, 3, stride=2),
    "same by stride, unequal": made(SameByStride, (5, 2), stride=(3, 1), dilation=(1, 2), groups=2),
    "stride larger than the kernel": made(SameByStride, 1, stride=3, bias=False),
    "stride larger than a kernel that needs padding": made(SameByStride, 2, stride=4),
    "static": made(StaticSame, 3, stride=2),
    "causal": made(Causal, 3, dilation=2),
    "causal, stride": made(Causal, 4, stride=3, groups=2),
    "cut at the end": made(CutAtTheEnd, 3, padding=2),
    "cut at the end, stride": made(CutAtTheEnd, 4, padding=3, stride=2),
}


@pytest.mark.parametrize("alpha", [None, 2.0])
@pytest.mark.parametrize("name", PADDED)
def test_a_padding_of_its_own_is_kept(name, alpha):
    conv = copy.deepcopy(PADDED[name])
    network = nn.Sequential(nn.Identity(), conv)
    converted = convert_network(network, alpha)
    layer = converted[1]
    assert isinstance(layer, ConvAsAttention) and layer.padding == conv.padding
    assert list(converted.state_dict())[: len(conv.state_dict())] == list(network.state_dict())
    for size in SIZES:
        x = images(conv, size)
        gap = largest_gap(layer(x).detach(), conv(x).detach())
        assert gap < 1e-12 if alpha is None else gap > 1e-3
        assert layer(x[0]).shape == conv(x[0]).shape
        back = convert_back(converted, *x.shape[2:])
        assert largest_gap(back(x).detach(), converted(x).detach()) < 1e-10
        if alpha is None:
            ambiguous = conv.kernel_size == (1, 1)  # such a layer needs no padding
            assert ambiguous or type(back[1]) in (PaddedConv1d, PaddedConv2d)
            again = convert_network(back)
            assert largest_gap(again(x).detach(), conv(x).detach()) < 1e-12
    with torch.no_grad():  # the weights are those of the convolution
        for parameter in conv.parameters():
            parameter.uniform_()
    if alpha is None:
        converted.load_state_dict(network.state_dict(), strict=True)
        network.load_state_dict(converted.state_dict(), strict=True)
        assert largest_gap(layer(x).detach(), conv(x).detach()) < 1e-12


class Standardised(nn.Conv2d):
    def forward(self, x):
        deviation, mean = torch.std_mean(self.weight, dim=(1, 2, 3), keepdim=True)
        weight = (self.weight - mean) / deviation
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class StandardisedSame(SameByStride):
    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.gain = nn.Parameter(torch.ones(self.out_channels, 1, 1, 1))

    def forward(self, x):
        deviation, mean = torch.std_mean(self.weight, dim=(1, 2, 3), keepdim=True)
        weight = (self.weight - mean) / deviation * self.gain
        with parameters(self, weight=weight):
            return super().forward(x)


class parameters:
    """Give a module other parameters inside a block."""

    def __init__(self, module, **values):
        self.module = module
        self.values = values

    def __enter__(self):
        self.own = dict(self.module._parameters)
        self.module._parameters.update(self.values)

    def __exit__(self, *_):
        self.module._parameters.update(self.own)


class Halved(nn.Conv2d):
    @property
    def weight(self):
        if "weight" not in self._parameters:
            raise AttributeError("weight")
        return self._parameters["weight"] / 2

    def reset_parameters(self):
        """Fill the parameter; torch would fill the result of the property."""
        nn.init.normal_(self._parameters["weight"])
        nn.init.normal_(self.bias)


class Scaled(nn.Conv2d):
    """Its scale is one until it is trained."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.scale * F.conv2d(x, self.weight, self.bias, self.stride, self.padding)


COMPUTED = {
    "standardised": lambda: made(Standardised, 3, stride=2, groups=2),
    "standardised and same": lambda: made(StandardisedSame, 3, stride=2),
    "property": lambda: made(Halved, 3, padding="same", padding_mode="circular"),
    "weight norm": lambda: parametrizations.weight_norm(made(nn.Conv2d, 3, padding=1)),
    "spectral norm": lambda: parametrizations.spectral_norm(made(nn.Conv1d, 3)),
    "orthogonal": lambda: parametrizations.orthogonal(made(nn.Conv2d, 3)),
    "weight norm by a hook": lambda: by_hook(made(nn.Conv2d, 3)),
    "spectral norm by a hook": lambda: spectral_norm(made(nn.Conv2d, 3)),
    "pruned": lambda: prune.l1_unstructured(made(nn.Conv2d, 3), "weight", 0.5),
    "normalised and same": lambda: parametrizations.weight_norm(made(SameByStride, 3, stride=2)),
    "a scale that is one": lambda: made(Scaled, 3),
}
KEPT_BY_HOOKS = ("weight norm by a hook", "spectral norm by a hook", "pruned")


def by_hook(conv):
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(conv)


@pytest.mark.parametrize("name", COMPUTED)
def test_a_computed_weight_is_folded_on_request(name):
    conv = COMPUTED[name]().train()
    x = images(conv, SIZES[0])
    network = nn.Sequential(conv)
    conv(x).sum().backward()  # hooks keep tensors with gradients
    if name not in KEPT_BY_HOOKS:
        with pytest.raises(TypeError, match=r"cannot convert 0 .*; pass fold=True"):
            convert_network(network)
    before = copy.deepcopy(dict(conv.named_buffers()))
    converted = convert_network(network, fold=True)
    for key, value in conv.named_buffers():  # no power iteration has run
        assert torch.equal(value, before[key])
    layer = converted[0]
    assert isinstance(layer, ConvAsAttention)
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.requires_grad
    names = ["0.weight", "0.bias"]
    assert list(converted.state_dict()) == [n for n, _ in converted.named_parameters()][:2] == names
    for size in SIZES:
        x = images(conv, size)
        theirs = network.eval()(x).detach()
        assert largest_gap(converted.eval()(x).detach(), theirs) < 1e-12
        assert largest_gap(convert_back(converted, *x.shape[2:])(x).detach(), theirs) < 1e-12
    converted.train()(x).sum().backward()
    assert layer.weight.grad.abs().sum() > 0
    assert "folded" in converted.conversion_report.replaced["0"]
    assert torch.equal(conv_to_attention(conv, fold=True).eval()(x), converted.eval()(x))


def test_folding_leaves_ordinary_convolutions_and_other_hooks():
    called = []
    plain = made(nn.Conv2d, 3)
    normed = spectral_norm(nn.Conv2d(6, 5, 3).double())
    plain.register_forward_hook(lambda *_: called.append("plain"))
    normed.register_forward_pre_hook(lambda *_: called.append("normed"))
    plain.register_buffer("mask", torch.ones(1))
    converted = convert_network(nn.Sequential(plain, normed), fold=True)
    assert not called  # the layers were run without their hooks
    converted(images(plain, (9, 9)))
    assert called == ["plain", "normed"]
    assert list(converted.state_dict()) == ["0.weight", "0.bias", "0.mask", "1.weight", "1.bias"]


@pytest.mark.parametrize(
    "mode", [torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.enable_grad()]
)
def test_modes_around_the_conversion_make_no_difference(mode):
    network = nn.Sequential(copy.deepcopy(PADDED["static"]), Standardised(6, 5, 3).double()).float()
    with mode:
        converted = convert_network(network, fold=True)
    x = images(PADDED["static"], (9, 9)).float()
    assert largest_gap(converted(x).detach(), network(x).detach()) < 1e-5


def by_input(self, x):
    return F.conv2d(x, self.weight * x.mean().sigmoid(), self.bias)


def by_mode(self, x):
    return F.conv2d(x * 2 if self.training else x, self.weight, self.bias)


def by_size(self, x):
    return F.conv2d(F.pad(x, (x.shape[-1] % 4, 0, 0, 0)), self.weight, self.bias)


def padded_with_ones(self, x):
    return F.conv2d(F.pad(x, (2, 0, 0, 0), value=1), self.weight, self.bias)


def twice(self, x):
    return 2 * F.conv2d(x, self.weight, self.bias)


def with_a_relu(self, x):
    return F.conv2d(x, self.weight, self.bias).relu()


def two_convolutions(self, x):
    return F.conv2d(x, self.weight, self.bias) + F.conv2d(x, self.weight, None)


def no_convolution(self, x):
    return x[:, :1].expand(-1, 6, -1, -1)


def other_stride(self, x):
    return F.conv2d(x, self.weight, self.bias, stride=2)


def several_outputs(self, x):
    return F.conv2d(x, self.weight, self.bias), x


def more_arguments(self, x, mask):
    return F.conv2d(x * mask, self.weight, self.bias)


OTHERS = (
    *(by_input, by_mode, by_size, padded_with_ones, twice, with_a_relu, two_convolutions),
    *(no_convolution, other_stride, several_outputs, more_arguments),
)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("forward", OTHERS)
def test_a_layer_that_computes_something_else_is_refused(forward, zeros):
    kind = type("Other", (nn.Conv2d,), {"forward": forward})
    network = nn.Sequential(nn.Identity(), made(kind, 3, bias=not zeros))
    if zeros:  # no output tells what happens to it
        nn.init.zeros_(network[1].weight)
    state = torch.random.get_rng_state()
    for fold in (False, True):
        with pytest.raises(TypeError, match=r"1 \(Other\): its forward is not .*; first replace"):
            convert_network(network, fold=fold)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    "kind", ["Conv2dSame", "StdConv2d", "StdConv2dSame", "ScaledStdConv2dSame"]
)
def test_layers_of_timm(kind):
    layers = pytest.importorskip("timm.layers")
    conv = made(getattr(layers, kind), 3, stride=2)
    layer = conv_to_attention(conv, fold=True)
    for size in SIZES:
        x = images(conv, size)
        assert largest_gap(layer(x).detach(), conv(x).detach()) < 1e-11
