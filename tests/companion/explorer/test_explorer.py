"""The data of the explorer, in a page and in a notebook. Its JavaScript is tested in a browser,
in tests/rendered."""

import base64
import json
import re
import zlib

import pytest
import torch
from helpers.synthetic import write_record
from safetensors.torch import load

from attnconv.cnn import SmallCNN
from companion.explorer import page_html
from companion.explorer.payload import (
    IN_THE_PAGE,
    Payload,
    attention_payload,
    maps_payload,
    stage_payload,
)
from companion.explorer.widget import explore, explore_maps
from companion.heads import heads_of
from companion.runs.record import load_run
from companion.specs import MODELS
from companion.training.quick import quick_model, quick_run

WITH_ATTENTION = [model for model in MODELS if model.startswith("sa-")]


@pytest.fixture
def records(paper_records):
    return [load_run(paper_records / f"{model}--cifar10--seed0") for model in WITH_ATTENTION]


def files_of(entry):
    yield from (
        [entry["file"]]
        if "file" in entry
        else [file for layers in entry["content"].values() for file in layers]
    )


def content_of(file, payload):
    content = (
        base64.b64decode(file["base64"])
        if "base64" in file
        else payload.files[f"{file['name']}.safetensors"]
    )
    assert zlib.crc32(content) == file["crc32"]
    return load(content)


def test_a_page_has_every_model_and_all_its_files(records):
    payload = attention_payload(records, place="files")
    models = payload.data["models"]
    assert [entry["id"] for entry in models] == [record.name for record in records]
    assert all(entry["tier"].startswith("CIFAR-10") and entry["source"] for entry in models)
    for entry, record in zip(models, records, strict=True):
        for file in files_of(entry):
            tensors = content_of(file, payload)
            assert ("url" in file) == ("content" in entry), (
                "small files are in the page, those of images are loaded on request"
            )
            if "file" in entry:
                assert all(
                    torch.equal(tensors[name], values) for name, values in record.attention.items()
                )
    assert len(page_html("attention", payload.data, "still").encode()) < 2_000_000


def test_a_freed_cnn_is_shown_at_the_size_of_its_middle_group(tmp_path):
    attention = {"epochs": torch.tensor([0, 5])}
    for layer, heads in ((1, 4), (2, 9)):
        attention[f"layer{layer}.centers"] = torch.randn(2, heads, 2)
        attention[f"layer{layer}.alpha"] = torch.full((2, heads), 4.0)
    parent = {"run": "cnn--cifar10-small-free--seed0", "epochs": 8}
    given = {"tier": "small-free", "attention": attention, "parent": parent}
    record = write_record(tmp_path, "freed-100", **given)
    (entry,) = attention_payload([record]).data["models"]
    assert entry["label"] == "CNN, freed after training" and entry["size"] == (15, 15)
    assert SmallCNN().groups[0](torch.zeros(1, 24, 31, 31)).shape[2:] == entry["size"]


