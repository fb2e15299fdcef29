"""Facts that pages state in words about the paper's claims; each test names the sentence.

A test that fails means that new records have made a sentence of the page false.
"""

from itertools import combinations

import pytest
import torch

from attnconv.cost import cost_of
from attnconv.networks import build_model
from companion.claims import numbers, registry, results
from companion.claims.numbers import local_heads
from companion.claims.paper import by_layer, on_grid, start_and_end
from companion.figures.trained_heads import maps_on_picture
from companion.heads import heads_of
from companion.runs.select import Records
from companion.specs import SPECS
from companion.studies.scaling.measures import SIZES, changes

NEIGHBOURS = {(-1, 0), (1, 0), (0, -1), (0, 1)}
DIAGONALS = {(-1, -1), (-1, 1), (1, -1), (1, 1)}


@pytest.fixture(scope="module")
def records():
    return Records.read()


@pytest.fixture(scope="module")
def small(records):
    return records.at("small")


@pytest.fixture(scope="module")
def quadratic(small):
    return small.of("sa-quadratic")


@pytest.fixture(scope="module")
def sixteen(small):
    return small.of("sa-quadratic-16")


@pytest.fixture(scope="module")
def longer(records):
    return records.at("small-long").of("sa-quadratic")


@pytest.fixture(scope="module")
def tally(records):
    return results.tally(records)


@pytest.fixture(scope="module")
def judged(records):
    """The verdict in the small tier on each claim in the table of Results, by its text."""
    return {row[0]: row[1] for row in results.claims_tables(records)[0].rows}


def masses(runs):
    return torch.cat([heads.mass for run in runs for heads in heads_of(run)])


def offsets(heads, chosen):
    return {tuple(offset) for offset in heads.offsets[chosen].tolist()}


def test_the_paper_tier_has_not_been_run(records):
    """As the home page, Results and the checklists say; chapters 8 to 11 show the small tier."""
    assert not records.at("paper").of(*SPECS)


# --- the home page (book/intro.md) ----------------------------------------------------------------


def test_home_some_heads_move_to_the_pixels_but_no_layer_becomes_a_convolution(quadratic):
    assert 2 <= max(results.kernel_positions(quadratic)) < 9


def test_home_before_training_the_heads_are_too_wide_to_cover_any_position(quadratic):
    assert not any(heads.offsets_with_mass(3) for run in quadratic for heads in heads_of(run, 0))


def test_home_after_60_epochs_they_cover_the_four_direct_neighbours_and_no_other(longer):
    assert len(longer) == 2  # "two networks"
    for run in longer:
        fourth = heads_of(run)[3]
        covered = offsets(fourth, fourth.mass >= 0.5)
        assert covered >= NEIGHBOURS
        assert not covered & {(0, 0), *DIAGONALS}


def test_home_one_verdict_is_undecided(tally):
    assert tally["undecided"] == 1


@pytest.mark.parametrize(
    ("tier", "begins", "verdict"),
    [
        ("small", "self-attention with the quadratic encoding is as", "differs"),
        ("small", "the heads of layer 4", "differs"),
        ("small", "16 heads do not", "differs"),
        ("small", "with a learned encoding", "partly"),
        ("small", "with content, some heads", "partly"),
        ("small", "with 16 heads, local ones", "reproduced"),
        ("small-long", "the heads of layer 4", "partly"),
    ],
)
def test_home_one_claim_about_heads_is_reproduced_and_the_others_hold_at_best_in_part(
    records, tier, begins, verdict
):
    assert results.judge_from(records, tier, begins).verdict == verdict


@pytest.mark.parametrize("tier", ["vit-10k", "vit-10k-long"])
def test_home_a_transformer_that_starts_as_a_convolution_is_more_accurate(records, tier):
    (helps,) = registry.select(["start-helps"])
    assert helps.judge_in(tier, records).verdict == "helps"


# --- Results (book/report.md) ---------------------------------------------------------------------


