"""The facts that chapter 10 states in words hold for the committed records."""

import pytest
import torch
from helpers.pages import states

from attnconv.networks import PUBLISHED_HEADS_LEFT
from companion import tables
from companion.heads import heads_of
from companion.studies import pruning

PAGE = "notebooks/10-beyond-isotropic.ipynb"


@pytest.fixture(scope="module")
def records(committed):
    return committed.choose_tier("auto", "sa-generalized", "sa-generalized-pruned")


@pytest.fixture(scope="module")
def whole(records):
    return records.of("sa-generalized")[0]


@states(PAGE, "no layer covers the kernel", "no layer covers all nine kernel positions")
def test_no_layer_covers_the_kernel(whole):
    assert all(int(row[5]) < 9 for row in tables.lemma_1_table(whole).rows)


@states(PAGE, "many heads with the generalised quadratic encoding are elongated")
def test_many_heads_are_elongated(whole):
    roots = torch.cat([encoding.root for encoding in whole.history.encodings()])
    elongated = torch.linalg.cond(roots.double()).square() > 10
    assert elongated.double().mean() > 0.5


@states(PAGE, "fewer than a third of the heads have most of their mass at one offset")
def test_few_heads_have_most_of_their_mass_at_one_offset(whole):
    mass = torch.cat([heads.mass for heads in heads_of(whole)])
    assert (mass > 0.5).double().mean() < 1 / 3


@states(PAGE, "By this rule, the answer is no: in both seeds, the control is more accurate")
def test_the_control_is_more_accurate_in_both_seeds(committed):
    small = committed.at("small")
    assert pruning.answer(small) == "no"
    assert len(pruning.lost(small)) == 2
    assert min(pruning.lost(small)) > pruning.TOLERANCE


@states(PAGE, "the higher layers have the larger axis ratios only among heads with fewer than 32")
def test_higher_layers_have_the_larger_axis_ratios_only_below_32_pixels(records):
    ratios = pruning.axis_ratios_by_layer(records.of("sa-generalized"))
    larger = {name: bool(r[:, 3:].mean() > r[:, :3].mean()) for name, r in ratios.items()}
    assert larger == {"": False, "-48": False, "-32": True}


@states(PAGE, "With further training, accuracy recovers almost completely")
def test_accuracy_recovers_almost_completely(records):
    before, after, end = pruning.accuracies(records.of("sa-generalized-pruned")[0])
    assert after < before - 0.05 and abs(end - before) < 0.01


@states(PAGE, "Layer 6 lost none", "The five layers that lost heads")
def test_only_layer_6_lost_no_head_in_the_paper():
    assert [n for n, heads in enumerate(PUBLISHED_HEADS_LEFT, start=1) if heads == 9] == [6]
