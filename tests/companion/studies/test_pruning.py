"""The table that compares pruned models with a control, and the rule that judges it."""

import math

import numpy as np
import pytest
from helpers.synthetic import write_record

from companion.heads import heads_of
from companion.runs.select import Records
from companion.studies import pruning

PRUNED, CONTROL = pruning.COMPARED


def written(folder, accuracies):
    """Records of the small tier with these accuracies, by model and seed."""
    for (model, seed), accuracy in accuracies.items():
        about = {"run": "sa-generalized", "epochs": 20, "test_accuracy": 0.8}
        write_record(folder, model, accuracy, seed, tier="small", parent=about)
    return Records.read(folder).at("small")


@pytest.mark.parametrize(
    ("controls", "expected"),
    [
        ({0: 0.805, 2: 0.805}, "yes"),  # as accurate, and within the tolerance of 0.005 by rounding
        ({0: 0.810, 2: 0.811}, "no"),
        ({0: 0.810}, "yes"),  # seed 2 has no control, so only seed 0 counts
        ({1: 0.9}, "not run"),
        ({}, "not run"),
    ],
)
def test_only_seeds_with_a_control_are_judged(tmp_path, controls, expected):
    accuracies = {(PRUNED, 0): 0.805, (PRUNED, 2): 0.795}
    accuracies |= {(CONTROL, seed): accuracy for seed, accuracy in controls.items()}
    records = written(tmp_path, accuracies)
    assert pruning.answer(records) == expected
    table = pruning.control_table(records)
    seeds = sorted({0, 2, *controls})
    assert [row[0] for row in table.rows] == [str(seed) for seed in seeds]
    shown = [f"{controls[seed]:.4f}" if seed in controls else "not run" for seed in seeds]
    assert [row[-1] for row in table.rows] == shown


def test_a_control_of_another_parent_is_not_judged(tmp_path):
    for model, before in ((PRUNED, 0.8), (CONTROL, 0.8001)):
        about = {"run": "sa-generalized", "epochs": 20, "test_accuracy": before}
        write_record(tmp_path, model, 0.8, 0, tier="small", parent=about)
    assert pruning.answer(Records.read(tmp_path).at("small")) == "not run"


def test_without_any_run_the_table_says_so(tmp_path):
    records = Records.read(tmp_path).at("small")
    assert pruning.control_table(records).rows == [["-", *["not run"] * 4]]


def test_committed_runs_start_from_the_parent_of_their_seed():
    found = pruning.by_seed(Records.read().at("small"))
    assert set(found) == {0, 2}
    for seed, runs in found.items():
        for model, run in runs.items():
            assert run.parent["run"].endswith(f"seed{seed}")
            assert ("removed_heads" in run.parent) == (model == PRUNED)


def test_the_axis_ratio_leaves_out_heads_that_attend_to_many_pixels():
    """Against a loop over the heads of a committed run, with NumPy's condition number."""
    run = next(run for run in Records.read().found if run.name.startswith("sa-generalized--"))
    found = pruning.axis_ratios_by_layer([run])
    for name, fewer_than in pruning.FEWER_THAN.items():
        expected = []
        for encoding, heads in zip(run.history.encodings(), heads_of(run), strict=True):
            ratios = []
            for root, map_ in zip(encoding.root.double(), heads.maps.double(), strict=True):
                entropy = -sum(p * math.log(p) for p in map_.flatten().tolist() if p > 0)
                if math.exp(entropy) < fewer_than:
                    ratios.append(np.linalg.cond(root.numpy()))
            expected.append(sorted(ratios)[(len(ratios) - 1) // 2])
        assert found[name][0].tolist() == pytest.approx(expected, rel=1e-3)
