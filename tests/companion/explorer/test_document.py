"""Tests of the attention report as an HTML file. It is opened in a browser in tests/rendered."""

import base64
import json
import re
from dataclasses import replace

import pytest
import torch
from helpers.javascript import run_node
from safetensors.torch import load

from attnconv import inspect_attention
from attnconv.theory.grid import pixels
from companion.explorer.codes import maps_in_bytes, queries_per_axis
from companion.explorer.document import report_payload, save_html


def random_maps(heads, height, width):
    scores = torch.randn(2, heads, height, width, height * width)
    return scores.softmax(dim=-1).unflatten(-1, (height, width))


@pytest.fixture
def report():
    """Layers of two sizes: 4 x 4 tokens, then 3 x 5, then 4 x 4 again with more heads."""
    torch.manual_seed(0)
    return inspect_attention([random_maps(*shape) for shape in ((2, 4, 4), (3, 3, 5), (3, 4, 4))])


def test_the_file_holds_every_layer(report, tmp_path):
    path = save_html(report, tmp_path / "report.html", title="A <model>")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    page = path.read_text()
    assert "<title>A &lt;model&gt;</title>" in page and report._repr_html_() in page
    assert not re.search(r"https?://(?!www.w3.org/)|@import|<script[^>]* src=", page)
    (text,) = re.findall(r'<script type="application/json" id="explorer-data">(.*?)</script>', page)
    models = json.loads(text)["models"]
    assert [model["size"] for model in models] == [[4, 4], [3, 5]]
    layers = {"4 × 4 tokens": (0, 2), "3 × 5 tokens": (1,)}
    for model in models:
        (files,) = model["content"].values()
        numbers = layers[model["id"]]
        for file, best, number in zip(files, model["best"], numbers, strict=True):
            layer = report.layers[number]
            tensors = load(base64.b64decode(file["base64"]))
            assert torch.equal(tensors["queries"], pixels(*layer.grid))
            assert torch.allclose(shown(tensors), layer.maps.flatten(1, 2), rtol=0.04)
            assert [head["mass"] for head in best] == layer.heads.mass.tolist()
            assert [head["shift"] for head in best] == layer.heads.offsets.tolist()


def shown(tensors):
    """The probabilities `(N_h, Q, H, W)` that the page shows, as its script computes them."""
    program = """
      const { ContentModel } = await from("trained/models");
      const { softmax } = await from("numerics/numbers");
      const tensor = ([shape, data]) => ({ shape, data: Float64Array.from(data) });
      const entries = Object.entries(given.tensors).map(([name, each]) => [name, tensor(each)]);
      const model = new ContentModel(given, [Object.fromEntries(entries)]);
      const heads = Array.from({ length: model.heads(0) }, (_, head) => head);
      const map = (head) => (query) => softmax(model.scores(0, head, query));
      return heads.map((head) => model.queries.map(map(head)));
    """
    shapes = {name: [each.shape, each.flatten().tolist()] for name, each in tensors.items()}
    size = tensors["codes"].shape[-2:]
    found = run_node(program, {"size": list(size), "best": None, "tensors": shapes})
    return torch.tensor([[list(map_) for map_ in head] for head in found]).unflatten(-1, size)


def test_a_map_in_bytes_keeps_sharp_flat_and_zero_probabilities():
    maps = torch.zeros(3, 1, 2, 1, 2)
    maps[0, ..., 0] = 1
    maps[1] = 0.5
    maps[2, ..., 0] = 1 - 1e-7
    maps[2, ..., 1] = 1e-7
    assert torch.allclose(shown(maps_in_bytes(maps, 2)), maps.flatten(1, 2), rtol=0.04)


def test_many_maps_are_stored_for_a_grid_of_queries(monkeypatch):
    torch.manual_seed(0)
    maps = torch.randn(2, 6, 9, 54).softmax(dim=-1).unflatten(-1, (6, 9))
    tensors = maps_in_bytes(maps, 3)
    rows, columns = (1, 3, 5), (1, 4, 7)
    assert tensors["queries"].tolist() == [[i, j] for i in rows for j in columns]
    expected = maps[:, rows][:, :, columns].flatten(1, 2)
    assert torch.allclose(shown(tensors), expected, rtol=0.04)
    monkeypatch.setattr("companion.explorer.codes.ALL_MAPS", 2 * 54 * 9 + 5 * 16 * 9)
    assert queries_per_axis({(6, 9): 2, (4, 4): 5}) == 3
    assert queries_per_axis({(6, 9): 2, (4, 4): 6}) == 2
    assert queries_per_axis({(2, 2): 5}) == 2, "all of them"
    monkeypatch.setattr("companion.explorer.codes.ALL_MAPS", 1)
    assert queries_per_axis({(6, 9): 2}) == 1


@pytest.mark.parametrize("side", [14, 24, 37])
def test_a_file_of_72_heads_has_at_most_10_megabytes(report, side, tmp_path):
    maps = torch.randn(1, side, side, side**2).softmax(dim=-1).unflatten(-1, (side, side))
    layer = replace(report.layers[0], maps=maps.expand(6, -1, -1, -1, -1))
    large = replace(report, layers=(layer,) * 12)
    image = torch.rand(14 * side, 14 * side, 3)
    assert save_html(large, tmp_path / "large.html", image).stat().st_size < 10_000_000


def test_the_image_is_shown_behind_all_sizes(report):
    image = torch.rand(8, 8, 3)
    data = report_payload(report, image).data
    (picture,) = data["images"].values()
    assert (picture["height"], picture["channels"]) == (8, 3)
    assert all(model["images"] == list(data["images"]) for model in data["models"])


def test_what_cannot_be_written_is_refused(report, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing for report.html"):
        save_html(report, tmp_path / "missing" / "report.html")
    with pytest.raises(ValueError, match="got a report without layers"):
        save_html(inspect_attention([]), tmp_path / "report.html")
    with pytest.raises(ValueError, match=r"shape \(3, 8, 8\), expected \(H, W\)"):
        save_html(report, tmp_path / "report.html", torch.rand(3, 8, 8))
    assert not list(tmp_path.iterdir())
