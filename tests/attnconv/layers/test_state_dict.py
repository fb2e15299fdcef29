"""The state_dict of a converted network against that of its CNN."""

import copy

import pytest
import torch
from helpers.models import small_cnn
from torch import nn
from torch.nn.utils import parametrizations, prune

from attnconv import conv_to_attention, convert_network
from attnconv.layers.conv_as_attention import ConvAsAttention
from companion.gaps import largest_gap
from companion.runs.weights import named_weights, set_weights
from companion.studies.freed.network import START_ALPHA, as_free_attention, attention_layers

CONVOLUTIONS = {
    "image": nn.Conv2d(3, 5, (3, 2), padding=1, dilation=(1, 2)),
    "groups": nn.Conv2d(4, 6, 3, stride=2, groups=2, bias=False),
    "depthwise": nn.Conv2d(4, 8, 5, groups=4, padding="same"),
    "sequence": nn.Conv1d(4, 6, 5, groups=2),
    "depthwise sequence": nn.Conv1d(3, 3, 3, groups=3),  # both layouts have one shape
    "one pixel": nn.Conv2d(3, 4, 1),
}


def images_for(conv):
    return torch.randn(2, conv.in_channels, *[9, 8][-len(conv.kernel_size) :])


def redrawn(conv):
    """A convolution of the same kind with other weights."""
    other = copy.deepcopy(conv)
    other.reset_parameters()
    return other


def shapes(module):
    return {name: value.shape for name, value in module.state_dict().items()}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_layer_and_its_convolution_load_into_each_other(name):
    conv = CONVOLUTIONS[name]
    x = images_for(CONVOLUTIONS[name])
    layer = conv_to_attention(conv)
    other = redrawn(conv)
    assert shapes(layer) == shapes(conv)
    layer.load_state_dict(other.state_dict(), strict=True)
    assert largest_gap(layer(x), conv_to_attention(other)(x)) == 0
    back = redrawn(conv)
    back.load_state_dict(layer.state_dict(), strict=True)
    assert torch.equal(back.weight, other.weight)
    assert largest_gap(layer(x), other(x)) < 1e-5
    again = conv_to_attention(conv)
    again.load_state_dict(layer.state_dict(), strict=True, assign=True)
    assert torch.equal(again(x), layer(x))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_soft_heads_are_saved(name):
    """No layer and no convolution takes them for the one-hot heads that it would have itself."""
    conv = CONVOLUTIONS[name]
    x = images_for(CONVOLUTIONS[name])
    soft = conv_to_attention(conv, alpha=2.0)
    assert shapes(soft).keys() - shapes(conv).keys() == {"encoding.centers", "encoding.spread"}
    for alpha in (None, 1.0, 2.0):
        other = conv_to_attention(redrawn(conv), alpha)
        other.load_state_dict(soft.state_dict(), strict=True)
        assert torch.equal(other(x), soft(x))
    with pytest.raises(RuntimeError, match=r"Unexpected key.*encoding\.centers"):
        redrawn(conv).load_state_dict(soft.state_dict(), strict=True)
    # a convolution's weights have no heads: the layer keeps its own
    trained = redrawn(conv)
    soft.load_state_dict(trained.state_dict(), strict=True)
    assert torch.equal(soft(x), conv_to_attention(trained, alpha=2.0)(x))


@pytest.mark.parametrize(
    ("before", "after", "saved"),
    [
        (torch.float32, torch.float64, False),
        (torch.bfloat16, torch.float64, False),
        (torch.float16, torch.float32, False),
        (torch.float16, torch.float64, True),  # exp(-18) is a number in float64
        (torch.float64, torch.float16, False),
    ],
)
def test_heads_are_saved_unless_they_are_one_hot_up_to_rounding(before, after, saved):
    conv = nn.Conv2d(3, 4, 3).to(before)
    layer = conv_to_attention(conv).to(after)
    fresh = conv_to_attention(conv.to(after))
    assert ("encoding.spread" in layer.state_dict()) == saved
    fresh.load_state_dict(layer.state_dict(), strict=True)
    x = torch.randn(2, 3, 9, 8, dtype=after)
    assert largest_gap(fresh(x), layer(x)) <= 4 * torch.finfo(after).eps


def test_a_checkpoint_of_resnet18_loads_into_the_converted_network():
    torchvision = pytest.importorskip("torchvision")
    trained = torchvision.models.resnet18().eval()
    images = torch.randn(1, 3, 64, 64)
    converted = convert_network(torchvision.models.resnet18()).eval()
    converted.load_state_dict(trained.state_dict(), strict=True)
    with torch.no_grad():
        assert largest_gap(converted(images), trained(images)) < 1e-4 * trained(images).abs().max()


def test_a_network_and_its_cnn_load_into_each_other():
    cnn = small_cnn()
    images = torch.randn(2, 3, 20, 20, dtype=torch.float64)
    converted = convert_network(cnn)
    other = copy.deepcopy(cnn)
    for parameter in other.parameters():
        nn.init.normal_(parameter, std=0.3)
    assert shapes(converted) == shapes(cnn)
    given = other.state_dict()
    before = {name: value.clone() for name, value in given.items()}
    converted.load_state_dict(given, strict=True)
    assert all(torch.equal(given[name], value) for name, value in before.items())
    assert largest_gap(converted(images), other(images)) < 1e-12
    cnn.load_state_dict(converted.state_dict(), strict=True)
    assert torch.equal(cnn(images), other(images))


