"""Facts that the page on using the package (book/use.md) states in words about its benchmarks."""

import json

import pytest
from helpers import ROOT

RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def networks():
    """The costs of convolutional networks and of their conversions, by network and input."""
    return json.loads((RESULTS / "conversion-cpu-2-cores.json").read_text())["networks"]


@pytest.fixture(scope="module")
def transformers():
    """The costs of a transformer with relative positions and of one with absolute positions."""
    return json.loads((RESULTS / "vit-cpu-2-cores.json").read_text())["models"].values()


def spread(ratios):
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def test_attention_takes_1_5_to_3_0_times_as_long_for_three_networks(networks):
    ratios = [
        found["attention_forward_ms"] / found["convolution_forward_ms"]
        for found in networks.values()
    ]
    assert spread(ratios) == "1.5 to 3.0"
    assert len({label.split(",")[0] for label in networks}) == 3


def test_the_ratio_is_largest_for_depthwise_convolutions():
    layers = json.loads((RESULTS / "conversion-cpu-2-cores.json").read_text())["layers"]
    ratios = {"depthwise" in label: [] for label in layers}
    for label, found in layers.items():
        ratios["depthwise" in label].append(found["ratio"])
    assert min(ratios[True]) > max(ratios[False])


def test_init_as_convolution_takes_2_3_or_2_9_times_as_long_as_a_forward_pass(transformers):
    ratios = [f"{found['start_ms'] / found['forward_ms']:.1f}" for found in transformers]
    assert ratios == ["2.3", "2.9"]  # with relative and with absolute positions
    assert all(found["start_ms"] > found["inspect_ms"] for found in transformers)


def test_inspect_attention_takes_1_7_to_1_8_times_as_long_as_a_forward_pass(transformers):
    assert spread([found["inspect_ms"] / found["forward_ms"] for found in transformers]) == (
        "1.7 to 1.8"
    )
