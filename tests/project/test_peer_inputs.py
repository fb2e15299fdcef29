"""Other projects' test inputs: they agree with attnconv, and a wrong result is reported."""

import json
import sys

import pytest
import torch
from helpers import ROOT
from helpers.fresh import run_forked

sys.path.insert(0, str(ROOT / "tools"))
import peer_inputs


@pytest.mark.slow
def test_torchs_samples_agree_or_are_outside():
    # importing torch's samples disables flags of torch in the whole process
    run = run_forked(lambda: print(json.dumps(dict(peer_inputs.torch_outcomes()))))
    assert run.returncode == 0, run.stderr
    of_kinds = {kind: set() for kind in peer_inputs.CONVOLUTIONS}
    for name, outcome in json.loads(run.stdout).items():
        of_kinds[name.split(",")[0]].add(outcome)
    for kind, found in of_kinds.items():
        assert found == {"three dimensions" if kind.endswith("3d") else peer_inputs.AGREES}, kind


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:onnx")  # of other operators
def test_onnxs_cases_agree_or_are_outside():
    outcomes = [outcome for _, outcome in peer_inputs.onnx_outcomes()]
    assert outcomes.count(peer_inputs.AGREES) >= 40
    assert not [outcome for outcome in outcomes if outcome.startswith("differs")]


def test_equation_4_is_torchs_attention_with_fewer_queries_and_shared_keys():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, *of, dtype=torch.float64) for of in [(6, 4, 8), (3, 5, 8), (3, 5, 7)])
    mask = torch.randn(4, 5, dtype=torch.float64)
    found = peer_inputs.equation_4(q, k, v, 0.5, mask)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=0.5, enable_gqa=True
    )
    torch.testing.assert_close(found, wanted.transpose(1, 2).flatten(2))


def test_a_difference_is_printed_and_fails(monkeypatch, capsys):
    monkeypatch.setattr(peer_inputs, "onnx_outcomes", lambda: [("a", peer_inputs.AGREES)])
    monkeypatch.setattr(
        peer_inputs, "torch_outcomes", lambda: [("b", "differs by 1"), ("c", "a reason")]
    )
    assert peer_inputs.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "ONNX's node tests of Attention: 1 cases, 1 agree",
        "torch's samples of convolutions: 2 cases, 0 agree",
        "  b differs by 1",
        "  1 outside: a reason",
    ]


def test_results_differ_beyond_rounding_or_in_shape():
    wanted = torch.ones(2)
    assert peer_inputs._compared(wanted + 1e-7, wanted, wanted.dtype) == peer_inputs.AGREES
    assert peer_inputs._compared(wanted + 1e-3, wanted, wanted.dtype) == "differs by 0.001"
    assert peer_inputs._compared(wanted[:1], wanted, wanted.dtype) == "differs by inf"
