"""Networks as other people write them: nothing is silently left, dropped or doubled."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from attnconv import conv_to_attention, convert_back, convert_network
from attnconv.layers.conv_as_attention import ConvAsAttention
from companion.gaps import largest_gap

X = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(1))


def gap(network, converted, x=X):
    return largest_gap(converted(x).detach(), network(x).detach())


# --- references and hooks -------------------------------------------------------------------------


class Referring(nn.Module):
    """It calls its convolution through a list, a dict, a bound method, a partial and a closure."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.listed = [self.conv]
        self.named = {"conv": self.conv}
        self.bound = self.conv.forward
        self.partial = partial(self.conv, input=X)

    def forward(self, x):
        return self.listed[0](self.named["conv"](self.bound(x))) + self.partial()


def test_every_reference_to_a_convolution_follows():
    network = Referring()
    converted = convert_network(network, images=X)
    assert converted.listed[0] is converted.conv and isinstance(converted.conv, ConvAsAttention)
    assert not converted.conversion_report.comparison.executed
    with torch.no_grad():
        converted.conv.weight *= 2
        network.conv.weight *= 2
    assert gap(network, converted) < 1e-5


def test_a_kept_forward_takes_no_other_weights():
    layer = conv_to_attention(nn.Conv2d(3, 4, 3))
    other = torch.ones_like(layer.weight)
    with pytest.raises(ValueError, match=r"pass others with torch\.func\.functional_call"):
        layer._conv_forward(X, other, layer.bias)
    ours = torch.func.functional_call(layer, {"weight": other}, (X,))
    assert largest_gap(ours.detach(), F.conv2d(X, other, layer.bias).detach()) < 1e-5


def test_hooks_of_all_kinds_are_kept():
    called = []

    def note(name):
        return lambda *_, **__: called.append(name)

    conv = nn.Conv2d(3, 4, 3)
    conv.register_forward_pre_hook(note("before"))
    conv.register_forward_pre_hook(note("before, with names"), with_kwargs=True)
    conv.register_forward_hook(note("after"))
    conv.register_forward_hook(note("after, always"), always_call=True)
    conv.register_full_backward_pre_hook(note("before backward"))
    conv.register_full_backward_hook(note("after backward"))
    conv.register_state_dict_pre_hook(note("before saving"))
    conv.register_state_dict_post_hook(note("after saving"))
    conv.register_load_state_dict_pre_hook(note("before loading"))
    conv.register_load_state_dict_post_hook(note("after loading"))
    lists = []
    for network in (conv, conv_to_attention(conv), convert_network(nn.Sequential(conv))):
        called.clear()
        network(X.clone().requires_grad_()).sum().backward()
        network.load_state_dict(network.state_dict())
        lists.append(list(called))
    assert lists[0] == lists[1] == lists[2] and len(lists[0]) == 10


def test_buffers_attributes_and_parameters_of_a_convolution_survive():
    network = nn.Sequential(nn.Conv2d(3, 4, 3))
    network[0].register_buffer("mask", torch.ones(4))
    network[0].register_buffer("step", torch.zeros(1), persistent=False)
    network[0].gate = nn.Parameter(torch.ones(1))
    converted = convert_network(network)
    converted.load_state_dict(network.state_dict(), strict=True)
    assert converted.state_dict().keys() == network.state_dict().keys()
    assert torch.equal(converted[0].step, network[0].step)
    network[0].encoding = "taken"
    with pytest.raises(TypeError, match=r"its attribute encoding has the name .*; rename it"):
        convert_network(network)


# --- refusals, each with a remedy -----------------------------------------------------------------


class WithProperty(nn.Conv2d):
    @property
    def weight(self):
        if "weight" not in self._parameters:
            raise AttributeError("weight")
        return self._parameters["weight"] / 2


class WithCall(nn.Conv2d):
    def __call__(self, *inputs):
        return 2 * super().__call__(*inputs)


class WithMethod(nn.Conv2d):
    def train(self, mode=True):
        return super().train(False)


@pytest.mark.parametrize(
    ("kind", "name"), [(WithCall, "__call__"), (WithMethod, "train"), (WithProperty, "weight")]
)
def test_subclasses_that_compute_something_else_are_refused_by_name(kind, name):
    network = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Sequential(kind(3, 4, 3)))
    message = rf"cannot convert 1\.0 \({kind.__name__}\): its {name} is not that of a plain"
    with pytest.raises(TypeError, match=message):
        convert_network(network)
    assert gap(network, convert_network(network, skip=["1.0"])) < 1e-5
    plain = nn.Conv2d(3, 4, 3)
    network[1][0] = plain
    assert gap(network, convert_network(network)) < 1e-5


