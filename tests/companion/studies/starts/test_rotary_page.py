"""The facts that chapter 18 states in words hold for the committed records."""

from statistics import mean

import pytest
import torch
from helpers.pages import states

from attnconv.theory.rotary import axial_frequencies, rotary_gap
from companion.studies.starts import numbers
from companion.studies.starts.factorial import (
    ROTARY,
    ROTARY_CLAIMS,
    ROTARY_ERRORS,
    ROTARY_QUESTIONS,
    TIER,
)
from companion.studies.starts.figures import BASES, QUERY, SIDE, rotary_map
from companion.studies.starts.measures import OURS, accuracies_of

PAGE = "notebooks/18-rotary-starts.ipynb"


@pytest.fixture(scope="module")
def rotary(committed):
    """The accuracies of each start of a network with rotary encodings, by seed."""
    runs = {name: committed.at(TIER).of(name) for name in ROTARY}
    return {name: [run.accuracy for run in of] for name, of in runs.items()}


@states(PAGE, "No gain is shown", "Neither difference does")
def test_no_effect_is_shown_with_rotary_encodings(committed):
    verdicts = {claim.judge(committed)[0].verdict for claim in ROTARY_CLAIMS}
    assert verdicts == {"no effect shown"}


@states("notebooks/17-starts.ipynb", "With rotary encodings, no gain is shown")
def test_chapter_17_says_so_too(committed):
    (claim,) = (claim for claim in ROTARY_CLAIMS if claim.name == "rotary-helps")
    assert claim.judge(committed)[0].verdict == "no effect shown"


@states(PAGE, "in commit `e601f96`")
def test_the_rules_name_their_commit():
    assert {claim.fixed for claim in ROTARY_CLAIMS} == {"e601f96"}


@states(PAGE, "There are three seeds per start", "differ by more than its mean does from the other")
def test_seeds_of_the_rotary_convolution_differ_by_more_than_the_starts(rotary):
    assert {len(accuracies) for accuracies in rotary.values()} == {3}
    ours, *others = rotary.values()
    gaps = [abs(mean(ours) - mean(accuracies)) for accuracies in others]
    assert max(ours) - min(ours) > max(gaps)


@states(PAGE, "A gain as large as with a position bias", "which would have been shown here")
def test_a_gain_as_with_a_position_bias_would_have_been_shown(committed, rotary):
    error = ROTARY_QUESTIONS["helps"].effect(rotary).standard_error
    assert numbers.gain(accuracies_of(committed), "vit-10k") > ROTARY_ERRORS * error


@states(PAGE, "Training softens these heads more than those with a position bias")
def test_training_softens_rotary_heads_more(committed):
    runs = committed.at(TIER)
    rotary, biased = (runs.of(name) for name in ("vit-rotary-convolution", OURS))
    assert numbers.largest_mass_by_offset(rotary) < 0.6 * numbers.largest_mass_by_offset(biased)


def largest_of_others(dim):
    """Return the offsets from the head's own pixel to the brightest other pixels of its map."""
    attention = rotary_map(dim, (-2, 3), 1.5)
    row, column = QUERY[0] - 2, QUERY[1] + 3
    assert attention[row, column] == attention.max()
    others = attention.clone()
    others[row, column] = 0
    best = (others > (1 - 1e-9) * others.max()).nonzero() - torch.tensor([row, column])
    assert float((attention.max() / others.max()).log()) == pytest.approx(1.5)
    return {tuple(offset) for offset in best.tolist()}


@states(PAGE, "the second-best pixels are six pixels away", "they are the direct neighbours")
def test_the_second_best_pixels_are_periods_or_neighbours():
    for dim, distance in ((4, 6), (12, 1), (64, 1)):
        around = {(distance, 0), (-distance, 0), (0, distance), (0, -distance)}
        assert largest_of_others(dim) == around


@states(PAGE, "grows with the head dimension and falls as the base grows")
def test_the_gap_by_head_dimension_and_base():
    gaps = torch.tensor(
        [
            [rotary_gap(axial_frequencies(dim, base), SIDE, SIDE) for base in BASES]
            for dim in (4, 8, 12, 32, 64)
        ]
    )
    assert (gaps.diff(dim=0) > 0).all() and (gaps[1:].diff(dim=1) < 0).all()
    assert (gaps[0] - 0.04).abs().max() < 5e-4
