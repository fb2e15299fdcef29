"""The statements in `book/problems.md`, checked numerically."""

import math

import pytest
import torch

from attnconv import conv_to_attention
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.grid import offset_set, relative_offsets


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("alpha", [0.5, 2.0, 6.0])
def test_problem_1_a_head_keeps_at_least_the_bound_on_every_axis(axes, alpha):
    """An average of values up to B is off by at most 2 B (1 - p), and 1 - p <= 2 n exp(-alpha)."""
    along = (-alpha * torch.arange(-30, 31).double().square()).exp()
    p = (1 / along.sum()).item() ** axes
    assert p >= ((1 - math.exp(-alpha)) / (1 + math.exp(-alpha))) ** axes
    assert 1 - p <= 2 * axes * math.exp(-alpha)


def test_problem_1_the_alpha_for_one_axis_is_sufficient():
    torch.manual_seed(0)
    conv = torch.nn.Conv1d(2, 3, 5, padding=2).double()
    gap = 1e-3
    x = 1 - 2 * torch.rand(1, 2, 40).double()  # at most 1 in absolute value
    largest = conv.weight.abs().sum(dim=(1, 2)).max().item()
    soft = conv_to_attention(conv, math.log(4 * largest / gap))
    assert 1e-5 < (soft(x) - conv(x)).abs().max() < gap


def test_problem_2_two_components_select_any_offset_and_one_does_not():
    torch.manual_seed(0)
    delta = relative_offsets(5, 5)[2, 2].reshape(-1, 2)  # the offsets seen by the middle query
    number = torch.randperm(len(delta)).double()
    for target in number:
        scores = -20 * (number**2 - 2 * target * number)  # linear in (n^2, n)
        assert scores.softmax(dim=0)[number == target].item() > 1 - 1e-8
    # v times one number: no v gives an offset in the middle more than half of the attention
    middle = number.sort().indices[len(number) // 2]
    for v in torch.linspace(-20, 20, 81):
        assert (v * number).softmax(dim=0)[middle] <= 0.5


def test_problem_3_the_gradient_is_a_covariance():
    torch.manual_seed(0)
    alpha = 0.7
    image = torch.randn(6, 7).double()
    encoding = QuadraticEncoding.from_alpha(torch.tensor([[0.3, -0.8]]).double(), alpha)
    encoding.centers.requires_grad_(True)
    p = encoding.position_scores(6, 7)[0, 2, 3].flatten().softmax(dim=0)
    (p @ image.flatten()).backward()
    delta = relative_offsets(6, 7)[2, 3].reshape(-1, 2).double()
    p = p.detach()
    by_hand = 2 * alpha * (p * image.flatten()) @ (delta - p @ delta)
    torch.testing.assert_close(encoding.centers.grad[0], by_hand)


@pytest.mark.parametrize("constant", [True, False])
def test_problem_4_kernels_constant_on_orbits_survive_permutations(constant):
    """At every other query, the heads of three of the nine offsets exchange them in a cycle."""
    torch.manual_seed(0)
    cycle = torch.tensor([1, 2, 0, 3, 4, 5, 6, 7, 8])
    kernel = torch.randn(9, 2, 3).double()  # one matrix per offset
    if constant:
        kernel[:3] = kernel[0].clone()
    x = torch.randn(2, 100, 9, 2).double()  # two kinds of queries: the pixels at the offsets
    attended = torch.stack([x[0], x[1][:, cycle]]).flatten(0, 1).flatten(1)  # by head
    target = torch.einsum("tnoc,ocd->tnd", x, kernel).flatten(0, 1)
    values = torch.linalg.lstsq(attended, target).solution  # the best W^(h), side by side
    error = (attended @ values - target).norm() / target.norm()
    assert error < 1e-10 if constant else error > 0.1


def test_problem_5_two_heads_compute_any_filter_with_one_channel():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(1, 1, 3, bias=False).double()
    weights = conv.weight.detach().flatten()
    image = torch.randn(1, 1, 5, 5).double()
    parts = torch.stack([weights.clamp(min=0), (-weights).clamp(min=0)])
    maps = parts / parts.sum(dim=1, keepdim=True)
    values = parts.sum(dim=1) * torch.tensor([1, -1])
    patches = image.unfold(2, 3, 1).unfold(3, 3, 1).reshape(3, 3, 9)
    averages = patches @ maps.T  # one per head
    torch.testing.assert_close(averages @ values, conv(image)[0, 0])
    assert len(maps) < len(offset_set((3, 3)))
