"""Encodings against their equations, and separable attention against dense."""

import pytest
import torch
from helpers.encodings import H, W, kinds

from attnconv import attention_probabilities
from attnconv.layers.encodings import (
    LearnedAbsoluteEncoding,
    LearnedOffsetEmbedding,
    QuadraticEncoding,
    RelativeBias,
    SeparableEncoding,
    learned_offset_scores,
)
from attnconv.theory import attention
from attnconv.theory.encodings import (
    generalized_quadratic_encoding,
    generalized_quadratic_target,
    quadratic_encoding,
    quadratic_target,
    sinusoidal_encoding,
)
from attnconv.theory.grid import relative_offsets
from companion.gaps import largest_gap


def test_quadratic_scores_are_equation_9():
    encoding = kinds()["quadratic"]
    delta = relative_offsets(H, W).double()
    v_r = torch.einsum(
        "hp,ijklp->hijkl",
        quadratic_target(encoding.centers, encoding.alpha),
        quadratic_encoding(delta),
    )
    probabilities = attention.spatial_softmax(v_r)
    assert (
        largest_gap(attention_probabilities(encoding, H, W).detach(), probabilities.detach())
        < 1e-12
    )


def test_generalized_scores_are_equation_19():
    encoding = kinds()["generalized"]
    delta = relative_offsets(H, W).double()
    target = generalized_quadratic_target(encoding.centers, encoding.precision)
    v_r = torch.einsum("hp,ijklp->hijkl", target, generalized_quadratic_encoding(delta))
    assert (
        largest_gap(
            attention_probabilities(encoding, H, W).detach(),
            attention.spatial_softmax(v_r).detach(),
        )
        < 1e-12
    )
    one_by_one = encoding.scores(torch.tensor([2, -1]))
    offset = torch.tensor([2.0, -1.0]).double() - encoding.centers
    assert torch.allclose(
        one_by_one, -0.5 * torch.einsum("hi,hij,hj->h", offset, encoding.precision, offset)
    )


def test_generalized_contains_the_isotropic():
    quadratic, general = kinds()["quadratic"], kinds()["generalized"]
    with torch.no_grad():
        general.centers.copy_(quadratic.centers)
        general.root.copy_(quadratic.spread.view(-1, 1, 1) * torch.eye(2))
    delta = relative_offsets(H, W)
    assert largest_gap(general.scores(delta).detach(), quadratic.scores(delta).detach()) < 1e-12


def test_learned_scores_are_the_last_term_of_equation_8():
    encoding = kinds()["learned"]
    r = encoding.embedding(relative_offsets(H, W))  # (H, W, H, W, 2 * dim)
    v = torch.cat([target.weight for target in encoding.targets], dim=1)
    assert (
        largest_gap(
            encoding.position_scores(H, W).detach(), torch.einsum("hp,ijklp->hijkl", v, r).detach()
        )
        < 1e-12
    )


def test_learned_offset_scores_match_the_dense_form():
    """The scores with content are tested with their layer, `ContentAttention`."""
    embedding = LearnedOffsetEmbedding(H, W, dim=3).double()
    queries = torch.randn(2, 4, H, W, 6).double()
    dense = torch.einsum("bhijd,ijkld->bhijkl", queries, embedding(relative_offsets(H, W)))
    rows, columns = learned_offset_scores(queries, embedding)
    ours = rows.unsqueeze(-1) + columns.unsqueeze(-2)
    assert largest_gap(ours.detach(), dense.detach()) < 1e-12


@pytest.mark.parametrize("name", ["quadratic", "learned"])
def test_separable_attention_is_the_dense_one(name):
    encoding = kinds()[name]
    assert isinstance(encoding, SeparableEncoding)
    rows, columns = encoding.axis_probabilities(H, W)
    product = torch.einsum("hik,hjl->hijkl", rows, columns)
    assert largest_gap(product.detach(), attention_probabilities(encoding, H, W).detach()) < 1e-12


@pytest.mark.parametrize("name", list(kinds()))
def test_scores_depend_on_the_shift_only(name):
    scores = kinds()[name].position_scores(H, W).detach()
    assert largest_gap(scores[:, 1:, 2:, 1:, 2:], scores[:, :-1, :-2, :-1, :-2]) < 1e-14


def test_starting_values():
    torch.manual_seed(1)
    encoding = QuadraticEncoding(5000)
    assert encoding.centers.std().item() == pytest.approx(2.0, rel=0.05)
    assert encoding.alpha.mean().item() == pytest.approx(0.5, rel=0.01)
    assert QuadraticEncoding.from_alpha(torch.zeros(1, 2), 46).alpha.item() == pytest.approx(46)


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), 0, -1.0, "soft", None])
def test_alpha_must_be_positive_and_finite(alpha):
    with pytest.raises(ValueError, match="positive finite number"):
        QuadraticEncoding.from_alpha(torch.zeros(1, 2), alpha)


def test_shifts_beyond_a_table_are_refused():
    with pytest.raises(ValueError, match="build it for the larger image"):
        kinds()["learned"].position_scores(H, W + 1)
    with pytest.raises(ValueError, match="which serves images up to 6 x 7"):
        kinds()["bias"].position_scores(H + 1, W)
    with pytest.raises(ValueError, match="expected \\(heads, 2H - 1, 2W - 1\\)"):
        RelativeBias(torch.zeros(2, 6, 7))


def test_sinusoids_match_the_formula():
    P = sinusoidal_encoding(5, 4, dim=8)
    for i in range(5):
        for j in range(4):
            expected = [
                f(p / 100.0**e)
                for p in (i, j)
                for e in (0, 1)
                for f in (torch.sin, torch.cos)
                for p in [torch.tensor(float(p))]
            ]
            assert torch.allclose(P[i, j], torch.stack(expected), atol=1e-6)
    with pytest.raises(ValueError, match="multiple of 4"):
        sinusoidal_encoding(5, 4, dim=6)
    assert LearnedAbsoluteEncoding(5, 4, dim=3)().shape == (5, 4, 3)
