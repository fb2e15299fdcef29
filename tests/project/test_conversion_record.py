"""Tests of the record of converted networks and of the tool that writes it."""

import datetime
import json
import re
import sys

import torch
from helpers import ROOT
from torch import nn

sys.path.insert(0, str(ROOT / "tools"))
from convert_libraries import LIBRARIES, RECORD, attempt, enliven

STORED = json.loads(RECORD.read_text())
ROWS = {
    f"{library} {name}": row
    for library, rows in STORED["models"].items()
    for name, row in rows.items()
}


#: Networks that still convolve: some blur or differentiate the image in a function, others have a
#: weight for each image.
STILL = re.compile(r"timm (\w*blur|tresnet_|(tf_)?efficientnet_cc_)|kornia KeyNet")


def with_outcome(outcome):
    return {name: row for name, row in ROWS.items() if row["outcome"] == outcome}


def test_the_record_has_a_date_and_the_version_of_each_library():
    assert datetime.date.fromisoformat(STORED["date"])
    assert set(STORED["versions"]) == set(STORED["models"]) == set(LIBRARIES)


def test_converted_networks_equal_the_networks_and_name_what_still_convolves():
    converted = with_outcome("converted")
    assert len(converted) >= 200
    for name, row in converted.items():
        assert row["replaced"] >= 1, name
        assert (row["executed"] > 0) == bool(STILL.match(name)), name
        assert (row["left"] > 0) == ("efficientnet_cc_" in name), name
        if row["gap in float64"] is None:
            assert row["gap"] <= 1e-5, name
        else:  # the network itself may round far more than one layer does
            assert row["gap"] <= max(1e-3, 2 * row.get("rounding", 0)), name
            assert row["gap in float64"] <= max(1e-10, 1e-7 * row.get("rounding", 0)), name


def test_what_is_not_converted_is_refused_with_a_reason():
    refused = with_outcome("refused")
    assert len(refused) <= 10
    for name, row in refused.items():
        assert "skip=" in row["reason"] or "expected" in row["reason"], name
    outcomes = {row["outcome"] for row in ROWS.values()}
    assert outcomes <= {"converted", "refused", "left out", "not built", "not run"}


class Small(nn.Module):
    """A network whose second convolution has no effect at first."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.scale = nn.Parameter(torch.zeros(4, 1, 1))

    def forward(self, x):
        x = self.norm(self.first(x))
        return x + self.scale * self.second(x)


def test_every_convolution_has_an_effect_on_what_is_compared():
    network = Small()
    images = 5 + torch.randn(2, 3, 8, 8)
    enliven(network, images)
    assert network.scale.abs().max() > 0.1 and not network.training
    assert network(images).mean(dim=(0, 2, 3)).abs().max() < 1
    before = network(images)
    network.second.weight.data.mul_(1.01)
    assert (network(images) - before).abs().max() > 1e-3


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv3d(1, 1, 1)

    def forward(self, x):
        return self.second(self.first(x)[:, None])


def test_a_row_tells_what_was_found():
    row = attempt(Small, 8)
    assert row["outcome"] == "converted" and row["replaced"] == 2 and row["executed"] == 0
    assert 0 <= row["gap"] < 1e-5 and row["gap in float64"] < 1e-12
    assert attempt(Mixed, 8)["outcome"] == "refused"
    assert attempt(lambda: nn.Linear(3, 3), 8)["outcome"] == "not run"


class OfTwo(Small):
    """A network with two inputs."""

    def forward(self, x, scale):
        return super().forward(x) * scale


def test_a_network_may_have_several_inputs():
    row = attempt(OfTwo, [(2, 3, 8, 8), (2, 1, 1, 1)])
    assert row["outcome"] == "converted" and row["gap in float64"] < 1e-12
