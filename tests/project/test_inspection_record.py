"""Tests of the record of which libraries' models inspection reads, which book/use.md shows."""

import datetime
import json
import sys

import pytest
from helpers import ROOT
from torch import nn

from attnconv.vit.interception import TOLERANCE

sys.path.insert(0, str(ROOT / "tools"))
from inspect_libraries import LIBRARIES, RECORD, attempt

STORED = json.loads(RECORD.read_text())


def test_the_record_has_a_date_and_the_version_of_each_library():
    assert datetime.date.fromisoformat(STORED["date"])
    assert list(STORED["versions"]) == list(STORED["models"]) == list(LIBRARIES)
    assert all(STORED["versions"].values())


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_model_was_read_within_the_tolerance_or_refused_with_a_reason(library):
    for name, row in STORED["models"][library].items():
        if row["outcome"] == "read":
            assert row["layers"] > 0 and row["grids"] and 0 <= row["gap"] <= TOLERANCE, name
        else:
            assert row["outcome"] == "refused", name
            assert row["reason"].startswith(("TypeError: ", "ValueError: ")), name
            assert "read" in row["reason"] or "expected" in row["reason"], name


def test_at_least_110_models_of_timm_and_25_of_four_others_were_read():
    read = {
        library: sum(row["outcome"] == "read" for row in models.values())
        for library, models in STORED["models"].items()
    }
    others = [count for library, count in read.items() if library != "timm"]
    assert read["timm"] >= 110 and sum(others) >= 25
    assert len([count for count in others if count]) >= 4


def test_the_record_has_every_model_of_torch_and_only_those():
    names = [name for name, _, _ in LIBRARIES["torch"]()]
    assert list(STORED["models"]["torch"]) == names


def test_reading_again_gives_the_recorded_row():
    for name, build, side in LIBRARIES["torch"]():
        again = attempt(build, side)
        row = STORED["models"]["torch"][name]
        assert again["gap"] <= TOLERANCE
        assert {key: again[key] for key in ("outcome", "layers", "grids")} == {
            key: row[key] for key in ("outcome", "layers", "grids")
        }


class Broken(nn.Module):
    def forward(self, images):
        raise ValueError("the model's own error")


def test_an_error_of_the_model_itself_is_no_refusal():
    assert attempt(Broken, 8)["outcome"] == "failed"
    assert attempt(lambda: nn.Conv2d(3, 4, 3), 8)["outcome"] == "refused"