class Doubled(nn.ConvTranspose2d):
    def forward(self, x):
        return 2 * super().forward(x)


def test_all_obstacles_are_listed_at_once_and_each_remedy_works():
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        Doubled(4, 4, 3),
        nn.LazyConv2d(4, 3),
        parametrizations.weight_norm(nn.Conv2d(4, 4, 3)),
        nn.Conv2d(4, 4, 3, device="meta"),
    )
    with pytest.raises(TypeError) as caught:
        convert_network(network)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == [
        "cannot convert 1 (Doubled)",
        "cannot convert 2 (LazyConv2d)",
        "cannot convert 3 (ParametrizedConv2d)",
        "cannot convert 4 (Conv2d)",
    ]
    assert lines[-1].endswith("pass their names: skip=['1', '2', '3', '4']")
    skipping = convert_network(network[:3], skip=["1", "2"])
    assert isinstance(skipping[0], ConvAsAttention)
    assert type(skipping[1]) is Doubled and type(skipping[2]) is nn.LazyConv2d
    network[:3](X)
    parametrize.remove_parametrizations(network[3], "weight")
    network[4].to_empty(device="cpu").reset_parameters()
    assert gap(network, convert_network(network, skip=["1"])) < 1e-5


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
def test_modules_that_certainly_convolve_by_other_means_are_refused():
    network = nn.Sequential(nn.Conv2d(3, 4, 3))
    exported = torch.export.export(network, (X,)).module()
    with pytest.raises(TypeError, match=r"convert the model .*before torch\.export"):
        convert_network(exported)
    layer = type("Conv2d", (nn.Module,), {"__module__": "torch.ao.nn.quantized.modules.conv"})()
    with pytest.raises(TypeError, match="it is quantised; convert the network before"):
        convert_network(nn.Sequential(layer))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"padding": -1}, r"its padding is \(-1, -1\), expected 2 numbers of at least 0"),
        ({"dilation": 0}, r"its dilation is \(0, 0\), expected 2 numbers of at least 1"),
        ({"dilation": -1}, r"its dilation is \(-1, -1\)"),
        ({"kernel_size": (3,)}, r"its kernel_size is \(3,\), expected 2 numbers"),
        ({"in_channels": 0}, "its in_channels is 0, expected at least 1"),
        ({"out_channels": 0}, "its out_channels is 0, expected at least 1"),
    ],
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_impossible_sizes_are_refused(options, reason):
    conv = nn.Conv2d(**{"in_channels": 3, "out_channels": 4, "kernel_size": 3} | options)
    with pytest.raises(ValueError, match=reason):
        conv_to_attention(conv)
    with pytest.raises(ValueError, match=rf"cannot convert 0 \(Conv2d\): {reason}"):
        convert_network(nn.Sequential(conv))


def test_a_weight_of_another_shape_is_refused():
    """As after pruning channels by hand, where torch's convolution reads only the weight."""
    conv = nn.Conv2d(3, 4, 3)
    conv.weight.data = conv.weight.data[:2]
    conv.bias.data = conv.bias.data[:2]
    with pytest.raises(ValueError, match=r"shape \(2, 3, 3, 3\), expected \(4, 3, 3, 3\); set its"):
        conv_to_attention(conv)
    conv.out_channels = 2
    assert gap(conv, conv_to_attention(conv)) < 1e-5


def test_a_kept_activation_is_named():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    network[1].kept = {"activations": [network(X)]}
    with pytest.raises(ValueError, match=r"cannot copy the Sequential: 1\.kept holds a tensor"):
        convert_network(network)
    network[1].kept = None
    assert gap(network, convert_network(network)) < 1e-5


# --- skip, alpha, and the report ------------------------------------------------------------------


def test_modules_are_skipped_by_name_or_predicate():
    inner = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1))
    network = nn.Sequential(nn.Conv2d(3, 4, 3), inner)
    for skip in (["1"], "1", lambda name, module: name.startswith("1.")):
        converted = convert_network(network, skip=skip)
        assert isinstance(converted[0], ConvAsAttention)
        assert all(type(conv) is nn.Conv2d for conv in converted[1])
        assert list(converted.conversion_report.left) == ["1.0", "1.1"]
    with pytest.raises(ValueError, match=r"skip names '2', expected names of the model's modules"):
        convert_network(network, skip=["2"])


