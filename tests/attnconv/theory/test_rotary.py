"""Theorem 1 with rotary encodings, against complex numbers and convolutions."""

import math

import pytest
import torch

from attnconv.theory.attention import convolution
from attnconv.theory.grid import all_offsets, offset_set, pixels, relative_offsets
from attnconv.theory.rotary import (
    axial_frequencies,
    convolution_by_rotary_attention,
    hard_rotary_alpha,
    rotary_biases,
    rotary_gap,
    rotary_others,
    rotary_scores,
    rotate,
    sufficient_rotary_alpha,
    sum_of_cosines,
)
from attnconv.theory.theorem1 import softness_bound
from companion.gaps import largest_gap

USUAL = axial_frequencies(64)
ONE_PAIR_PER_AXIS = axial_frequencies(4)
MIXED = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)).double()
ENCODINGS = {"usual": USUAL, "one pair per axis": ONE_PAIR_PER_AXIS, "mixed": MIXED}
BOUND = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.2}


@pytest.mark.parametrize("frequencies", ENCODINGS.values(), ids=ENCODINGS)
def test_a_rotation_is_a_product_of_complex_numbers(frequencies):
    x = torch.randn(5, 2 * len(frequencies)).double()
    position = torch.randint(-20, 20, (5, 2))
    turns = torch.polar(torch.ones(5, len(frequencies)).double(), position.double() @ frequencies.T)
    expected = torch.view_as_real(torch.view_as_complex(x.view(5, -1, 2)) * turns).flatten(1)
    assert largest_gap(rotate(x, position, frequencies), expected) < 1e-12


@pytest.mark.parametrize("frequencies", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("sizes", [(2, 2), (1, 5), (7, 6), (14, 14), (64, 64)])
def test_the_scores_are_a_sum_of_cosines(frequencies, sizes):
    """Rotated queries and keys against the closed form, and the gap that alpha stands for."""
    centers = torch.tensor([[1.0, -1.0]]).double()
    scores = rotary_scores(*rotary_biases(centers, frequencies, *sizes, 2.0), frequencies, *sizes)
    scale = 2.0 / rotary_gap(frequencies, *sizes)
    delta = relative_offsets(*sizes).flatten(2, 3).flatten(0, 1)
    by_offset = scale * sum_of_cosines(all_offsets(*sizes) - centers, frequencies)
    row, column = (delta + torch.tensor(sizes) - 1).unbind(dim=-1)
    expected = by_offset[row, column]
    assert largest_gap(scores[0], expected) < 1e-12 * scale * len(frequencies) * 10
    interior = (delta == centers).all(dim=-1).any(dim=-1)
    best = scores[0][interior].topk(2, dim=-1).values
    assert not interior.any() or (best[:, 0] - best[:, 1]).min() >= 2.0 - 1e-9


@pytest.mark.parametrize(
    ("dim", "base", "gap"), [(64, 100.0, 1.083), (64, 10_000.0, 0.686), (32, 100.0, 0.686)]
)
def test_usual_frequencies_are_sharp_on_every_grid(dim, base, gap):
    for side in (8, 14, 16, 37):
        assert round(rotary_gap(axial_frequencies(dim, base), side, side), 3) == gap


def test_one_frequency_is_enough_but_its_gap_falls_with_the_grid():
    gaps = [rotary_gap(ONE_PAIR_PER_AXIS, side, side) for side in (2, 8, 16, 37, 64)]
    assert [round(gap, 4) for gap in gaps] == [0.4597, 0.0398, 0.0398, 0.0088, 0.0002]
    assert math.isclose(gaps[1], 1 - math.cos(6)) and math.isclose(gaps[-1], 1 - math.cos(44))


@pytest.mark.parametrize("frequencies", ENCODINGS.values(), ids=ENCODINGS)
def test_the_gap_is_the_smallest_over_all_pairs_of_pixels(frequencies):
    sizes = (5, 7)
    p = pixels(*sizes)
    gap = math.inf
    for query in p.tolist():
        for key in p.tolist():
            if query != key:
                u = torch.tensor(key).double() - torch.tensor(query)
                gap = min(gap, float((1 - (frequencies @ u).cos()).sum()))
    assert math.isclose(rotary_gap(frequencies, *sizes), gap, rel_tol=1e-9)


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (3, 5), (4, 2)])
@pytest.mark.parametrize("frequencies", ENCODINGS.values(), ids=ENCODINGS)
def test_hard_rotary_heads_are_the_convolution(frequencies, kernel, dtype):
    X, W, b = (
        t.to(dtype) for t in (torch.rand(2, 7, 6, 3), torch.randn(*kernel, 3, 4), torch.ones(4))
    )
    ours = convolution_by_rotary_attention(X, W, frequencies, b)
    assert largest_gap(ours, convolution(X, W, b)) < BOUND[dtype]


