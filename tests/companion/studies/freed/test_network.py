"""A CNN as attention whose heads may move: its start and its gradients."""

import copy

import pytest
import torch
from helpers.models import small_cnn
from torch import nn

from attnconv import hard_alpha
from attnconv.theory.grid import offset_set
from companion.runs.history import snapshot
from companion.specs import ARMS
from companion.studies.freed.arms import STARTS
from companion.studies.freed.network import START_ALPHA, as_free_attention, attention_layers


def gap(one, other):
    return (one - other).abs().max().item()


@pytest.fixture
def cnn():
    return small_cnn()


@pytest.fixture
def images():
    return torch.randn(3, 3, 20, 20, dtype=torch.float64)


def test_as_sharp_as_can_be_it_is_the_cnn(cnn, images):
    exact = as_free_attention(cnn, hard_alpha(torch.float64))
    assert gap(exact(images), cnn(images)) < 1e-12
    assert not any(isinstance(module, nn.Conv2d) for module in exact.modules())


def test_it_starts_softer_and_close(cnn, images):
    scale = cnn(images).std()
    gaps = [gap(as_free_attention(cnn, alpha)(images), cnn(images)) / scale for alpha in (4, 8, 16)]
    assert gaps[0] > gaps[1] > gaps[2] > 0 and gaps[2] < 1e-4


def test_centres_and_alphas_of_freed_heads_have_gradients(cnn, images):
    """At an alpha at which weights are one-hot they have none: "the heads stay" would be of no
    worth."""
    freed = as_free_attention(cnn, START_ALPHA).train()
    freed(images).square().sum().backward()
    for layer in attention_layers(freed):
        for values in layer.encoding.parameters():
            assert values.grad is not None and values.grad.abs().min() > 0
    hard = as_free_attention(cnn, hard_alpha(torch.float64)).train()
    hard(images).square().sum().backward()
    grads = [p.grad for layer in attention_layers(hard) for p in layer.encoding.parameters()]
    assert all(grad is None or not grad.any() for grad in grads)


def test_gradients_of_centres_are_those_of_finite_differences(cnn, images):
    freed = as_free_attention(cnn, START_ALPHA)
    layer = attention_layers(freed)[2]
    freed(images).square().sum().backward()
    for values in layer.encoding.parameters():
        step = torch.zeros_like(values)
        step.view(-1)[3] = 1e-5
        with torch.no_grad():
            losses = []
            for sign in (1, -2):
                values += sign * step
                losses.append(freed(images).square().sum())
            values += step
        slope = (losses[0] - losses[1]) / 2e-5
        assert gap(slope, values.grad.view(-1)[3]) < 1e-4 * abs(slope)


def test_fixed_heads_are_not_trained_but_their_values_are(cnn, images):
    fixed = as_free_attention(cnn, START_ALPHA, trained=()).train()
    fixed(images).sum().backward()
    for layer in attention_layers(fixed):
        assert not any(p.requires_grad for p in layer.encoding.parameters())
    values = [layer.weight.grad for layer in attention_layers(fixed)[1:]]
    assert all(grad is not None and grad.any() for grad in values)
    assert attention_layers(fixed)[0].weight.grad is None  # as the CNN's whitening


def test_random_places_are_those_of_the_seed_within_the_kernel(cnn):
    one, same, other = (
        as_free_attention(cnn, START_ALPHA, random_places=True, seed=seed) for seed in (1, 1, 2)
    )
    whitening, *layers = zip(*map(attention_layers, (one, same, other)), strict=True)
    for layer in whitening:  # its values are not trained, and whiten on their own pixels alone
        assert torch.equal(layer.encoding.centers, offset_set(layer.kernel_size).double())
    for a, b, c in layers:
        assert torch.equal(a.encoding.centers, b.encoding.centers)
        assert not torch.equal(a.encoding.centers, c.encoding.centers)
        pixels = offset_set(a.kernel_size).double()
        assert (a.encoding.centers >= pixels.amin(dim=0) - 0.5).all()
        assert (a.encoding.centers <= pixels.amax(dim=0) + 0.5).all()
        assert gap(a.value_matrices(), c.value_matrices()) == 0
    everywhere = torch.cat([layer.encoding.centers for layer in attention_layers(one)[1:]])
    assert everywhere.std() > 0.6 and (everywhere - everywhere.round()).abs().max() > 0.4


def test_the_given_network_stays_as_it_was(cnn, images):
    before = copy.deepcopy(cnn.state_dict())
    as_free_attention(cnn, START_ALPHA, random_places=True)
    assert all(torch.equal(before[name], value) for name, value in cnn.state_dict().items())


@pytest.mark.parametrize("name", sorted(ARMS))
def test_each_arm_is_built_and_followed(name):
    model, start = ARMS[name].build(width=6), STARTS[name]
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    heads = snapshot(model)
    assert len(heads) == (14 if start.heads else 0)
    for layer in attention_layers(model):
        encoding = layer.encoding.named_parameters()
        assert {name for name, p in encoding if p.requires_grad} == set(start.freed)
    if start.heads:
        assert heads["layer1.centers"].shape == (4, 2) and heads["layer7.alpha"].shape == (9,)
        assert gap(heads["layer3.alpha"], START_ALPHA) < 1e-6