def test_alpha_is_applied_to_layers_that_are_already_attention():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    once = convert_network(network)
    twice = convert_network(once, alpha=0.5)
    assert torch.equal(twice(X), convert_network(network, alpha=0.5)(X))
    assert torch.equal(convert_network(once)(X), once(X))
    assert gap(network, once) < 1e-5  # and the given network keeps its own
    with pytest.raises(ValueError, match="positive finite number"):
        convert_network(once, alpha=-1)


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.unregistered = [nn.Conv2d(3, 3, 1)]

    def forward(self, x):
        x = F.conv2d(self.conv(x), self.conv.weight, self.conv.bias)
        return {"features": self.unregistered[0](x), "count": torch.ones(1, dtype=torch.long)}


class GridConv(nn.Module):
    def forward(self, x):
        return x


class Deformed(nn.Module):
    """A deformable convolution of torchvision and the convolution that says where it reads."""

    def __init__(self):
        super().__init__()
        ops = pytest.importorskip("torchvision").ops
        self.offsets = nn.Conv2d(3, 18, 3, padding=1)
        self.deformable = ops.DeformConv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return self.deformable(x, self.offsets(x))


def test_a_deformable_convolution_is_left_and_named_or_refused():
    network = Deformed()
    why = "deformable: its kernel positions depend on the image"
    converted = convert_network(network, images=X)
    report = converted.conversion_report
    assert list(report.replaced) == ["offsets"]
    assert report.left == {"deformable": f"DeformConv2d, which is {why}"}
    assert report.comparison.gap < 1e-5
    (executed,) = report.comparison.executed
    assert executed == "torchvision::deform_conv2d in deformable (DeformConv2d)"
    left = convert_network(network, skip=["deformable"]).conversion_report.left
    assert left == {"deformable": "DeformConv2d, skipped"}
    with pytest.raises(TypeError, match=f"cannot turn DeformConv2d into attention: it is {why}"):
        conv_to_attention(network.deformable)


class ConvNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 3, 1, 1))

    def forward(self, x):
        return self.weight * x


class ConvMix(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 3))

    def forward(self, x):
        return F.conv2d(x, self.weight[..., None, None])


def test_norms_of_convolutional_networks_are_not_reported_as_left():
    network = nn.Sequential(nn.Conv2d(3, 3, 3), ConvNorm(), ConvMix())
    assert list(convert_network(network).conversion_report.left) == ["2"]


def test_the_report_states_the_gap_and_the_convolutions_that_still_run():
    network = nn.Sequential(
        GridConv(),
        Functional(),
    ).train()
    converted = convert_network(network, images=X)
    report = converted.conversion_report
    assert list(report.replaced) == ["1.conv"] and list(report.left) == ["0"]
    assert report.comparison.gap < 1e-5 < 1e-2 < report.comparison.largest
    assert report.comparison.executed == ("aten::convolution in 1 (Functional)",)
    assert network.training and converted.training
    printed = str(report)
    for part in (
        "1.conv: Conv2d(3, 3, kernel",
        "0: GridConv, which is not",
        "1 convolutions were",
    ):
        assert part in printed
    for images in ((X,), {"input": X}):
        assert convert_network(network, images=images).conversion_report.comparison
    assert copy.deepcopy(converted).conversion_report.replaced == report.replaced
    assert convert_network(network).conversion_report.comparison is None


class AsksForTheClass(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)

    def is_convolution(self, module):
        return isinstance(module, nn.Conv2d)

    def forward(self, x):
        return self.conv(x) if self.is_convolution(self.conv) else x


class AsksInForward(AsksForTheClass):
    def forward(self, x):
        return self.conv(x) if isinstance(self.conv, nn.Conv2d) else x


class AsksInACall(AsksForTheClass):
    def __call__(self, x):
        for layer in [each for each in self.children() if type(each) is nn.Conv2d]:
            x = layer(x)
        return x


class AsksForBoth(AsksForTheClass):
    def forward(self, x):
        return self.conv(x) if isinstance(self.conv, (nn.Conv2d, ConvAsAttention)) else x