@pytest.mark.parametrize("alpha", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("frequencies", ENCODINGS.values(), ids=ENCODINGS)
def test_soft_rotary_heads_are_within_the_bound(frequencies, alpha):
    """Moving the mass R exp(-alpha) changes an output by at most twice that; 8 exp(-alpha) is twice
    the mass that the quadratic encoding moves."""
    X = 2 * torch.rand(2, 7, 6, 3).double() - 1
    W = torch.randn(3, 3, 3, 4).double()
    soft = convolution_by_rotary_attention(X, W, frequencies, alpha=alpha)
    gap = (soft - convolution(X, W)).abs().amax(dim=(0, 1, 2))
    bound = softness_bound(W, alpha, largest=1.0) / 8 * 2 * rotary_others(frequencies, 9, 8)
    assert (gap <= bound).all() and gap.max() > 1e-4


def mass_elsewhere(center, frequencies, sizes, alpha):
    """The attention of a head to other pixels than its own, at every interior query."""
    biases = rotary_biases(center[None].double(), frequencies, *sizes, alpha)
    p = rotary_scores(*biases, frequencies, *sizes).softmax(dim=-1)[0]
    own = (relative_offsets(*sizes).flatten(2, 3).flatten(0, 1) == center).all(dim=-1)
    return p.masked_fill(own, 0.0).sum(dim=-1)[own.any(dim=-1)]


def drawing():
    """A function that draws whole numbers from low to high - 1, and the generator that it uses."""
    generator = torch.Generator().manual_seed(0)
    return lambda low, high: int(torch.randint(low, high, (), generator=generator)), generator


def test_the_stated_alpha_suffices():
    """1,000 random bases, head dimensions, grids, and shifts of either sign, at all queries."""
    draw, _ = drawing()
    for _ in range(1000):
        frequencies = axial_frequencies(4 * draw(1, 17), base=math.exp(draw(0, 1000) / 100))
        sizes = draw(2, 15), draw(2, 15)
        shift = torch.tensor([draw(1 - size, size) for size in sizes])
        miss = 10.0 ** -draw(2, 6)
        alpha = sufficient_rotary_alpha(frequencies, *sizes, miss)
        elsewhere = mass_elsewhere(shift, frequencies, sizes, alpha)
        assert len(elsewhere) == math.prod(
            size - abs(of_axis) for size, of_axis in zip(sizes, shift.tolist(), strict=True)
        )
        assert elsewhere.max() < miss


@pytest.mark.parametrize("axial", [True, False])
def test_half_the_stated_alpha_does_not_suffice(axial):
    """On 250 random frequency sets of either kind: the bound is sharp within a factor of two."""
    draw, generator = drawing()
    for _ in range(250):
        frequencies = torch.randn(draw(2, 17), 2, generator=generator).double()
        if axial:
            frequencies[0::2, 0] = frequencies[1::2, 1] = 0
        sizes = draw(2, 15), draw(2, 15)
        miss = 10.0 ** -draw(0, 5) / (rotary_others(frequencies, *sizes) + 2)
        alpha = sufficient_rotary_alpha(frequencies, *sizes, miss)
        assert alpha <= 2 * math.log(1 / miss - 1)
        centered = torch.zeros(2)
        assert mass_elsewhere(centered, frequencies, sizes, alpha).max() < miss
        assert mass_elsewhere(centered, frequencies, sizes, alpha / 2).max() > miss


def test_a_head_with_less_than_the_necessary_alpha_misses_more():
    """The second-best pixel alone takes `miss` if alpha is ln(1 / miss - 1)."""
    sizes = (9, 9)
    miss = 1e-3
    biases = rotary_biases(torch.zeros(1, 2).double(), USUAL, *sizes, math.log(1 / miss - 1))
    p = rotary_scores(*biases, USUAL, *sizes).softmax(dim=-1)[0, 40]
    assert 1 - p[40] > miss and p.topk(2).values[1] > 0.999 * miss * p[40] / (1 - miss)


@pytest.mark.parametrize("u", [(0, 4), (3, -2)])
def test_a_common_period_cannot_be_told_apart(u):
    """The converse: the scores at delta and delta + u agree for any constant queries and keys."""
    # the multiples of 2 pi / |u|^2 along u, and across u whatever
    along = torch.tensor(u).double() / (u[0] ** 2 + u[1] ** 2)
    across = torch.tensor([-u[1], u[0]]).double()
    frequencies = 2 * math.pi * torch.stack([along, 3 * along + 0.1 * across, 0.37 * across])
    with pytest.raises(ValueError, match="common period") as error:
        rotary_gap(frequencies, 6, 6)
    assert str(u) in str(error.value) or str((-u[0], -u[1])) in str(error.value)
    assert rotary_gap(frequencies, 3, 3) > 0.01, "the smaller grid that the message proposes"
    any_query, any_key = torch.randn(2, 1, 6).double()
    scores = rotary_scores(any_query, any_key, frequencies, 6, 6)[0].unflatten(0, (6, 6))
    query = 0 if u[1] >= 0 else 5
    of_query = scores[0, query].view(6, 6)
    assert torch.isclose(of_query[0, query], of_query[u[0], query + u[1]])


def test_without_a_constant_part_the_output_is_no_convolution_of_small_images():
    """Scores that are quadratic in the image vanish as the image does, and attention is uniform."""
    X, W_qry, W_key = torch.randn(36, 8).double(), *torch.randn(2, 8, 64).double()
    position = pixels(6, 6)

    def attention(scale):
        query, key = (rotate(scale * X @ W, position, USUAL) for W in (W_qry, W_key))
        return (query @ key.T).softmax(dim=-1)

    assert attention(1.0).max() > 0.9
    assert largest_gap(attention(1e-5), torch.full((36, 36), 1 / 36).double()) < 1e-6


def test_an_unrotated_token_is_a_copy_of_the_pixel_at_the_origin():
    """A class token with the same constant key: its score for the query q is that of the key at
    the position 0."""
    centers = torch.tensor([[1.0, 1.0]]).double()
    b_qry, b_key = rotary_biases(centers, USUAL, 7, 7, 3.0)
    queries = rotate(b_qry, pixels(7, 7) - 3, USUAL)  # coordinates whose origin is in the middle
    at_origin = rotate(b_key, torch.zeros(1, 2), USUAL)
    assert torch.equal(at_origin, b_key)
    best = int((queries @ b_key[0]).argmax())
    assert pixels(7, 7)[best].tolist() == [2, 2], "the query whose target is the origin (3, 3)"


def test_hard_rotary_alpha_is_one_hot_and_says_where_it_cannot_be():
    centers = offset_set((3, 3)).to(torch.bfloat16)
    alpha = hard_rotary_alpha(centers, USUAL, 14, 14)
    p = rotary_scores(*rotary_biases(centers, USUAL, 14, 14, alpha), USUAL, 14, 14).softmax(dim=-1)
    assert (p[:, 14 * 7 + 7].max(dim=-1).values == 1).all()
    with pytest.raises(ValueError, match="too coarse"):
        hard_rotary_alpha(centers[:1], ONE_PAIR_PER_AXIS, 48, 48)
    assert hard_rotary_alpha(centers[:1].float(), ONE_PAIR_PER_AXIS, 16, 16) == 104
    assert hard_rotary_alpha(centers[:1], axial_frequencies(64), 48, 48) > 0


@pytest.mark.parametrize(("dim", "remedy"), [(0, 4), (-4, 4), (2, 4), (3, 4), (6, 8), (65, 64)])
def test_a_dimension_that_has_no_pairs_for_both_axes(dim, remedy):
    message = rf"dim is {dim}, expected a positive multiple of 4 \(.*\); pass {remedy}, for example"
    with pytest.raises(ValueError, match=message):
        axial_frequencies(dim)
    assert len(axial_frequencies(remedy)) == remedy // 2


@pytest.mark.parametrize("dim", [2, 5, 6])
def test_queries_without_a_pair_for_each_frequency(dim):
    with pytest.raises(
        ValueError, match=f"have {dim} entries, expected 4: a pair for each of the 2 .*; change"
    ):
        rotate(torch.randn(3, dim), torch.zeros(3, 2), ONE_PAIR_PER_AXIS)
    assert rotate(torch.randn(3, 4), torch.zeros(3, 2), ONE_PAIR_PER_AXIS).shape == (3, 4)


def test_other_bad_input():
    with pytest.raises(ValueError, match=r"1 x 1, .*; use a larger image"):
        rotary_gap(USUAL, 1, 1)
    assert rotary_gap(USUAL, 1, 2) > 0
    with pytest.raises(ValueError, match=r"miss is 1\.5, .*; pass 0\.001"):
        sufficient_rotary_alpha(USUAL, 8, 8, 1.5)
    assert sufficient_rotary_alpha(USUAL, 8, 8, 0.001) > 0


def test_the_factor_of_the_bound():
    assert rotary_others(USUAL, 8, 6) == 12 and rotary_others(MIXED, 8, 6) == 47
