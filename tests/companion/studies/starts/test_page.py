"""The facts that chapter 17 states in words hold for the committed records."""

import dataclasses

import pytest
import torch
from helpers.pages import states

from attnconv import inspect_attention, load_model
from companion.data import load_photograph
from companion.studies.starts import numbers
from companion.studies.starts.claims import START_CLAIMS, answers
from companion.studies.starts.measures import (
    SHIFTS,
    VIT_TIERS,
    accuracies_of,
    compare_starts,
    share_that_stayed,
)
from companion.tiers import TIERS as ALL_TIERS

PAGE = "notebooks/17-starts.ipynb"
OURS = "vit-convolution"


@pytest.fixture(scope="module")
def accuracies(committed):
    return accuracies_of(committed)


@pytest.fixture(scope="module")
def means(accuracies):
    return numbers.mean_accuracies(accuracies)


@pytest.fixture(scope="module")
def two_seeds(committed):
    """The records of the first two seeds of each start."""
    found = [run for run in committed.found if run.info.parameters["seed"] < 2]
    return dataclasses.replace(committed, found=found, left_out={})


@pytest.fixture(scope="module")
def ours(committed):
    """The runs that started as a convolution, by tier."""
    return {tier: committed.at(tier).of(OURS) for tier in VIT_TIERS}


@pytest.fixture(scope="module")
def inside():
    """The attention of the trained network on tiles of two photographs, by layer."""
    trained = load_model(OURS, tier="vit-10k")
    tiles = []
    for name in ("china", "flower"):
        photograph = load_photograph(name, (256, 384))
        for tile in photograph.unfold(0, 32, 32).unfold(1, 32, 32).flatten(0, 1):
            tiles.append(trained.transform((255 * tile.movedim(0, -1)).round().byte()))
    return inspect_attention(trained, torch.stack(tiles)).layers


# --- accuracies ---


@states(
    PAGE,
    "Starting as a convolution helps a network with a position bias",
    "we have therefore not shown that the gain depends",
)
def test_the_rules_give_the_answers_that_the_page_states(committed):
    verdicts = {
        (claim.name, verdict.where): verdict.verdict
        for claim in START_CLAIMS
        for verdict in claim.judge(committed)
    }
    assert verdicts == {("start-helps", tier): "helps" for tier in VIT_TIERS} | {
        ("start-grid", "records"): "not shown to be the grid",
        ("start-data", "records"): "no change shown",
        ("start-lasts", "records"): "grows",
        ("start-stays", "records"): "stay",
    }


@states(PAGE, "Starting as a convolution helps a network with a position bias")
def test_the_convolution_is_more_accurate_than_timms_start(accuracies):
    assert compare_starts(accuracies, OURS, "vit-default", "vit-10k").sign == 1


@states(PAGE, "the heads should not all start on the query's own token")
def test_the_convolution_is_more_accurate_than_heads_on_the_own_token(accuracies):
    assert compare_starts(accuracies, OURS, "vit-center", "vit-10k").sign == 1


@states(PAGE, "the difference of the means is slightly more than two standard errors")
def test_random_offsets_are_more_accurate_than_the_convolution(accuracies):
    assert compare_starts(accuracies, OURS, "vit-random", "vit-10k").sign == -1


@states(PAGE, "The accuracy is higher than with the convolution for every seed")
def test_random_offsets_are_more_accurate_for_every_seed(accuracies):
    by_seed = zip(accuracies["vit-random"]["vit-10k"], accuracies[OURS]["vit-10k"], strict=True)
    assert all(random > grid for random, grid in by_seed)


@states(PAGE, "Each accuracy given in the answer is a mean over")
def test_each_accuracy_is_a_mean_over_several_seeds(accuracies):
    assert all(len(accuracies[f"vit-{s}"]["vit-10k"]) > 1 for s in ("default", "center", "random"))


@states("book/intro.md", "{glue:text}`../notebooks/17-starts.ipynb::starts-seeds:d` seeds each")
def test_the_convolution_and_timms_start_have_equally_many_seeds(accuracies):
    assert len(accuracies[OURS]["vit-10k"]) == len(accuracies["vit-default"]["vit-10k"])


@states(PAGE, "The accuracy is hardly higher than with timm's start")
def test_starting_on_the_own_token_is_hardly_more_accurate_than_timms_start(means):
    assert abs(means["vit-center"] - means["vit-default"]) < 0.02


@states(PAGE, "The gain over timm's start is about as large on 5,000 images")
def test_the_gain_is_about_as_large_on_each_number_of_images(accuracies):
    gains = [numbers.gain(accuracies, f"vit-{images}k") for images in (5, 10, 50)]
    assert max(gains) - min(gains) < 0.015