def test_results_no_verdict_is_exceeded(tally):
    """It is not among the verdicts that the text lists."""
    assert not tally["exceeded"]


@pytest.mark.parametrize(
    ("axis", "verdict"), [("epochs", "narrows"), ("size", "widens"), ("tokens", "narrows")]
)
def test_results_how_the_gap_changes(records, axis, verdict):
    assert changes(records)[axis].verdict == verdict


def test_results_with_16_tokens_the_gap_closes(records):
    assert changes(records)["tokens"].last <= 0
    assert len(records.at("small-tokens").of("sa-quadratic")) == 2  # "two seeds"


def test_results_the_text_discusses_all_claims_that_fail(judged):
    failed = {
        "with content, attention is harder to train",
        "self-attention with the quadratic encoding is as accurate as ResNet18",
        "the heads of layer 4 attend to single pixels that form a grid around the query",
        "16 heads do not overlap",
    }
    assert {claim for claim, verdict in judged.items() if verdict == "differs"} == failed


@pytest.mark.parametrize(
    ("begins", "verdict"),
    [
        ("with a learned encoding some heads", "partly"),
        ("with 16 heads, local ones", "reproduced"),
        ("other heads use the content", "reproduced"),
        ("the pruned model recovers the accuracy of the unpruned one", "reproduced"),
    ],
)
def test_results_the_claims_that_the_text_discusses(judged, begins, verdict):
    assert [judged[claim] for claim in judged if claim.startswith(begins)] == [verdict]


def test_results_local_heads_inside_the_kernel_are_most_frequent_in_layers_1_and_2(small):
    """Without content; "absent" in layers 5 and 6."""
    inside = by_layer({"sa-learned": small.of("sa-learned")}, "sa-learned", numbers.inside_kernel)
    assert min(inside[:2]) > max(inside[2:])
    assert inside[4:] == [0, 0]


def test_results_one_run_with_content_and_pruning_fails_without_training(records, small):
    assert len(small.of("sa-learned-content")) == 1
    assert results.judge_from(records, "paper", "pruning reduces size").verdict == "differs"


def test_results_after_60_epochs_the_grid_claim_holds_in_part_but_not_the_one_on_distance(records):
    table = results.variants_table(records)
    grid, far = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert (grid["20 epochs"], grid["60 epochs"]) == ("differs", "partly")
    assert (far["20 epochs"], far["60 epochs"]) == ("partly", "differs")


def test_results_after_60_epochs_layers_3_5_and_6_look_further_than_layers_1_and_2(longer):
    runs = {"sa-quadratic": longer}
    before, after = start_and_end(runs, "sa-quadratic", lambda heads: heads.distance.mean().item())
    further = [layer for layer in (3, 4, 5, 6) if after[layer - 1] > max(after[:2])]
    assert further == [3, 5, 6]
    assert all(now < then for then, now in zip(before[2:], after[2:], strict=True))


def test_results_the_median_centre_is_further_out_in_layers_3_to_6_at_one_width(
    records, quadratic, longer
):
    networks = [*quadratic, *longer]
    others = [
        run for tier in SIZES if tier != "small" for run in records.at(tier).of("sa-quadratic")
    ]
    width = networks[0].info.parameters["width"]
    for run in networks + others:
        centre = [e.centers.norm(dim=1).median().item() for e in run.history.encodings()]
        further_out = min(centre[2:]) > max(centre[:2])
        assert further_out == (run.info.parameters["width"] == width), run.name


def test_results_in_both_networks_the_same_five_offsets_of_the_grid_are_covered(longer):
    fourth = [heads_of(run)[3] for run in longer]
    assert [offsets(heads, on_grid(heads)) for heads in fourth] == 2 * [{*NEIGHBOURS, (-2, 0)}]


# --- chapter 8 -----------------------------------------------------------------------------------


def test_chapter_10_counting_every_product_adds_nothing_for_resnet18():
    """The errata list states this, too."""
    cost = cost_of(build_model("resnet18"))
    assert round(cost.flops / cost.flops_paper - 1, 3) == 0