@pytest.mark.parametrize("kind", [AsksInForward, AsksInACall])
def test_a_forward_that_tests_for_convolutions_is_refused_by_name(kind):
    network = nn.Sequential(nn.Conv2d(3, 3, 1), kind())
    with pytest.raises(TypeError, match=rf"convert 1 \({kind.__name__}\): its forward tests .*2d,"):
        convert_network(network)
    skipping = convert_network(network, skip=["1"])
    assert isinstance(skipping[0], ConvAsAttention) and gap(network, skipping) < 1e-5
    network[1] = AsksForBoth()  # as the message advises
    converted = convert_network(network)
    assert isinstance(converted[1].conv, ConvAsAttention) and gap(network, converted) < 1e-5


def test_a_network_that_is_certainly_wrong_is_an_error():
    network = nn.Sequential(nn.Conv2d(3, 3, 1), nn.AdaptiveAvgPool2d(5), AsksForTheClass())
    network.append(nn.AdaptiveAvgPool2d(1))
    with pytest.raises(ValueError, match="expected only rounding; a forward method may test"):
        convert_network(network, images=X)
    converted = convert_network(network, images=X, skip=["2"])
    assert converted.conversion_report.comparison.executed == (
        "aten::convolution in 2.conv (Conv2d)",
    )
    soft = convert_network(network[:2], alpha=1.0, images=X)  # no rounding, but what was asked for
    assert soft.conversion_report.comparison.gap >= 0


# --- tracing, transforms and tensors without values -----------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("alpha", [None, 1.0])
def test_a_traced_network_takes_images_of_any_size(alpha):
    images = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, (2, 3), stride=2))
    sequences = nn.Sequential(nn.Conv1d(3, 4, 3, padding="same"))
    for network, given, other in (
        (images, X, torch.randn(1, 3, 40, 13)),
        (sequences, X[:, :, 0], torch.randn(3, 3, 50)),
    ):
        converted = convert_network(network, alpha)
        assert gap(converted, torch.jit.trace(converted, given), other) < 1e-5


@pytest.mark.parametrize("alpha", [None, 1.0])
def test_an_ensemble_is_vectorised(alpha):
    networks = [nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 1)) for _ in range(3)]
    converted = [convert_network(network, alpha) for network in networks]
    state = torch.func.stack_module_state(converted)
    like = copy.deepcopy(converted[0]).to("meta")

    def call(parameters, buffers):
        return torch.func.functional_call(like, (parameters, buffers), (X,))

    for output, network in zip(torch.vmap(call)(*state), converted, strict=True):
        assert largest_gap(output.detach(), network(X).detach()) < 1e-5


@pytest.mark.parametrize("side", [9, 64])
@pytest.mark.parametrize("alpha", [None, 1.0])
def test_shapes_are_known_without_values(alpha, side):
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 3, stride=2))
    x = torch.randn(1, 3, side, side)
    converted = convert_network(network, alpha)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert converted(mode.from_tensor(x)).shape == network(x).shape
        with pytest.raises(TypeError, match="its weight is on the meta device or fake; move it"):
            convert_network(network)
    assert converted.to("meta")(x.to("meta")).shape == network(x).shape


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_scripting_is_refused_with_ways_on():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    converted = convert_network(network)
    with pytest.raises(TypeError, match=r"cannot be scripted; use torch\.jit\.trace .* or script"):
        torch.jit.script(converted)
    assert gap(network, torch.jit.trace(converted, X)) < 1e-5
    assert gap(network, torch.jit.script(convert_back(converted, 9, 8))) < 1e-5


def test_a_symbolic_trace_keeps_a_layer_as_one_node():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    converted = convert_network(network)
    traced = torch.fx.symbolic_trace(converted)
    theirs = torch.fx.symbolic_trace(network)
    assert [node.op for node in traced.graph.nodes] == [node.op for node in theirs.graph.nodes]
    assert gap(network, traced) < 1e-5
    layer = converted[0]
    with pytest.raises(TypeError, match=r"trace torch\.nn\.Sequential\(layer\)"):
        torch.fx.symbolic_trace(layer)
    assert gap(network[0], torch.fx.symbolic_trace(nn.Sequential(layer))) < 1e-5


def test_gradients_with_respect_to_the_centres():
    layer = conv_to_attention(nn.Conv2d(3, 4, 3), alpha=1.0)

    def loss(centers):
        return torch.func.functional_call(layer, {"encoding.centers": centers}, (X,)).square().sum()

    ours = torch.func.grad(loss)(layer.encoding.centers)
    layer.encoding.requires_grad_()
    layer(X).square().sum().backward()
    assert ours.abs().max() > 0.1
    assert largest_gap(ours, layer.encoding.centers.grad) < 1e-4 * ours.abs().max()
