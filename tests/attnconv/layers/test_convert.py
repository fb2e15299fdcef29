"""What is converted to attention, what is refused, and networks as a whole."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from helpers.memory import run_alone
from torch import nn
from torch.nn.utils import parametrize, prune

from attnconv import build_model, conv_to_attention, convert_back, convert_network
from attnconv.layers.convert import CONVOLUTIONS
from companion.gaps import largest_gap


def whole_numbered():
    conv = nn.Conv2d(1, 1, 1, bias=False)
    conv.weight = nn.Parameter(torch.ones(1, 1, 1, 1, dtype=torch.int8), requires_grad=False)
    return conv


class Customised(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.ConvTranspose3d(2, 2, 3), "not a 1D or 2D"),
        (nn.LazyConv2d(2, 3), "lazy"),
        (nn.Conv3d(1, 1, 1), "not a 1D or 2D"),
        (nn.Linear(2, 2), "not a 1D or 2D"),
        (Customised(1, 1, 1), "its forward is not that of a plain convolution; first replace it"),
        (whole_numbered(), "int8"),
        (nn.Conv2d(1, 1, 1, device="meta"), "meta device"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_the_reason(module, reason):
    with pytest.raises(TypeError, match=reason):
        conv_to_attention(module)
    if not isinstance(module, nn.Linear):
        network = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sequential(module))
        with pytest.raises(TypeError, match=rf"1\.0 .*{reason}"):
            convert_network(network)
        assert type(network[0]) is nn.Conv2d


@pytest.mark.parametrize("name", ["forward", "_conv_forward"])
def test_a_convolution_with_a_method_of_its_own_is_refused(name):
    """As set by libraries that wrap `forward`, and by patches that pad an image circularly."""
    conv = nn.Conv2d(1, 1, 1)
    setattr(conv, name, lambda *given: 2 * given[0])
    with pytest.raises(TypeError, match=f"its {name} is not that of a plain convolution"):
        conv_to_attention(conv)


@pytest.mark.filterwarnings(
    "ignore:`torch.jit:FutureWarning", "ignore:`torch.jit:DeprecationWarning"
)
def test_scripted_models_are_refused():
    conv = nn.Conv2d(1, 1, 1)
    for scripted in (torch.jit.script(conv), torch.jit.trace(conv, torch.ones(1, 1, 1, 1))):
        with pytest.raises(
            TypeError, match=r"is scripted; convert the module that it was made from"
        ):
            conv_to_attention(scripted)
        with pytest.raises(TypeError, match=r"cannot convert 1 .* is scripted; convert the"):
            convert_network(nn.Sequential(nn.ReLU(), scripted))
        with pytest.raises(TypeError, match=r"cannot convert the model .* is scripted; convert"):
            convert_network(scripted)


def test_a_channels_last_network_stays_so():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 5, 1))
    network = network.to(memory_format=torch.channels_last)
    x = torch.randn(1, 3, 9, 9)
    assert convert_network(network)(x).stride() == network(x).stride()


def test_a_convolution_compiled_by_itself_is_refused():
    """Its wrapper would call the convolution that it has compiled, not its replacement."""
    conv = torch.compile(nn.Conv2d(1, 1, 1), backend="eager")
    for network in (conv, nn.Sequential(conv)):
        with pytest.raises(TypeError, match=r"it is compiled; convert it before torch.compile"):
            convert_network(network)
    layer = torch.compile(conv_to_attention(nn.Conv2d(1, 1, 1)), backend="eager")
    with pytest.raises(TypeError, match="it is compiled; convert it before"):
        convert_back(nn.Sequential(layer), 4)


@pytest.mark.parametrize("batch", [1, 3])
def test_networks_that_view_their_features_can_be_converted(batch):
    class Network(nn.Module):
        """A convolution, a pooling, and a classifier of features flattened with `view`."""

        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 6, 5)
            self.classifier = nn.Linear(6 * 14 * 14, 10)

        def forward(self, x):
            return self.classifier(F.max_pool2d(self.conv(x), 2).view(-1, 6 * 14 * 14))

    network = Network()
    x = torch.randn(batch, 3, 32, 32)
    assert largest_gap(convert_network(network)(x), network(x)) < 1e-5


def test_weights_made_by_a_hook_are_refused():
    normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 2, 3))
    network = nn.Sequential(nn.ReLU(), normed)
    with pytest.raises(TypeError, match=r"cannot convert 1 \(.*remove_parametrizations\)"):
        convert_network(network)
    parametrize.remove_parametrizations(normed, "weight")
    x = torch.randn(1, 2, 5, 5)
    assert largest_gap(convert_network(network)(x).detach(), network(x).detach()) < 1e-5
    pruned = nn.Sequential(prune.random_unstructured(nn.Conv2d(2, 2, 3), "weight", 0.5))
    with pytest.raises(ValueError, match=r"cannot copy the Sequential: 0\.weight holds .*detach"):
        convert_network(pruned)
    pruned[0].weight = pruned[0].weight.detach()  # the first remedy: the hook computes it anew
    detached = convert_network(pruned)
    assert largest_gap(detached(x).detach(), pruned(x).detach()) < 1e-5
    detached(x).sum().backward()
    assert detached[0].weight_orig.grad.abs().sum() > 0
    prune.remove(pruned[0], "weight")
    assert largest_gap(convert_network(pruned)(x).detach(), pruned(x).detach()) < 1e-5


def test_conversion_draws_no_random_numbers():
    conv = nn.Conv2d(1, 1, 3)
    state = torch.random.get_rng_state()
    conv_to_attention(conv)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("alpha", [float("nan"), -1, 0, float("inf"), 1e39])
def test_bad_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match="positive finite number"):
        conv_to_attention(nn.Conv2d(1, 1, 3), alpha)


def test_resnet18_cifar_form():
    model = build_model("resnet18").eval()
    recast = convert_network(model)
    assert not any(isinstance(m, CONVOLUTIONS) for m in recast.modules())
    assert any(isinstance(m, nn.Conv2d) for m in model.modules())
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        logits = model(x)
        ours = recast(x)
    assert largest_gap(ours, logits) < 1e-4
    assert torch.equal(ours.argmax(1), logits.argmax(1))


RESNET = """
import torch, torchvision, attnconv
torch.manual_seed(0)
model = torchvision.models.resnet18().eval()
x = torch.randn(1, 3, 224, 224)
with torch.no_grad():
    logits, ours = model(x), attnconv.convert_network(model)(x)