# --- chapter 9 -----------------------------------------------------------------------------------


def test_chapter_11_no_layer_covers_the_whole_kernel(quadratic, sixteen):
    """The captions of Figures 4 and 14."""
    for run in (quadratic[0], sixteen[0]):
        assert all(heads.offsets_with_mass(3) < 9 for heads in heads_of(run))


def test_chapter_11_few_heads_have_most_of_their_mass_at_one_offset(quadratic):
    assert (masses(quadratic[:1]) > 0.5).double().mean() < 1 / 3


def test_chapter_11_of_16_heads_some_attend_to_single_pixels_and_many_are_nearly_uniform(sixteen):
    mass = masses(sixteen[:1])
    assert (mass > 0.9).sum() > 10
    assert (mass < 0.1).sum() > 30


def test_chapter_11_no_two_sharp_heads_of_a_layer_share_an_offset(sixteen):
    for run in sixteen:
        for heads in heads_of(run):
            shifts = heads.offsets[heads.mass >= 0.5]
            assert len(shifts.unique(dim=0)) == len(shifts)


def test_chapter_11_layers_1_to_3_have_more_local_heads_in_one_seed_and_one_fewer_in_the_other(
    sixteen,
):
    local = [local_heads(run) for run in sixteen]
    ahead = sorted(sum(run[:3]) - sum(run[3:]) for run in local)
    assert len(ahead) == 2
    assert ahead[0] == -1
    assert ahead[1] > 0
    assert torch.tensor(local).sum(dim=0).argmax() == 4  # "layer 5 has the most"


def test_chapter_11_no_difference_between_the_sizes_of_tokens_is_shown(records, quadratic):
    coarse = [sum(local_heads(run)) for run in quadratic]
    fine = [sum(local_heads(run)) for run in records.at("small-tokens").of("sa-quadratic")]
    assert min(fine) <= max(coarse)
    assert max(fine) >= min(coarse)


def test_chapter_11_with_16_tokens_five_heads_of_layer_1_attend_to_one_pixel_each(records):
    """The caption of the figure; "in layers 4 to 6, most heads are wide"."""
    layers = heads_of(records.at("small-tokens").of("sa-quadratic")[0])
    near = layers[0].offsets.abs().amax(dim=1) <= 1
    assert int(((layers[0].mass > 0.97) & near).sum()) == 5
    wide = torch.cat([heads.mass for heads in layers[3:]]) < 0.5
    assert wide.double().mean() > 0.5


# --- chapter 11 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["sa-learned", "sa-learned-content"])
def test_chapter_13_no_head_has_90_percent_of_its_mass_at_one_offset(small, model):
    assert (masses(small.of(model)[:1]) < 0.9).all()


def test_chapter_13_layer_6_has_the_most_local_heads_on_average(small):
    counts = [local_heads(run) for run in small.of("sa-learned")]
    assert torch.tensor(counts).sum(dim=0).argmax() == 5


def test_chapter_13_every_map_differs_between_the_pictures(small):
    """The captions of Figures 8 to 10; the measure is the total variation distance."""
    content = small.of("sa-learned-content")[0]
    maps = [maps_on_picture(content, picture) for picture in ("chelsea", "horse", "china")]
    for one, other in combinations(maps, 2):
        assert ((one - other).abs().sum(dim=(-2, -1)) / 2 > 0.25).all()


def test_chapter_13_averaging_adds_least_entropy_in_layer_1_and_most_in_layer_6(small):
    content = small.of("sa-learned-content")[0]
    maps = content.content_maps.single["image"].maps().double()
    single = torch.special.entr(maps).sum(dim=(-2, -1)).mean(dim=(0, 3))
    blurred = torch.special.entr(maps.mean(dim=0)).sum(dim=(-2, -1)).mean(dim=2)
    added = (blurred - single).mean(dim=1)
    assert added.argmin() == 0
    assert added.argmax() == 5
