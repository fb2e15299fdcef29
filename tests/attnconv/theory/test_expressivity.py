"""Lemma 3, its correction, and the counter-example."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnconv import attention_probabilities, expresses_convolution, hard_alpha
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.expressivity import head_combination, offset_targets
from attnconv.theory.grid import offset_set

HARD = hard_alpha(torch.float64)


def gaussian_heads(kernel_size=(3, 3), height=7, width=8, alpha=HARD):
    encoding = QuadraticEncoding.from_alpha(offset_set(kernel_size).double(), alpha)
    return attention_probabilities(encoding, height, width)


def random_maps(heads, height, width):
    return (
        torch.randn(heads, height, width, height * width)
        .double()
        .softmax(-1)
        .reshape(heads, height, width, height, width)
    )


@settings(max_examples=25, deadline=None)
@given(k_1=st.integers(1, 4), k_2=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_hard_heads_express_and_so_do_their_blends(k_1, k_2, seed):
    torch.manual_seed(seed)
    hard = gaussian_heads((k_1, k_2), 6, 5)
    # a blend that is safely invertible: half of each head stays
    blend = 0.5 * torch.eye(k_1 * k_2).double() + 0.5 * torch.rand(
        k_1 * k_2, k_1 * k_2
    ).double().softmax(1)
    for maps in (hard, torch.einsum("gh,hijkl->gijkl", blend, hard)):
        answer = expresses_convolution(maps, (k_1, k_2), tol=1e-8)
        assert answer.expresses and answer.residual.shape == (k_1, k_2)
    fewer = expresses_convolution(hard[1:], (k_1, k_2)) if k_1 * k_2 > 1 else None
    if fewer is not None:
        assert (
            not fewer.expresses
            and fewer.residual[0, 0] == pytest.approx(1)
            and (fewer.residual.flatten()[1:] < 1e-8).all()
        )


def test_random_heads_do_not():
    expresses, residual = expresses_convolution(random_maps(9, 6, 6), 3)
    assert not expresses and residual.min() > 0.5


def test_the_counter_example():
    maps = gaussian_heads()
    odd = (torch.arange(7)[:, None] + torch.arange(8)) % 2 == 1
    maps[:, odd] = maps.flip(0)[:, odd]
    assert expresses_convolution(maps, 3, shared=False).expresses
    answer = expresses_convolution(maps, 3)
    assert not answer.expresses
    assert answer.residual[1, 1] < 1e-10, "the centre is its own mirror image"
    assert answer.residual[0, 0] > 0.5


def test_residual_matches_a_projection_by_another_route():
    maps = random_maps(4, 4, 4)
    queries, targets = offset_targets(4, 4, (3, 3))
    found = head_combination(maps, 3, shared=False)
    for number, (i, j) in enumerate(queries.tolist()):
        A = maps[:, i, j].flatten(1)  # (N_h, T)
        projector = torch.linalg.pinv(A) @ A
        expected = (targets[number] - targets[number] @ projector).norm(dim=-1)
        assert torch.allclose(found.residual[number], expected)


def test_border_queries():
    replicated = gaussian_heads()
    interior = {"border": "interior"}
    assert expresses_convolution(replicated, 3, **interior).expresses
    zero = expresses_convolution(replicated, 3, border="zero")
    assert not zero.expresses and zero.residual[1, 1] < 1e-10, (
        "hard heads replicate the border, they do not pad with zeros"
    )
    queries, targets = offset_targets(7, 8, (3, 3), "zero")
    assert len(queries) == 56 and targets[0, 0].sum() == 0 and targets[0, -1, 9] == 1


@pytest.mark.parametrize(
    ("maps", "kernel_size", "message"),
    [
        (torch.ones(2, 3, 3), 3, "expected \\(heads, H, W, H, W\\)"),
        (torch.randn(2, 4, 4, 4, 4), 3, "apply the softmax first"),
        (torch.full((2, 4, 4, 4, 4), torch.nan), 3, "NaN"),
        (torch.full((2, 4, 4, 4, 4), 1 / 16), 5, "kernel_size is \\(5, 5\\)"),
        (torch.full((2, 4, 4, 4, 4), 1 / 16), 0, "kernel_size is \\(0, 0\\)"),
    ],
)
def test_bad_input(maps, kernel_size, message):
    with pytest.raises(ValueError, match=message):
        expresses_convolution(maps, kernel_size)
    with pytest.raises(ValueError, match="'interior' or 'zero'"):
        expresses_convolution(gaussian_heads(), 3, border="none")


def test_probabilities_by_offset_need_one_mixture_per_query_if_they_reach_outside():
    """On 4 x 3 pixels, the interior queries are (1, 1) and (2, 1); rows -1 and 4 are outside."""
    others = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    heads = [{offset: 1.0} for offset in others] + [
        {(0, 0): 0.5, (2, 0): 0.5, (-2, 1): 0.5},
        {(2, 0): 1.0, (-2, 0): 1.0},
        {(2, 1): 1.0, (-2, 1): 1.0},
    ]
    maps = torch.full((len(heads), 4, 3, 4, 3), 1 / 12, dtype=torch.float64)
    for head, by_offset in enumerate(heads):
        for i in (1, 2):
            maps[head, i, 1] = 0
            for (row, column), probability in by_offset.items():
                if 0 <= i + row < 4:
                    maps[head, i, 1, i + row, 1 + column] = probability
    assert torch.allclose(maps.sum(dim=(-2, -1)), torch.ones(()).double())
    assert expresses_convolution(maps, 3, shared=False).expresses
    assert expresses_convolution(maps, 3).residual.max() > 0.5
