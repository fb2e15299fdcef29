"""Tests of the factorial's contrasts and of the rule that answers its questions."""

import math

import numpy as np
import pytest

from companion.runs.select import Records
from companion.specs import SPECS
from companion.studies.starts.factorial import (
    CELLS,
    FACTORIAL_CLAIMS,
    MIMETIC,
    QUESTIONS,
)


def test_the_cells_are_all_combinations():
    assert len(set(CELLS)) == 12 and set(CELLS) <= set(SPECS)
    assert sum(name.endswith(MIMETIC) for name in CELLS) == 6


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_contrast_compares(name):
    weights = QUESTIONS[name].weights
    assert set(weights) <= set(CELLS)
    assert sum(weights.values()) == pytest.approx(0)
    assert sum(abs(weight) for weight in weights.values()) in (pytest.approx(2), pytest.approx(4))


def test_a_contrast_is_that_of_least_squares():
    """Against a regression on one indicator per cell, solved by hand."""
    generator = np.random.default_rng(0)
    seeds = [5, 3, 5, 4, 3, 5, 3, 3, 3, 5, 5, 3]
    found = {c: list(generator.normal(0.6, 0.01, n)) for c, n in zip(CELLS, seeds, strict=True)}
    question = QUESTIONS["interaction"]
    y = np.concatenate([found[cell] for cell in CELLS])
    X = np.repeat(np.eye(12), seeds, axis=0)
    beta, residual, *_ = np.linalg.lstsq(X, y, rcond=None)
    w = np.array([question.weights.get(cell, 0.0) for cell in CELLS])
    variance = residual[0] / (len(y) - 12) * w @ np.linalg.inv(X.T @ X) @ w
    found_effect = question.effect(found)
    assert found_effect.value == pytest.approx(w @ beta)
    assert found_effect.standard_error == pytest.approx(math.sqrt(variance))


def accuracies(base=0.60, spread=0.002, seeds=5, **gains):
    """Accuracies by start, `base` plus a gain, spread evenly over the seeds."""
    spreads = np.linspace(-spread, spread, seeds)
    return {cell: [base + gains.get(cell[4:], 0.0) + s for s in spreads] for cell in CELLS}


def test_the_rule_answers_in_both_directions():
    found = accuracies(whole=0.05, convolution=0.05, random=0.05, center=0.0, wide=0.08)
    answers = {name: question.judge(found).verdict for name, question in QUESTIONS.items()}
    assert answers == {
        "grid": "no effect shown",
        "whole": "no effect shown",
        "apart": "they must",
        "sharp": "wide heads are better",
        "values": "it hurts",
        "interaction": "the gain is smaller",
    }


def waiting(found):
    return {name for name, each in QUESTIONS.items() if each.judge(found).verdict == "not run"}


def test_a_question_waits_for_its_seeds():
    found = accuracies() | {"vit-whole": [0.6, 0.61, 0.62]}
    assert waiting(found) == {"grid", "whole", "apart", "interaction"}
    one_cell_short = {name: values for name, values in found.items() if name != "vit-wide"}
    assert waiting(one_cell_short) == set(QUESTIONS)


def test_a_cell_that_is_compared_needs_five_seeds_and_any_other_three():
    others = {f"vit-{name}{MIMETIC}" for name in ("convolution", "random", "center", "wide")}
    found = {cell: values[: 3 if cell in others else 5] for cell, values in accuracies().items()}
    assert sum(map(len, found.values())) == 52 and not waiting(found)
    for cell in CELLS:
        assert waiting(found | {cell: found[cell][1:]}), "one seed less"


def test_each_question_is_a_claim_that_needs_every_start():
    assert len(FACTORIAL_CLAIMS) == len(QUESTIONS)
    for claim in FACTORIAL_CLAIMS:
        assert claim.models == CELLS
        assert [verdict.verdict for verdict in claim.judge(Records([], {}))] == ["not run"]