@states(PAGE, "the runs on 50,000 images take more than twice as many steps as the others")
def test_runs_on_50000_images_take_more_than_twice_as_many_steps():
    def steps(tier):
        recipe = ALL_TIERS[tier].recipe
        return recipe["train_images"] * recipe["epochs"] / recipe["batch_size"]

    assert steps("vit-50k") > 2 * steps("vit-10k")


@states(PAGE, "close to the convolution. Its network has absolute positions")
def test_the_mimetic_start_is_close_to_the_convolution(means):
    assert abs(means["vit-mimetic"] - means[OURS]) < 0.01


@states(PAGE, "about half of the convolution's gain over timm's start remains")
def test_half_of_the_gain_remains_with_frozen_attention(means):
    gain = means[OURS] - means["vit-default"]
    assert 0.4 < (means["vit-frozen"] - means["vit-default"]) / gain < 0.6


@states(PAGE, "third seeds were added after the answers", "They changed no answer")
def test_third_seeds_changed_no_answer(committed, two_seeds):
    assert answers(two_seeds) == answers(committed)


@states(PAGE, "the lead of random offsets over the convolution was below two standard errors")
def test_two_seeds_did_not_show_that_random_offsets_lead(two_seeds):
    lead = compare_starts(accuracies_of(two_seeds), OURS, "vit-random", "vit-10k")
    assert lead.sign == 0


@states(PAGE, "both networks fit the training images almost perfectly")
def test_both_long_runs_fit_the_training_images(committed):
    metrics = numbers.metrics_of_long_runs(committed).values()
    assert min(epochs[-1]["train_accuracy"] for epochs in metrics) > 0.97


@states(PAGE, "with timm's start, the test loss rises after epoch")
def test_the_test_loss_of_timms_start_rises_in_the_long_run(committed):
    metrics = numbers.metrics_of_long_runs(committed)["default"]
    losses = [epoch["test_loss"] for epoch in metrics]
    assert losses[-1] > 1.5 * min(losses)


# --- attention ---


@pytest.mark.parametrize("start", ["convolution", "random"])
@states(PAGE, "nearly every head still attends most to its initial offset after training")
def test_nearly_every_head_stays_by_its_bias_from_either_start(committed, start):
    assert min(map(share_that_stayed, committed.at("vit-10k").of(f"vit-{start}"))) > 0.9


@states(PAGE, "In every network that we started in this way, nearly all heads stay")
def test_nearly_all_heads_stay_in_every_network(ours):
    assert all(share_that_stayed(run) > 0.9 for runs in ours.values() for run in runs)


@states(PAGE, "Attention nevertheless becomes softer, especially in the last two layers.")
def test_attention_is_softest_in_the_last_two_layers(ours):
    for run in [run for runs in ours.values() for run in runs]:
        mass = run.attention[SHIFTS].float().flatten(2).amax(dim=2).mean(dim=1)
        assert set(mass.argsort()[:2].tolist()) == {4, 5}, run.name


@pytest.mark.slow
@states(PAGE, "each layer's nine heads still attend most to the nine kernel positions")
def test_the_best_offsets_on_photographs_are_the_kernel_positions(inside):
    grid = [[i, j] for i in (-1, 0, 1) for j in (-1, 0, 1)]
    assert all(sorted(layer.heads.offsets.tolist()) == grid for layer in inside)


@pytest.mark.slow
@states(PAGE, "only in the first layer does every head give its position at least half")
def test_only_in_the_first_layer_every_head_has_half_of_its_mass_at_one_offset(inside):
    first, *others = [int((layer.heads.mass >= 0.5).sum()) for layer in inside]
    assert first == 9 > max(others)


@states(PAGE, "Before training, the bias of a head's offset exceeds all its other biases by")
def test_biases_lead_by_2_before_training(ours):
    first = numbers.position_biases(ours["vit-10k"][0])[:, 0]
    lead = numbers.lead_of_largest_bias(first)
    assert torch.allclose(lead, torch.tensor(2.0))


@states(PAGE, "another one rises by at least 2 in total, so no head could have moved")
def test_no_head_could_have_moved_in_20_epochs(ours):
    assert 2 * numbers.largest_change(ours["vit-10k"]) < 2


@states(PAGE, "but by its bias, no head left its offset")
def test_no_head_left_its_offset_in_100_epochs(ours):
    (long_run,) = ours["vit-10k-long"]
    assert share_that_stayed(long_run) == 1


@states(PAGE, "heads of the ten networks that started as a convolution")
def test_ten_networks_started_as_a_convolution(ours):
    assert sum(map(len, ours.values())) == 10


@states(PAGE, "All are in the last two layers of networks trained on 50,000 images or for 100")
def test_content_moves_heads_only_in_the_last_two_layers_of_some_networks(ours):
    moved = {
        tier: torch.stack(list(map(numbers.moved_by_content, ours[tier]))) for tier in VIT_TIERS
    }
    assert not torch.cat(list(moved.values()))[:, :4].any()
    assert not moved["vit-5k"].any() and not moved["vit-10k"].any()
