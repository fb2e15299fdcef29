"""The facts that chapter 13 states in words hold for the committed records."""

import pytest
from helpers.pages import states

from companion.studies.scaling import numbers
from companion.studies.scaling.measures import COMPARED, changes, settings_of

PAGE = "notebooks/13-scaling.ipynb"


@pytest.fixture(scope="module")
def attention(committed):
    return settings_of(committed, "sa-quadratic")


@pytest.fixture(scope="module")
def resnet(committed):
    return settings_of(committed, "resnet18")


@pytest.fixture(scope="module")
def tokens(committed):
    return changes(committed)["tokens"]


@pytest.fixture(scope="module")
def checks(committed):
    return numbers.checks(committed)


def seeds(setting):
    return len(setting.accuracies)


@states(PAGE, "two seeds per model at 60 epochs", "two seeds per model in either case")
def test_both_models_have_two_seeds_at_60_epochs_and_at_double_width(attention, resnet):
    for tier in ("small-long", "small-double"):
        assert seeds(attention[tier]) == seeds(resnet[tier]) == 2, tier


@states(PAGE, "and two with 16 × 16 tokens")
def test_attention_has_two_seeds_with_16_x_16_tokens(attention):
    assert seeds(attention["small-tokens"]) == 2


@states(PAGE, "seeds per model).")
def test_both_models_have_the_same_number_of_seeds(attention, resnet):
    assert all(seeds(attention[tier]) == seeds(setting) for tier, setting in resnet.items())


@states(PAGE, "Seven of the ten runs that answer the question about epochs")
def test_ten_runs_answer_the_question_about_epochs(resnet):
    assert 2 * (seeds(resnet["small"]) + seeds(resnet["small-long"])) == 10


@states(PAGE, "At each width, the test error of attention (blue) is higher than that of ResNet18")
def test_attention_has_the_higher_error_in_each_setting_of_both_models(attention, resnet):
    for tier in attention.keys() & resnet.keys():
        assert attention[tier].error > resnet[tier].error, tier


@states(PAGE, "Longer training narrows the gap but does not close it")
def test_longer_training_does_not_close_the_gap(committed):
    assert changes(committed)["epochs"].last > 0


@states(PAGE, "closes with tokens as small as in the paper")
def test_small_tokens_close_the_gap(tokens):
    assert tokens.last <= 0


@states(PAGE, "attention is as accurate as ResNet18, within two standard errors")
def test_attention_leads_by_less_than_two_standard_errors_with_small_tokens(committed):
    assert numbers.lead_with_small_tokens(committed).sign == 0


@pytest.mark.parametrize("tier", ["small-double", "small-long"])
@states(PAGE, "with less training compute than attention with 16 × 16 tokens, ResNet18 reaches")
def test_resnet18_is_more_accurate_with_less_compute(attention, resnet, tier):
    fine, other = attention["small-tokens"], resnet[tier]
    assert other.compute < fine.compute and other.error < fine.error


@pytest.mark.parametrize("model", COMPARED)
@states(PAGE, "For both models, the check fails. At double width, the law predicts")
def test_the_check_of_the_power_law_fails_at_double_width(checks, model):
    check = checks[model]
    assert check.left_out == "small-double" and not check.holds


@pytest.mark.parametrize("model", COMPARED)
@states(PAGE, "The errors fall more slowly with size than the law")
def test_errors_fall_more_slowly_than_the_law_predicts(checks, model):
    check = checks[model]
    assert check.predicted < check.measured


@states(PAGE, "No network of double width was trained for 60 epochs.")
def test_no_network_of_double_width_was_trained_for_60_epochs(committed):
    assert not committed.at("small-double-long").of(*COMPARED)
