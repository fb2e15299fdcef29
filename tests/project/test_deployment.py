"""Tests that each cell of the deployment table works."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from helpers import ROOT
from torch import nn

from attnconv import build_model, conv_to_attention

sys.path.insert(0, str(ROOT / "benchmarks"))
from deployment import NETWORKS, ROUTES, STORED, Example, Route, deployment_rows, try_route

# The whole table takes minutes; benchmarks/deployment.py runs it and stores what the page shows.
QUICK = ("converted layer", "sa-quadratic")
SLOW = ("torch.compile", "ONNX")
CELLS = [(network, route) for network in QUICK for route in ROUTES if route not in SLOW]
CELLS += [("converted ResNet18", "state_dict"), ("sa-learned-content", "float16")]


def shallow(example):
    """Return an example with the first two of its network's six layers, which are alike."""

    def build():
        network = example.build()
        network.blocks = network.blocks[:2]
        return network

    return replace(example, build=build)


EXAMPLES = {
    name: shallow(example) if name.startswith("sa-") else example
    for name, example in NETWORKS.items()
}


SLOW_CELLS = [(network, route) for network in QUICK for route in SLOW]
SLOW_CELLS += [("sa-learned-content", "ONNX")]
SLOW_CELLS += [
    (network, "torch.export")
    for network in ("converted CNN", "sa-generalized-pruned", "started vision transformer")
]


@pytest.mark.parametrize(("network", "route"), CELLS)
def test_cells_work(network, route):
    outcome = try_route(EXAMPLES[network], ROUTES[route])
    assert outcome.works, outcome


@pytest.mark.slow
@pytest.mark.parametrize(("network", "route"), SLOW_CELLS)
def test_slow_cells_work(network, route):
    test_cells_work(network, route)


def test_the_stored_outcomes_are_those_of_the_whole_table_and_all_work():
    stored = json.loads(STORED.read_text())
    assert stored["date"] and stored["versions"]["torch"]
    rows = {row["Network"]: row for row in stored["rows"]}
    assert list(rows) == list(NETWORKS)
    for name, row in rows.items():
        assert list(row) == ["Network", "Image sides", *ROUTES]
        assert row["Image sides"] == NETWORKS[name].sides
        gaps = [0.0 if row[route] == "exact" else float(row[route]) for route in ROUTES]
        bounds = [route.bound for route in ROUTES.values()]
        assert all(gap <= bound for gap, bound in zip(gaps, bounds, strict=True)), row


@pytest.mark.slow
def test_an_exported_network_refuses_sides_beyond_its_encoding():
    example = EXAMPLES["sa-learned"]
    assert example.sides == "multiples of 4 up to 32" and max(example.other.shape[2:]) <= 32
    with pytest.raises(AssertionError, match="Guard failed"):
        example.exported.module()(torch.randn(1, 3, 36, 32))


def test_a_single_image_needs_an_export_of_its_own():
    """As the page says; the program for batches states the smallest one."""
    example = NETWORKS["converted layer"]
    assert min(bounds.lower for bounds in example.exported.range_constraints.values()) == 2
    image = example.given[:1]
    with pytest.raises(RuntimeError):
        example.exported.module()(image)
    program = torch.export.export(example.network, (image,))
    assert (program.module()(image) - example.network(image)).abs().max() < 1e-5


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Conv2d(3, 6, (3, 2), stride=(1, 3), dilation=2, groups=3),
        nn.Conv2d(3, 4, 4, padding="same", padding_mode="reflect"),
    ],
)
def test_an_exported_layer_is_attention_and_the_convolution_at_every_size(conv):
    example = Example(lambda: conv_to_attention(conv), 1, 12, 16)
    names = [str(node.target) for node in example.exported.graph.nodes]
    assert any("softmax" in name for name in names) and not any("conv" in name for name in names)
    run = example.exported.module()
    for height, width in ((12, 16), (23, 10), (9, 31)):
        x = torch.randn(4, 3, height, width)
        assert (run(x) - conv(x)).abs().max() < 1e-5


def test_an_example_names_its_sides_and_is_run_on_others():
    images = {step: Example(nn.Identity, step, 32, 40) for step in (1, 2, None)}
    assert [example.sides for example in images.values()] == [
        "any",
        "multiples of 2",
        "32 × 40 only",
    ]
    assert [tuple(example.other.shape) for example in images.values()] == [
        (3, 3, 33, 42),
        (3, 3, 34, 44),
        (3, 3, 32, 40),
    ]


@pytest.mark.slow
def test_an_onnx_graph_holds_no_convolution():
    pytest.importorskip("onnxscript")
    kinds = {node.op_type for node in EXAMPLES["converted layer"].onnx.model.graph}
    assert "Softmax" in kinds and "Conv" not in kinds


def test_what_does_not_work_is_reported():
    def refuses(example):
        raise RuntimeError("no such operator\nand a long explanation")

    def lacks(example):
        raise ModuleNotFoundError(name="onnxruntime")

    wrong = Route(lambda example: lambda images: 1.5 * example.network(images), bound=0.1)
    (row,) = deployment_rows(
        {"layer": NETWORKS["converted layer"]},
        {"a": Route(refuses), "b": Route(lacks), "c": wrong, "d": ROUTES["deepcopy"]},
    )
    assert row == {
        "Network": "layer",
        "Image sides": "any",
        "a": "not supported: RuntimeError: no such operator",
        "b": "not run: onnxruntime is not installed",
        "c": "wrong: 5e-01",
        "d": "exact",
    }
    assert not try_route(NETWORKS["converted layer"], wrong).works


@pytest.mark.slow
@pytest.mark.parametrize(("opset", "fused"), [(18, False), (23, True)])
def test_content_attention_is_the_same_in_any_opset(opset, fused):
    """From opset 23 on, attention is one operator instead of products and a softmax."""
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    network = build_model("sa-learned-content", num_layers=1, hidden=32, intermediate=32).eval()
    images = torch.randn(2, 3, 32, 32)
    program = torch.onnx.export(network, (images,), dynamo=True, verbose=False, opset_version=opset)
    assert ("Attention" in {node.op_type for node in program.model.graph}) == fused
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    [found] = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    with torch.no_grad():
        assert (torch.from_numpy(found) - network(images)).abs().max() < 1e-5
