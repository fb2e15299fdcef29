"""Tests of the record of inspected libraries and of the tool that writes it."""

import datetime
import json
import re
import sys

import torch
from helpers import ROOT
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from attnconv.vit.interception import TOLERANCE

sys.path.insert(0, str(ROOT / "tools"))
from inspect_libraries import LIBRARIES, RECORD, attempt, independent
from outside_models import rows_kept
from vision_transformers import OfTorch

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
    assert read["timm"] >= 110 and others >= 80
    assert min(read.values()) >= 3 and len(read) == 10


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


def test_rows_of_other_versions_alone_are_made_again():
    record = {"models": {"a": {"x": {}}, "torch": {"y": {}}}, "versions": {"a": "1", "torch": "2"}}
    same = record["versions"] | {"b": "3"}
    assert rows_kept(record, same) == record["models"] | {"b": {}}
    assert rows_kept(record, same | {"a": "2"}) == {"a": {}, "torch": {"y": {}}, "b": {}}
    assert not any(rows_kept(record, same | {"torch": "3"}).values())
    assert rows_kept({}, same) == {"a": {}, "torch": {}, "b": {}}


class Broken(nn.Module):
    def forward(self, images):
        raise ValueError("the model's own error")


def test_an_error_of_the_model_itself_is_no_refusal():
    assert attempt(Broken, 8)["outcome"] == "failed"
    assert attempt(lambda: nn.Conv2d(3, 4, 3), 8)["outcome"] == "refused"


class TwoPaths(nn.Module):
    """Attention with a switch like timm's, whose explicit path may have another scale."""

    def __init__(self, scale):
        super().__init__()
        self.scale, self.fused_attn = scale, True

    def forward(self, x):
        x = x.unflatten(-1, (3, 16)).transpose(1, 2)
        if self.fused_attn:
            return scaled_dot_product_attention(x, x, x)
        return (self.scale * x @ x.mT).softmax(dim=-1) @ x


def test_an_independent_check_compares_the_two_paths_of_a_model():
    torch.manual_seed(0)
    images = torch.randn(1, 3, 64, 64)
    assert independent(OfTorch(TwoPaths(0.25)), images) < 1e-5
    assert independent(OfTorch(TwoPaths(0.5)), images) > 1e-2
    assert independent(OfTorch(nn.MultiheadAttention(48, 3, batch_first=True)), images) is None
