"""Tests of the attention report as an HTML file. It is opened in a browser in tests/rendered."""

import base64
import json
import re

import pytest
import torch
from safetensors.torch import load

from attnconv import inspect_attention
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
            maps = load(base64.b64decode(file["base64"]))["probabilities"]
            assert torch.equal(maps, layer.maps.flatten(1, 2).half())
            assert [head["mass"] for head in best] == layer.heads.mass.tolist()
            assert [head["shift"] for head in best] == layer.heads.offsets.tolist()


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
