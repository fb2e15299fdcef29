"""Tests of the rule on spread and sharpness, and of the number of epochs that it needs."""

import numpy as np
import pytest

from companion.runs.select import Records
from companion.specs import SPECS, recipe
from companion.studies.starts.arms import ALL_STARTS
from companion.studies.starts.factorial import TIER
from companion.studies.starts.properties import (
    ALPHAS,
    PROPERTY_CLAIMS,
    QUESTIONS,
    SPREADS,
    STARTS,
    epochs_in_final_order,
)


def test_the_starts_have_the_stated_spreads_and_sharpness():
    assert len(STARTS) == 8 and set(STARTS) <= set(SPECS)
    for spread, model in SPREADS.items():
        start = ALL_STARTS[model.removeprefix("vit-")]
        assert (start.spread if start.offsets == "normal" else 0.0) == spread
        assert recipe(model, TIER)["start_alpha"] == 2.0
    for alpha, model in ALPHAS.items():
        start = ALL_STARTS[model.removeprefix("vit-")]
        assert (start.offsets, start.spread) == ("normal", 2.0)
        assert recipe(model, TIER)["start_alpha"] == alpha


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_contrast_compares(name):
    weights = QUESTIONS[name].weights
    assert set(weights) <= set(STARTS)
    assert sum(weights.values()) == pytest.approx(0)
    assert sum(map(abs, weights.values())) == pytest.approx(2)


def accuracies(**gains):
    """Accuracies by start: seeds differ by points, and starts by their gain and little noise."""
    noise = np.random.default_rng(0).normal(0, 0.001, (len(STARTS), 3))
    return {
        start: [
            0.60 + gains.get(start[4:], 0.0) + seed + e for seed, e in zip(seeds, of, strict=True)
        ]
        for start, of in zip(STARTS, noise, strict=True)
        for seeds in [(-0.02, 0.0, 0.02)]
    }


def test_the_rule_answers_in_both_directions():
    gains = {"spread-0.5": 0.03, "spread-1": 0.03, "random": 0.06, "spread-4": 0.04}
    found = accuracies(**gains, **{"alpha-0.1": 0.02, "alpha-0.5": 0.02, "alpha-8": 0.06})
    answers = {name: question.judge(found).verdict for name, question in QUESTIONS.items()}
    assert answers == {
        "spread": "it is better",
        "alpha": "sharper heads are better",
        "spread-0-to-0.5": "it rises",
        "spread-0.5-to-1": "no effect shown",
        "spread-1-to-2": "it rises",
        "spread-2-to-4": "it falls",
        "alpha-0.1-to-0.5": "no effect shown",
        "alpha-0.5-to-2": "it rises",
        "alpha-2-to-8": "no effect shown",
    }


def test_no_effect_is_shown_without_one():
    assert {q.judge(accuracies()).verdict for q in QUESTIONS.values()} == {"no effect shown"}


def test_every_question_needs_three_seeds_of_every_start():
    found = accuracies()
    for start in STARTS:
        fewer = found | {start: found[start][:2]}
        assert {q.judge(fewer).verdict for q in QUESTIONS.values()} == {"not run"}


def test_only_the_first_three_seeds_are_compared(committed):
    used = QUESTIONS["spread"].accuracies(committed)
    for start in ("vit-center", "vit-random"):
        runs = committed.at(TIER).of(start)
        first = [run.accuracy for run in runs if run.info.parameters["seed"] in (0, 1, 2)]
        assert used[start] == first and len(first) == 3


def test_each_question_is_a_claim_that_needs_every_start():
    assert len(PROPERTY_CLAIMS) == len(QUESTIONS)
    for claim in PROPERTY_CLAIMS:
        assert claim.models == STARTS
        assert [verdict.verdict for verdict in claim.judge(Records([], {}))] == ["not run"]


def test_the_order_counts_from_the_epoch_after_which_it_never_changes():
    rising = [0.1, 0.2, 0.3, 0.4]
    assert epochs_in_final_order({"a": [rising], "b": [[0.2, 0.3, 0.4, 0.5]]}) == 1
    assert epochs_in_final_order({"a": [rising], "b": [[0.2, 0.1, 0.4, 0.5]]}) == 3
    assert epochs_in_final_order({"a": [rising] * 2, "b": [[1.0] * 4, [1.0, 1.0, 0.0, 1.0]]}) == 4


def test_the_known_starts_keep_their_order_from_epoch_13(committed):
    """The module names this number as the reason for the epochs of its runs."""
    models = ("vit-default", "vit-center", "vit-convolution", "vit-random")
    curves = {
        model: [
            [epoch["test_accuracy"] for epoch in run.metrics]
            for run in committed.at(TIER).of(model)
            if run.info.parameters["seed"] < 3
        ]
        for model in models
    }
    assert {len(runs) for runs in curves.values()} == {3}
    assert epochs_in_final_order(curves) == 13
