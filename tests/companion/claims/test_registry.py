"""`python -m attnconv check`: all claims stand, and a claim made false is named."""

import json
import shutil

import pytest
import torch
from helpers import ROOT

from companion.claims import registry
from companion.claims import statements as theory
from companion.cli import main
from companion.runs.record import load_run, write_run
from companion.runs.select import Records

CLAIMS = registry.all_claims()
RUNS = ROOT / "data" / "runs"


@pytest.fixture(scope="module")
def records():
    return Records.read()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_each_recorded_verdict_stands(claim, records):
    check = registry.judge_again(claim, records, registry.read_recorded())
    assert check.stands, check.text(records) + f"\nif this is right: {registry.WRITE}"


def test_the_recorded_claims_are_those_of_the_code(records):
    recorded = json.loads(registry.CLAIMS_FILE.read_text())
    assert len({claim["name"] for claim in recorded}) == len(CLAIMS)
    for claim, stored in zip(CLAIMS, recorded, strict=True):
        now = claim.entry(records, stored["verdicts"])
        assert now == stored, f"the file is out of date: {registry.WRITE}"


def test_writing_records_the_verdicts(tmp_path, monkeypatch, records):
    monkeypatch.setattr(registry, "all_claims", lambda: CLAIMS[1:3])
    registry.write_recorded(records, tmp_path / "claims.json")
    expected = {claim.name: {"computed": "holds"} for claim in CLAIMS[1:3]}
    assert registry.read_recorded(tmp_path / "claims.json") == expected


def test_a_broken_function_is_named(monkeypatch, capsys):
    right = theory.lemma_1
    monkeypatch.setattr(theory, "lemma_1", lambda W: (right(W)[0].flip(0), right(W)[1]))
    assert main(["check", "eq-5", "lemma-1"]) == 1
    lines = capsys.readouterr().out
    assert "verdict   computed: fails, recorded: holds" in lines
    assert lines.endswith("changed: lemma-1\n")


def test_a_result_that_is_not_a_number_fails(monkeypatch, capsys):
    monkeypatch.setattr(theory, "convolution", lambda image, W: image @ W[0, 0] * torch.nan)
    assert main(["check", "eq-5"]) == 1
    assert "changed: eq-5" in capsys.readouterr().out


def test_a_gap_that_is_not_a_number_at_one_size_fails():
    def sides(size, draw):
        one = torch.ones(1, dtype=torch.float64)
        return one * (torch.nan if size == 16 else 1), one

    assert theory._up_to_rounding(sides, (8, 16, 32)).verdict == "fails"


def test_a_gap_that_grows_too_fast_fails():
    """Small at every size, but growing as the side to the power 3."""

    def sides(size, draw):
        one = torch.ones(1, dtype=torch.float64)
        return one * (1 + torch.finfo(draw.dtype).eps * size**3 / 1000), one

    found = theory._up_to_rounding(sides, (8, 16, 32))
    assert "exponent 3.0" in found.measured and found.verdict == "fails"


@pytest.mark.parametrize("power", [0.0, 0.5, 2.0])
def test_growth_finds_the_exponent(power):
    sizes = (4, 8, 16)
    assert theory.growth(sizes, [2 * size**power for size in sizes]) == pytest.approx(power)


def test_an_edited_record_is_named(tmp_path, capsys):
    """ResNet18's accuracies lowered, and the records sealed again."""
    for path in RUNS.glob("*--cifar10-small--seed*"):
        shutil.copytree(path, tmp_path / path.name)
    for path in tmp_path.glob("resnet18--cifar10-small--seed*"):
        record = load_run(path)
        metrics = [row | {"test_accuracy": row["test_accuracy"] - 0.1} for row in record.metrics]
        info = record.info.model_dump()
        derived = {name for name in info if name.endswith("accuracy") or name.endswith("sha256")}
        given = {name: info[name] for name in info.keys() - derived - {"version", "epochs_done"}}
        write_run(path, given, metrics)
    assert main(["check", "as-accurate", "--runs", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "verdict   small: reproduced, recorded: differs" in text
    assert text.endswith("changed: as-accurate\n")


def test_bad_input_is_refused(tmp_path, capsys):
    assert main(["check", "theorem1"]) == 2
    assert "no claim is named theorem1 (did you mean theorem-1" in capsys.readouterr().err
    (tmp_path / "claims.json").write_text("{")
    with pytest.raises(registry.DamagedFile, match="restore it from git"):
        registry.read_recorded(tmp_path / "claims.json")


def test_all_verdicts_are_recorded_or_none(capsys):
    assert main(["check", "as-accurate", "--write"]) == 2
    assert "leave out the names of claims" in capsys.readouterr().err