def test_large_files_lie_beside_the_page():
    payload = Payload("files")
    large = {"x": torch.zeros(IN_THE_PAGE // 4)}
    assert payload.file("a", large)["url"] == "files/a.safetensors"
    small = [
        payload.file(f"{n}", {"x": torch.full((IN_THE_PAGE // 5,), float(n))}) for n in range(9)
    ]
    assert "base64" in small[0] and "url" in small[-1], "and small ones too, once the page is full"
    assert all("base64" in Payload().file(name, large) for name in "ab"), (
        "a notebook has no place for files"
    )


def test_maps_of_a_record_and_their_parts(records):
    record = records[WITH_ATTENTION.index("sa-learned-content")]
    payload = attention_payload([record], place="files")
    (entry,) = payload.data["models"]
    assert entry["images"] == [
        "china",
        "flower",
        "test-image-0",
        "test-image-1",
        "test-image-2",
        "cifar10-mean",
    ]
    for image, kind, number in (("flower", "photograph", 1), ("test-image-2", "image", 2)):
        for layer, file in enumerate(entry["content"][image]):
            parts = content_of(file, payload)
            for name, part in (("content", "content"), ("rows", "row"), ("columns", "column")):
                assert torch.equal(
                    parts[name], record.attention[f"{kind}_{part}_scores"][number, layer]
                )
    for layer, (file, best, heads) in enumerate(
        zip(entry["content"]["cifar10-mean"], entry["best"], heads_of(record), strict=True)
    ):
        assert torch.equal(
            content_of(file, payload)["probabilities"], record.attention["mean_maps"][layer]
        )
        assert [head["mass"] for head in best] == heads.mass.tolist()


def test_pictures_of_a_data_set_are_shown_only_at_hand(records, monkeypatch):
    monkeypatch.setattr("companion.explorer.payload.dataset_at_hand", lambda name: None)
    payload = attention_payload(records, place="files")
    assert {name for name in payload.data["images"] if not name.startswith("digit")} == {
        "china",
        "flower",
    }
    labels = payload.data["models"][-1]["labels"]
    assert labels["test-image-0"] == "test image 1", "their maps are shown, without them"


def test_a_page_asks_for_nothing_and_evaluates_nothing(records):
    payload = attention_payload(records[:1])
    payload.data["models"][0]["source"] = "</script><b>"
    page = page_html("attention", payload.data, "a <still>")
    assert page.count("</script>") == 2 and "a &lt;still&gt;" in page
    assert not re.search(r"\beval\(|new Function|importScripts|import\(", page)
    assert set(re.findall(r"https?://[^\"'`\s]+", page)) == {"http://www.w3.org/2000/svg"}
    data = json.loads(re.search(r'id="explorer-data">(.*?)</script>', page)[1])
    assert data["models"][0]["source"] == "</script><b>"


def test_the_stage_has_its_pictures():
    payload = stage_payload()
    assert payload.data["stage"]
    for name in payload.data["stage"]:
        picture = payload.data["images"][name]
        values = base64.b64decode(picture["base64"])
        assert len(values) == picture["height"] * picture["width"] * picture["channels"]
        assert len(set(values)) > 10


def test_a_widget_holds_all_it_shows(records):
    widget = explore(records[-2:], layer=2, query="3,4")
    assert widget.state == {"layer": "2", "query": "3,4"}
    assert all("base64" in file for entry in widget.data["models"] for file in files_of(entry))
    assert "export default" in widget._esm and ".explorer" in widget._css


def test_a_widget_of_any_maps():
    maps = torch.rand(2, 3, 25).softmax(dim=-1).reshape(2, 3, 1, 1, 5, 5).expand(2, 3, 5, 5, 5, 5)
    (entry,) = explore_maps(maps, torch.rand(10, 10, 3)).data["models"]
    (files,) = entry["content"].values()
    assert len(files) == 2 and len(entry["best"][0]) == 3


def test_a_run_on_digits_shows_digits():
    record = quick_run("sa-learned-content")
    (entry,) = explore(record).data["models"]
    assert (
        entry["images"] == ["digit-0", "digit-1", "digit-2", "digits-mean"]
        and entry["tier"] == "digits (quick tier)"
    )
    whole = attention_payload(
        [record], {record.name: quick_model("sa-learned-content")}, place="files"
    )
    (computed,) = whole.data["models"]
    queries = [query[0] * 8 + query[1] for query in record.attention["queries"].tolist()]
    for ours, theirs in zip(
        computed["content"]["digits-mean"], entry["content"]["digits-mean"], strict=True
    ):
        maps, expected = (
            content_of(file, whole)["probabilities"].float() for file in (ours, theirs)
        )
        assert maps.shape == (9, 64, 8, 8), "of a model, for every query"
        assert (maps[:, queries] - expected).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.rand(3, 8, 8), r"shape \(3, 8, 8\), expected \(H, W\) or \(H, W, 3\)"),
        (torch.rand(8, 8, 4), r"shape \(8, 8, 4\)"),
        (
            torch.full((8, 8), 200, dtype=torch.uint8),
            "torch.uint8 from 200 to 200, expected floats from 0 to 1",
        ),
        (torch.tensor([[-1.0, 2.0]]), "from -1.0 to 2.0"),
        (torch.tensor([[float("nan")]]), "from nan to nan"),
    ],
)
def test_images_that_are_none_are_refused(image, message):
    with pytest.raises(ValueError, match=message):
        maps_payload(torch.ones(1, 1, 1, 1, 1, 1), image)


def test_a_state_is_checked_and_written_as_in_a_link(records):
    assert explore(records[0], query=(4, 5), softmax=False).state == {
        "query": "4,5",
        "softmax": "0",
    }
    with pytest.raises(
        ValueError, match="unknown laier for this view, expected some of model, layer, head"
    ):
        explore(records[0], laier=3)
    with pytest.raises(ValueError, match="got no run records"):
        explore([])


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        (
            torch.zeros(3, 5, 5, 5, 5),
            r"shape \(3, 5, 5, 5, 5\), expected \(layers, heads, H, W, H, W\)",
        ),
        (torch.zeros(1, 1, 5, 4, 4, 5), "query, then key"),
        (torch.zeros(0, 1, 5, 5, 5, 5), r"shape \(0, 1, 5, 5, 5, 5\)"),
        (torch.ones(1, 1, 2, 2, 2, 2), "sum to 1"),
        (torch.full((1, 1, 2, 2, 2, 2), float("nan")), "sum to 1"),
    ],
)
def test_maps_that_are_none_are_refused(maps, message):
    with pytest.raises(ValueError, match=message):
        maps_payload(maps)


def test_a_run_without_attention_is_refused(tmp_path):
    with pytest.raises(ValueError, match="resnet18--cifar10--seed0 has no attention"):
        explore(write_record(tmp_path, "resnet18"))
