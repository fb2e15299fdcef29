"""The facts that chapter 15 states in words hold for the committed records."""

import pytest
from helpers.pages import states

from companion.specs import ARMS
from companion.studies.freed import numbers
from companion.studies.freed.arms import STARTS
from companion.studies.freed.measures import (
    centers_of,
    distance_moved,
    distinct_pixels_by_layer,
)

PAGE = "notebooks/15-set-free.ipynb"


@pytest.fixture(scope="module")
def late(committed):
    """The growth factor of each layer if heads are freed after training: (seeds, layers, n)."""
    return numbers.growth_of(committed, "freed-100")[0]


@pytest.fixture(scope="module")
def answers(committed):
    return numbers.answers(committed)


@pytest.mark.parametrize("name", numbers.STATED)
@states(PAGE, "If further seeds change an answer stated in the text")
def test_each_stated_answer_is_the_verdict(answers, name):
    question, answer = numbers.STATED[name]
    assert answers[question] == answer


@states(PAGE, "Arms that start from the trained CNN reach the highest final test accuracy")
def test_arms_that_start_from_the_trained_cnn_are_the_most_accurate(committed):
    def accuracy(arm):
        runs = numbers.runs_of(committed, arm)
        return sum(run.accuracy for run in runs) / len(runs)

    late = {arm for arm, start in STARTS.items() if start.share == 1}
    assert min(map(accuracy, late)) > max(map(accuracy, ARMS.keys() - late))


@states(PAGE, "Heads freed before training move about twice as far as heads freed later")
def test_heads_freed_before_training_move_about_twice_as_far(committed):
    def mean_distance_moved(arm):
        centers = centers_of(numbers.runs_of(committed, arm))
        return distance_moved(centers)[:, :, -1].mean().item()

    far, near = (
        [mean_distance_moved(arm) for arm in arms]
        for arms in (
            ("freed-0", "random-freed"),
            ("freed-25", "freed-50", "freed-100", "places-100"),
        )
    )
    assert 1.7 < min(far) / max(near) < max(far) / min(near) < 2.3


@states(PAGE, "In layers 3 to 6 of the trained CNN, the grid grows by")
def test_the_grid_grows_in_layers_3_to_6(late):
    grown = 100 * (late.mean(dim=0)[:, -1] - 1)
    assert grown[2:].min() > 10 > 5 > grown[:2].abs().max() and grown.argmax() == 3
    assert (late[:, 2:, -1] > 1.08).all(), "in each seed"


@states(PAGE, "Wider heads are not the cause: with fixed alphas, the grids of layers 3 to 6 grow")
def test_wider_heads_are_not_the_cause_of_growth(committed, late):
    alone = numbers.growth_of(committed, "places-100")[0]
    assert len(alone) == len(late)
    share = (alone[:, 2:, -1] - 1) / (late[:, 2:, -1] - 1)
    assert share.min() > 0.8, "in each layer of each seed"


@states(PAGE, "If the heads are freed before training, the grid of layer 4 grows by")
def test_the_grid_of_layer_4_grows_if_heads_are_freed_before_training(committed):
    early = numbers.growth_of(committed, "freed-0")[0].mean(dim=0)
    assert early[3, -1] > 1.4


@states(PAGE, "but no two heads share a nearest pixel")
def test_no_two_heads_of_layer_4_share_a_nearest_pixel(committed):
    runs = numbers.runs_of(committed, "freed-0")
    assert {distinct_pixels_by_layer(run)[3] for run in runs} == {9}


@states(PAGE, "In layers 4 and 5, growth thus slows down clearly faster than the learning rate")
def test_growth_slows_down_clearly_faster_than_the_learning_rate_in_layers_4_and_5(committed):
    assert numbers.growth_done(committed)[1:3].min() > numbers.rates_done() + 15


@states(PAGE, "in layers 3 and 6, it follows the learning rate more closely")
def test_growth_follows_the_learning_rate_more_closely_in_layers_3_and_6(committed):
    layer_3, _, _, layer_6 = numbers.growth_done(committed)
    allowed = numbers.rates_done()
    assert allowed + 15 > max(layer_3, layer_6) and layer_6 > allowed


@pytest.mark.parametrize("arms", [("freed-0", "random-freed"), ("grid-0", "random-fixed")])
@states(PAGE, "If only the positions differ, the grid leads in every seed")
def test_the_grid_leads_in_every_seed_if_only_the_positions_differ(committed, arms):
    assert min(numbers.leads(committed, *arms)) > 0


@states(PAGE, "Only in layer 1 do they approach pixels")
def test_random_heads_approach_pixels_only_in_layer_1(committed):
    distances = numbers.distances_from_pixels(committed, "random-freed")  # (seeds, layers, n)
    halved = distances[..., -1] < distances[..., 0] / 2
    assert halved[:, 0].all() and (distances[:, 1:, -1] > distances[:, 1:, 0] / 2).all()


@states(PAGE, "of the nine heads end up outside the kernel")
def test_most_random_heads_end_up_outside_the_kernel_in_layer_4(committed):
    outside = numbers.heads_outside_the_kernel(committed, "random-freed")
    assert max(outside) == outside[3]