print(float((ours - logits).abs().max()), bool(ours.argmax() == logits.argmax()))
"""


@pytest.mark.slow
def test_resnet18_at_224_pixels_in_less_than_4_gb():
    (gap, same), peak = run_alone(RESNET)
    assert float(gap) < 1e-4 and same == "True"
    assert peak < 4, f"peak memory {peak} GiB"


def test_networks_keep_sharing_and_a_lone_convolution_is_a_network():
    shared = nn.Conv2d(3, 3, 3, padding=1)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    recast = convert_network(model)
    assert recast[0] is recast[2] and model[0] is shared
    x = torch.randn(1, 3, 6, 6)
    assert largest_gap(recast(x).detach(), model(x).detach()) < 1e-5
    assert largest_gap(convert_network(shared)(x).detach(), shared(x).detach()) < 1e-5


def test_tied_parameters_remain_tied():
    tied = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Linear(4, 3), nn.Conv2d(3, 3, 3, dilation=2))
    tied[2].weight = tied[0].weight
    tied[2].bias = tied[1].bias
    recast = convert_network(tied)
    assert recast[2].weight is recast[0].weight and recast[2].bias is recast[1].bias
    assert recast[0].weight is not tied[0].weight
    assert len(list(recast.parameters())) == len(list(tied.parameters()))


def test_a_network_with_soft_heads():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1))
    x = torch.randn(1, 3, 6, 6)
    layers = nn.Sequential(*(conv_to_attention(conv, alpha=1.5) for conv in network))
    assert torch.equal(convert_network(network, alpha=1.5)(x), layers(x))


class OutputOf(nn.Module):
    """A convolution whose output is inside something else."""

    def __init__(self, wrap):
        super().__init__()
        self.conv, self.wrap = nn.Conv2d(3, 4, 3), wrap

    def forward(self, x):
        return self.wrap(self.conv(x))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: [SimpleNamespace(features=y, size=3)],
        lambda y: torch.complex(y, y).sum(dim=1),
        lambda y: SimpleNamespace(found={"best": (y,)}),
    ],
)
def test_outputs_of_any_kind_are_compared(wrap):
    images = torch.randn(1, 3, 8, 8)
    network = OutputOf(wrap)
    found = convert_network(network, alpha=0.5, images=images).conversion_report.comparison
    assert found.gap > 1e-2 and found.largest > 0.1
    assert convert_network(network, images=images).conversion_report.comparison.gap < 1e-5


def test_a_report_says_that_there_was_nothing_to_compare():
    network = OutputOf(lambda y: y.argmax())
    report = convert_network(network, images=torch.randn(1, 3, 8, 8)).conversion_report
    assert "not compared" in str(report) and "largest gap" not in str(report)


def test_what_cannot_be_copied_is_named():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    network[1].scales = {"1": 1}.keys()
    with pytest.raises(ValueError, match=r"takes no 1\.scales \(dict_keys\)"):
        convert_network(network)
    network[1].scales = list(network[1].scales)  # the remedy
    convert_network(network)
