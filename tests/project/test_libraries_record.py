"""Tests of the record of Theorem 1 in other libraries, and of the frame in which adapters run."""

import datetime
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import ROOT

from attnconv.theory.attention import multi_head_self_attention

sys.path.insert(0, str(ROOT / "tools" / "libraries"))
import problem
import run

STORED = json.loads(run.RECORD.read_text())
ROWS = [row for library in STORED.values() for row in library["rows"]]
ON_TORCH = {
    "executorch",
    "natten",
    "timm",
    "torch",
    "torchvision",
    "transformers",
    "x-transformers",
}


def test_the_record_is_whole():
    assert set(STORED) == set(run.NAMES)
    for name, library in STORED.items():
        assert datetime.date.fromisoformat(library["date"]) and library["rows"], name
        pinned = dict(
            line.split("==")
            for line in (run.ADAPTERS / name / "requirements.txt").read_text().split()
        )
        for package, version in library["versions"].items():
            expected = {key.split("[")[0]: value for key, value in pinned.items()}
            assert package == "python" or expected[package] == version.split("+")[0], name


def test_at_least_fifteen_layers_of_which_six_are_not_torch():
    layers = {(name, row["layer"]) for name, library in STORED.items() for row in library["rows"]}
    assert len(layers) >= 15
    assert len({name for name, _ in layers} - ON_TORCH) >= 6


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['layer']}, {row['position']}")
def test_a_layer_equals_the_convolution_or_the_row_says_what_prevents_it(row):
    if row["expresses"]:
        assert row["gap_float32"] <= 1e-5 and row["cost"] > 0
        assert row["gap_bfloat16"] is None or row["gap_bfloat16"] < 1
    else:
        assert row["prevented_by"]
    for name in ("expected", "observed"):
        assert row[name].endswith("."), name


@pytest.fixture(scope="module")
def arrays():
    return {name: torch.from_numpy(array) for name, array in problem.problem().items()}


def test_the_problem_is_theorem_1(arrays):
    """Attention with these scores, or queries and keys, is the convolution."""
    codes = arrays["codes"]
    of_codes = (codes @ arrays["query_matrices"]) @ (codes @ arrays["key_matrices"]).mT
    for scores in (arrays["scores"], of_codes):
        output = multi_head_self_attention(
            scores, arrays["tokens"], arrays["values"], arrays["output"], arrays["bias"]
        )
        inner = output.unflatten(1, (16, 16))[:, 1:-1, 1:-1]
        assert (inner - arrays["expected"]).abs().max() < 1e-12
    kernel = arrays["kernel"].permute(3, 2, 0, 1)
    theirs = torch.conv2d(arrays["image"].permute(0, 3, 1, 2), kernel, arrays["bias"], padding=1)
    assert (theirs.permute(0, 2, 3, 1) - arrays["expected"]).abs().max() < 1e-12


def test_the_entries_of_queries_and_keys_are_exact_in_bfloat16(arrays):
    for matrices in (arrays["query_matrices"], arrays["key_matrices"]):
        entries = arrays["codes"] @ matrices
        assert torch.equal(entries.bfloat16().double(), entries)
    best, second = arrays["scores"].topk(2).values.unbind(-1)
    inner = torch.ones(16, 16, dtype=torch.bool)
    inner[[0, -1]] = inner[:, [0, -1]] = False
    assert (best[:, inner.flatten()] == 0).all() and (second[:, inner.flatten()] == -128).all()


ADAPTER = """
import numpy as np
from common import cost, gap, inner, problem, record, versions

versions("numpy")
assert gap(problem["expected"]) == 0
padded = np.pad(problem["expected"], ((0, 0), (1, 1), (1, 1), (0, 0)))
assert gap(padded.reshape(1, 256, 8)) == 0 and (inner(padded) == problem["expected"]).all()
assert abs(gap(3 * problem["expected"]) - 2) < 1e-12
assert cost(lambda: None, lambda: None, turns=1, at_least=1e-5) > 0
record("a layer", "bias argument", expresses=True, gap_float32=0.5, expected="A.", observed="B.")
"""


def test_an_adapter_prints_rows_that_the_tool_reads(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "adapter.py").write_text(ADAPTER)
    monkeypatch.setattr(run, "ADAPTERS", tmp_path)
    np.savez(tmp_path / "problem.npz", **problem.problem())
    found = run.rows_of(sys.executable, "own", tmp_path / "problem.npz")
    assert found["versions"]["numpy"] == np.__version__
    [row] = found["rows"]
    assert row["layer"] == "a layer" and row["gap_float32"] == 0.5 and row["cost"] is None


def test_an_unknown_library_is_refused():
    tool = [sys.executable, str(run.HERE / "run.py"), "nothing"]
    failed = subprocess.run(tool, capture_output=True, text=True, env=os.environ)
    assert failed.returncode == 2 and "no adapter for nothing; there are equinox" in failed.stderr