def test_a_shared_layer_is_saved_under_each_of_its_names():
    conv = nn.Conv2d(3, 3, 3, padding=1)
    cnn = nn.Sequential(conv, nn.ReLU(), conv)
    converted = convert_network(cnn)
    assert shapes(converted) == shapes(cnn)
    cnn.load_state_dict(converted.state_dict(), strict=True)


@pytest.mark.parametrize(
    "options", [{}, {"random_places": True}, {"trained": ("spread",), "random_places": True}]
)
def test_heads_that_are_trained_or_moved_are_saved(options):
    cnn = small_cnn()
    images = torch.randn(2, 3, 20, 20, dtype=torch.float64)
    freed = as_free_attention(cnn, START_ALPHA, seed=1, **options)
    with torch.no_grad():
        for layer in attention_layers(freed):
            for values in layer.encoding.parameters():
                values += 0.1 * torch.rand_like(values) * values.requires_grad
    extra = shapes(freed).keys() - shapes(cnn).keys()
    assert len(extra) == 2 * len(attention_layers(freed))
    other = as_free_attention(cnn, START_ALPHA, seed=2, **options)
    assert largest_gap(other(images), freed(images)) > 1e-3
    other.load_state_dict(freed.state_dict(), strict=True)
    assert torch.equal(other(images), freed(images))
    with pytest.raises(RuntimeError, match=r"Missing key.*encoding\.centers"):
        other.load_state_dict(cnn.state_dict(), strict=True)
    # a network whose heads are on the kernel's pixels takes them as well
    converted = convert_network(cnn)
    converted.load_state_dict(freed.state_dict(), strict=True)
    assert torch.equal(converted(images), freed(images).detach())
    # training ends; where the heads have come to is not forgotten
    assert shapes(freed.requires_grad_(False)).keys() >= extra


def test_weights_saved_by_head_are_loaded():
    """As a state_dict was before, and as checkpoints and the weights beside the records are."""
    cnn = small_cnn()
    images = torch.randn(2, 3, 20, 20, dtype=torch.float64)
    converted = convert_network(cnn)
    saved = {name: value.detach().clone() for name, value in named_weights(converted).items()}
    for name, layer in converted.named_modules():
        if isinstance(layer, ConvAsAttention):
            by_head = [
                torch.cat([weight[..., i, j] for i in range(rows) for j in range(columns)], dim=1)
                for weight in layer.weight.detach().chunk(layer.groups)
                for rows, columns in [layer.kernel_size]
            ]
            saved[f"{name}.weight"] = torch.stack(by_head)
            assert f"{name}.encoding.spread" in saved
    other = convert_network(cnn)
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    other.load_state_dict(saved, strict=True)
    assert torch.equal(other(images), converted(images))
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    set_weights(other, saved)
    assert torch.equal(other(images), converted(images))


def test_a_state_dict_refers_to_the_weights_of_the_layer():
    """As torch's do: an average of weights is updated through it."""
    layer = conv_to_attention(nn.Conv2d(2, 3, 3, groups=1))
    layer.state_dict()["weight"].zero_()
    assert not layer.weight.any()
    own = layer.state_dict(keep_vars=True)
    assert own["weight"] is layer.weight and "encoding.centers" in own
    x = torch.randn(1, 2, 5, 5)
    assert torch.equal(torch.func.functional_call(layer, own, (x,)), layer(x))


def test_weights_of_another_shape_are_refused():
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        conv_to_attention(nn.Conv2d(2, 3, 3)).load_state_dict(nn.Conv2d(2, 3, 5).state_dict())


def test_a_head_that_was_moved_is_saved_though_it_is_not_trained():
    conv = nn.Conv2d(2, 3, 3)
    x = torch.randn(1, 2, 6, 6)
    moved, other = (conv_to_attention(conv, alpha=2.0) for _ in range(2))
    with torch.no_grad():
        moved.encoding.centers[4] += 0.5
    other.load_state_dict(moved.state_dict(), strict=True)
    assert torch.equal(other(x), moved(x))
    with pytest.raises(RuntimeError, match=r"Missing key.*encoding\.centers"):
        moved.load_state_dict(conv.state_dict())


@pytest.mark.parametrize("change", [prune.random_unstructured, parametrizations.weight_norm])
def test_a_pruned_or_parametrised_layer_can_be_saved(change):
    layer = conv_to_attention(nn.Conv2d(2, 3, 3))
    change(layer, "weight", *([0.5] if change is prune.random_unstructured else []))
    other = conv_to_attention(nn.Conv2d(2, 3, 3))
    change(other, "weight", *([0.5] if change is prune.random_unstructured else []))
    other.load_state_dict(layer.state_dict())
    x = torch.randn(1, 2, 5, 5)
    assert torch.equal(other(x), layer(x))
