"""Tests of the record of inspected libraries and of the tool that writes it."""

import datetime
import json
import re
import sys

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


def test_every_model_was_read_or_refused_with_a_reason():
    read = dict.fromkeys(STORED["models"], 0)
    for library, models in STORED["models"].items():
        for name, found in models.items():
            assert found["outcome"] in ("read", "refused"), name
            if found["outcome"] == "read":
                read[library] += 1
                assert found["gap"] <= 1e-5, name
            else:
                assert re.search("cannot be read|that can be read|expected", found["reason"]), name
    others = sum(count for library, count in read.items() if library != "timm")
    assert read["timm"] >= 110 and others >= 25 and len(read) == 5


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
