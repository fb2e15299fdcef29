"""A CNN as attention that may move: its start, its gradients, the convolutions it is nearest to."""

import copy

import pytest
import torch
from torch import nn

from attnconv import attention_probabilities, build_model, convert_network
from attnconv.layers.conv import ConvAsAttention, hard_alpha
from attnconv.models import ARMS, SmallCNN, snapshot
from attnconv.models.freed import (
    START_ALPHA,
    as_convolutions,
    as_free_attention,
    attention_layers,
    covered,
    effective_kernel,
    growth,
    mass_on_own_pixel,
    moved,
    nearest_convolution,
)
from attnconv.theory.encodings import QuadraticEncoding
from attnconv.theory.grid import shift_set


def gap(one, other):
    return (one - other).abs().max().item()


@pytest.fixture
def cnn():
    torch.manual_seed(0)
    model = SmallCNN(width=6).double()
    images = torch.randn(20, 3, 20, 20, dtype=torch.float64)
    model.prepare(images)
    model(images)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, std=0.3)
    return model.eval()


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
        assert torch.equal(layer.encoding.centers, shift_set(layer.kernel_size).double())
    for a, b, c in layers:
        assert torch.equal(a.encoding.centers, b.encoding.centers)
        assert not torch.equal(a.encoding.centers, c.encoding.centers)
        pixels = shift_set(a.kernel_size).double()
        assert (a.encoding.centers >= pixels.amin(dim=0) - 0.5).all()
        assert (a.encoding.centers <= pixels.amax(dim=0) + 0.5).all()
        assert gap(a.value_matrices(), c.value_matrices()) == 0
    everywhere = torch.cat([layer.encoding.centers for layer in attention_layers(one)[1:]])
    assert everywhere.std() > 0.6 and (everywhere - everywhere.round()).abs().max() > 0.4


def test_the_given_network_stays_as_it_was(cnn, images):
    before = copy.deepcopy(cnn.state_dict())
    as_free_attention(cnn, START_ALPHA, random_places=True)
    assert all(torch.equal(before[name], value) for name, value in cnn.state_dict().items())


# --- the nearest convolution ----------------------------------------------------------------------


def test_the_effective_kernel_is_what_the_layer_weighs(cnn):
    layer = attention_layers(as_free_attention(cnn, 1.3, random_places=True))[1]
    size = 19
    impulse = torch.zeros(layer.in_channels, layer.in_channels, size, size, dtype=torch.float64)
    for channel in range(layer.in_channels):
        impulse[channel, channel, size // 2, size // 2] = 1
    seen = layer(impulse) - layer(torch.zeros_like(impulse))  # at q: the weight of shift 9 - q
    kernel = effective_kernel(layer)
    expected = kernel.flip(0, 1).permute(2, 3, 0, 1)
    assert gap(seen[:, :, 1:-1, 1:-1], expected) < 1e-9


def test_of_hard_heads_the_nearest_convolution_is_the_one_they_were_made_from(cnn, images):
    back, distances = as_convolutions(convert_network(cnn))
    assert max(distances) < 1e-12 and len(distances) == 7
    assert gap(back(images), cnn(images)) < 1e-12
    assert not attention_layers(back)
    ours = [module for module in back.modules() if isinstance(module, nn.Conv2d)]
    theirs = [module for module in cnn.modules() if isinstance(module, nn.Conv2d)]
    for a, b in zip(ours, theirs, strict=True):
        assert a.weight.shape == b.weight.shape and gap(a.weight, b.weight) < 1e-12


def test_no_other_kernel_is_nearer(cnn):
    layer = attention_layers(as_free_attention(cnn, 1.0, random_places=True))[3]
    conv, distance = nearest_convolution(layer)
    whole = effective_kernel(layer)
    middle = whole.shape[0] // 2

    def far(weight):
        rest = whole.clone()
        rest[middle - 1 : middle + 2, middle - 1 : middle + 2] -= weight.permute(2, 3, 1, 0)
        return (rest.norm() / whole.norm()).item()

    assert distance == pytest.approx(far(conv.weight)) and distance > 0.05
    for _ in range(20):
        assert far(conv.weight + 0.01 * torch.randn_like(conv.weight)) > distance


@pytest.mark.parametrize(
    "options", [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {"padding": (0, 1)}]
)
def test_other_layers_are_refused(options):
    layer = ConvAsAttention(nn.Conv2d(4, 4, 3, **options))
    with pytest.raises(ValueError, match="expected a layer without stride"):
        nearest_convolution(layer)


# --- what is followed -----------------------------------------------------------------------------


def test_how_far_and_how_many_pixels():
    grid = shift_set((3, 3)).double()
    assert covered(grid, 3) == 9 and covered(grid + 0.4, 3) == 9
    assert covered(torch.zeros(9, 2), 3) == 1 and covered(grid + 2, 3) == 1
    assert covered(shift_set((2, 2)).double(), 2) == 4
    step = torch.tensor([3.0, -4.0])
    assert torch.equal(moved(grid + step, grid), torch.full((9,), 5.0, dtype=torch.float64))


def test_growth_is_the_least_squares_factor():
    grid = shift_set((3, 3)).double()
    centers = 1.3 * grid + 0.2 * torch.randn(5, 9, 2, dtype=torch.float64)
    factors, shares = growth(centers, grid)
    for factor, share, ours in zip(factors, shares, centers, strict=True):
        found = torch.linalg.lstsq(grid.view(-1, 1), ours.view(-1, 1))
        assert factor == pytest.approx(found.solution.item())
        left = (ours - found.solution * grid).square().sum() / (ours - grid).square().sum()
        assert share == pytest.approx(1 - left.item())
    factor, share = growth(grid, grid)
    assert factor == 1 and share.isnan()


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0, 30.0])
def test_the_mass_on_the_own_pixel_is_the_attention_there(alpha):
    centers = torch.tensor([[0.0, 0.0], [0.3, -1.2], [1.49, 0.9]], dtype=torch.float64)
    maps = attention_probabilities(QuadraticEncoding.from_alpha(centers, alpha), 33, 33)[:, 16, 16]
    own = (16 + centers.round()).long()
    expected = maps[torch.arange(3), own[:, 0], own[:, 1]]
    mass = mass_on_own_pixel(centers, torch.full((3,), alpha))
    assert gap(mass, expected) < (1e-6 if alpha < 1 else 1e-12)


@pytest.mark.parametrize("name", sorted(ARMS))
def test_each_arm_is_built_and_followed(name):
    model, start = build_model(name, width=6), ARMS[name].start
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    heads = snapshot(model)
    assert len(heads) == (14 if start.heads else 0)
    for layer in attention_layers(model):
        encoding = layer.encoding.named_parameters()
        assert {name for name, p in encoding if p.requires_grad} == set(start.freed)
    if start.heads:
        assert heads["layer1.centers"].shape == (4, 2) and heads["layer7.alpha"].shape == (9,)
        assert gap(heads["layer3.alpha"], START_ALPHA) < 1e-6
