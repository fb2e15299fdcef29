"""Measures of movable heads: distances, masses, and the nearest convolutions."""

import pytest
import torch
from helpers.models import small_cnn
from torch import nn

from attnconv import attention_probabilities, convert_network
from attnconv.layers.convert import conv_to_attention
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.grid import offset_set
from companion.studies.freed.measures import (
    as_convolutions,
    distance_moved,
    effective_kernel,
    growth,
    mass_on_nearest_pixel,
    nearest_convolution,
    pixels_occupied,
)
from companion.studies.freed.network import as_free_attention, attention_layers


def gap(one, other):
    return (one - other).abs().max().item()


@pytest.fixture
def cnn():
    return small_cnn()


@pytest.fixture
def images():
    return torch.randn(3, 3, 20, 20, dtype=torch.float64)


def test_the_effective_kernel_is_what_the_layer_weighs(cnn):
    layer = attention_layers(as_free_attention(cnn, 1.3, random_places=True))[1]
    size = 19
    impulse = torch.zeros(layer.in_channels, layer.in_channels, size, size, dtype=torch.float64)
    for channel in range(layer.in_channels):
        impulse[channel, channel, size // 2, size // 2] = 1
    seen = layer(impulse) - layer(torch.zeros_like(impulse))  # at q: the weight of offset 9 - q
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
    layer = conv_to_attention(nn.Conv2d(4, 4, 3, **options))
    with pytest.raises(ValueError, match="expected a layer without stride"):
        nearest_convolution(layer)


def test_how_far_and_how_many_pixels():
    grid = offset_set((3, 3)).double()
    assert pixels_occupied(torch.stack([grid, grid + 0.4, 0 * grid, grid + 2])).tolist() == [
        *(9, 9, 1, 1)
    ]
    step = torch.tensor([3.0, -4.0])
    assert distance_moved(torch.stack([grid, grid + step])).tolist() == [[0.0] * 9, [5.0] * 9]


def test_growth_is_the_least_squares_factor():
    grid = offset_set((3, 3)).double()
    centers = 1.3 * grid + 0.2 * torch.randn(5, 9, 2, dtype=torch.float64)
    factors, shares = growth(torch.cat([grid[None], centers]))
    assert factors[0] == 1 and shares[0].isnan()
    for factor, share, ours in zip(factors[1:], shares[1:], centers, strict=True):
        found = torch.linalg.lstsq(grid.view(-1, 1), ours.view(-1, 1))
        assert factor == pytest.approx(found.solution.item())
        left = (ours - found.solution * grid).square().sum() / (ours - grid).square().sum()
        assert share == pytest.approx(1 - left.item())


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0, 30.0])
def test_the_mass_on_the_nearest_pixel_is_the_attention_there(alpha):
    centers = torch.tensor([[0.0, 0.0], [0.3, -1.2], [1.49, 0.9]], dtype=torch.float64)
    maps = attention_probabilities(QuadraticEncoding.from_alpha(centers, alpha), 33, 33)[:, 16, 16]
    nearest = (16 + centers.round()).long()
    expected = maps[torch.arange(3), nearest[:, 0], nearest[:, 1]]
    mass = mass_on_nearest_pixel(centers, torch.full((3,), alpha))
    assert gap(mass, expected) < (1e-6 if alpha < 1 else 1e-12)
