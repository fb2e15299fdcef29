"""Measures of heads against closed forms, and against the maps of the oracle."""

import math

import numpy as np
import pytest
import torch

from attnconv import attention_probabilities
from attnconv.heads import mean_by_offset
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.networks import build_model
from attnconv.theory.grid import offset_set
from companion.heads import (
    TrainedHeads,
    heads_of,
    lemma_3_residual,
    lost_mass,
)
from companion.runs.history import from_snapshot
from companion.runs.record import load_run
from companion.specs import MODELS


def of(encoding, size=7):
    """Heads of an encoding, as a record would give them."""
    probabilities = attention_probabilities(encoding.double(), size, size)
    return TrainedHeads(
        probabilities[:, size // 2, size // 2], mean_by_offset(probabilities), encoding.centers
    )


def test_mean_by_offset_against_a_loop():
    probabilities = torch.rand(2, 3, 4, 12).double().softmax(dim=-1).unflatten(-1, (3, 4))
    found = mean_by_offset(probabilities)
    assert found.shape == (2, 5, 7)
    for row in range(-2, 3):
        for column in range(-3, 4):
            pairs = [
                (i, j)
                for i in range(3)
                for j in range(4)
                if 0 <= i + row < 3 and 0 <= j + column < 4
            ]
            mean = sum(probabilities[:, i, j, i + row, j + column] for i, j in pairs) / len(pairs)
            assert torch.allclose(found[:, row + 2, column + 3], mean, atol=1e-12)


def test_hard_heads_meet_lemma_1():
    shifts = offset_set((3, 3))
    heads = of(QuadraticEncoding.from_alpha(shifts.double(), 60.0))
    assert heads.offsets.tolist() == shifts.tolist() and heads.alone.all()
    assert torch.allclose(heads.mass, torch.ones(9).double()) and (heads.entropy < 1e-20).all()
    assert (
        heads.offsets_with_mass(3) == 9
        and heads.offsets_with_mass(5) == 9
        and (heads.off_pixel == 0).all()
    )
    assert torch.allclose(heads.distance, shifts.double().norm(dim=1))


def test_heads_on_one_offset_cover_it_once_and_soft_ones_do_not_count():
    centers = torch.tensor([[0.0, 1.0], [0.0, 1.0], [3.0, 3.0], [-1.0, 0.0]]).double()
    heads = of(
        from_snapshot(
            {"centers": centers, "alpha": torch.tensor([30.0, 30.0, 30.0, 0.9]).double()}
        ),
        13,
    )
    assert (
        heads.offsets_with_mass(3) == 1
        and heads.offsets_with_mass(7) == 2
        and heads.offsets_with_mass(3, least_mass=0.2) == 2
    )
    assert (
        heads.alone.tolist() == [False, False, True, True] and heads.by_locality().tolist()[-1] == 3
    )


def test_a_head_that_looks_out_of_the_image_is_at_no_offset():
    """Its map from the middle has all mass on one pixel of the border: from other queries that is
    another offset."""
    outside = of(QuadraticEncoding.from_alpha(torch.tensor([[20.0, 20.0]]).double(), 0.5), 16)
    assert outside.maps.max() > 0.99 and outside.mass < 0.1
    corner = torch.zeros(1, 16, 16, 16, 16).double()
    corner[..., 0, 0] = 1.0  # always the same pixel
    assert TrainedHeads(corner[:, 8, 8], mean_by_offset(corner)).mass < 0.1


def test_uniform_heads():
    uniform = torch.full((1, 6, 8, 6, 8), 1 / 48, dtype=torch.float64)
    heads = TrainedHeads(uniform[:, 3, 4], mean_by_offset(uniform))
    assert (
        heads.query == (3, 4)
        and math.isclose(heads.mass.item(), 1 / 48)
        and math.isclose(heads.entropy.item(), math.log(48))
    )
    assert heads.off_pixel.isnan().all()
    pairs = [(i - 3, j - 4) for i in range(6) for j in range(8)]
    assert math.isclose(heads.distance.item(), sum(math.hypot(*pair) for pair in pairs) / 48)


@pytest.mark.parametrize("model", [name for name in MODELS if name != "resnet18"])
def test_the_maps_of_a_record_are_those_of_its_encodings(model, paper_records):
    record = load_run(paper_records / f"{model}--cifar10--seed0")
    layers = heads_of(record)
    assert len(layers) == 6 and all(
        torch.allclose(heads.maps.sum(dim=(1, 2)), torch.ones(()).double()) for heads in layers
    )
    if model == "sa-learned-content":
        expected = record.attention["mean_maps"][3, :, 4].double()
        assert torch.allclose(layers[3].maps, expected, atol=1e-3)
    else:
        whole = attention_probabilities(record.history.encodings()[3].double(), 16, 16)
        assert torch.allclose(layers[3].maps, whole[:, 8, 8], atol=1e-6)


@pytest.mark.parametrize("model", ["sa-quadratic", "sa-generalized", "sa-learned"])
def test_an_encoding_comes_back_from_its_snapshot(model):
    for attention in build_model(model, hidden=16, intermediate=16, num_layers=1).attentions:
        encoding = attention.encoding
        again = from_snapshot(encoding.snapshot())
        assert again.num_heads == encoding.num_heads and not any(
            p.requires_grad for p in again.parameters()
        )
        expected, found = (attention_probabilities(each, 9, 9) for each in (encoding, again))
        assert torch.allclose(found, expected, atol=1e-6)


def test_a_degenerate_precision_comes_back_and_nonsense_is_refused():
    snapshot = {
        "centers": torch.zeros(2, 2),
        "precision": torch.stack([torch.zeros(2, 2), torch.tensor([[4.0, 0.0], [0.0, 0.0]])]),
    }
    assert torch.allclose(from_snapshot(snapshot).precision, snapshot["precision"], atol=1e-6)
    with pytest.raises(ValueError, match="got a snapshot of centers, expected"):
        from_snapshot({"centers": torch.zeros(2, 2)})


def test_heads_without_attention_are_refused(paper_records):
    with pytest.raises(ValueError, match="resnet18--cifar10--seed0 has no attention"):
        heads_of(load_run(paper_records / "resnet18--cifar10--seed0"))


def test_lemma_3_of_a_hard_and_of_a_missing_offset():
    shifts = offset_set((3, 3)).double()
    hard = QuadraticEncoding.from_alpha(shifts, 50.0)
    assert lemma_3_residual(hard, 7, 7).max() < 1e-10
    moved = shifts.clone()
    moved[0] = torch.tensor([2.0, 2.0])
    residual = lemma_3_residual(QuadraticEncoding.from_alpha(moved, 50.0), 7, 7)
    assert residual[0, 0] > 0.9 and residual.flatten()[1:].max() < 1e-10


@pytest.mark.parametrize("alpha", [0.3, 1.0, 5.0])
def test_lost_mass_is_one_minus_an_inverse_theta_squared(alpha):
    theta = np.exp(-alpha * np.arange(-60.0, 61) ** 2).sum()
    alphas = torch.tensor([alpha], dtype=torch.float64)
    lost = lost_mass(alphas, (0.0, 0.0), reach=20)
    assert math.isclose(lost.item(), 1 - theta**-2, rel_tol=1e-9)
    maps = attention_probabilities(
        QuadraticEncoding.from_alpha(torch.tensor([[0.2, -0.3]]).double(), alpha), 33, 33
    )
    assert math.isclose(
        lost_mass(alphas, (0.2, -0.3), 16).item(), 1 - maps[0, 16, 16].max().item(), rel_tol=1e-6
    )


def test_lost_mass_of_a_sharp_head_is_not_rounded_away():
    assert math.isclose(
        lost_mass(torch.tensor([60.0]), (0.0, 0.0)).item(), 4 * math.exp(-60), rel_tol=1e-9
    )
