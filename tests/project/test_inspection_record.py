"""Tests of the record of inspected libraries and of the tool that writes it."""

import datetime
import json
import re
import sys
from dataclasses import replace

import pytest
import torch
from helpers import ROOT
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from attnconv.vit.capture import LayerAttention
from attnconv.vit.interception import TOLERANCE

sys.path.insert(0, str(ROOT / "tools"))
import inspect_libraries
from independent_maps import largest_difference, maps_in_products
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
    unconfirmed = []  # it chooses the implementation of fused attention itself
    for library, models in STORED["models"].items():
        for name, found in models.items():
            assert found["outcome"] in ("read", "refused"), name
            if found["outcome"] == "read":
                read[library] += 1
                assert found["gap"] <= 1e-5, name
                if found["independent"] is None:
                    unconfirmed.append(f"{library} {name}")
                else:
                    assert found["independent"] <= 1e-5, name
            else:
                assert re.search("cannot be read|that can be read|expected", found["reason"]), name
    others = sum(count for library, count in read.items() if library != "timm")
    assert read["timm"] >= 110 and others >= 80
    assert min(read.values()) >= 3 and len(read) == 10
    assert unconfirmed == ["x-transformers fused"], "the page (use) says that it is one"


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


class Attention(nn.Module):
    """Attention with three heads, written in different ways."""

    def __init__(self, way):
        super().__init__()
        self.num_heads = 3
        self.way = way

    def forward(self, x):
        return self.way(x.unflatten(-1, (3, 16)).transpose(1, 2))


class Vit(OfTorch):
    """Its tokens are two learned ones and those of the patches."""

    def __init__(self, way):
        super().__init__(Attention(way))
        self.cls_token = nn.Parameter(torch.randn(1, 2, 48))

    def tokens(self, images):
        return torch.cat([self.cls_token, self.embed(images).flatten(2).mT], dim=1)

    def forward(self, images):
        return self.layer(self.tokens(images))


def fused(x):
    return scaled_dot_product_attention(x, x, x)


def in_a_product(x):
    return (x @ x.mT / 4).softmax(dim=-1) @ x


def in_a_transposed_product(x):
    return x.mT @ (x @ x.mT / 4).softmax(dim=-1).mT


def in_a_sum(x):
    return torch.einsum("bhqk,bkd->bhqd", (x @ x.mT / 4).softmax(dim=-1), x[:, 0])


def in_float64_only(x):
    """Scores of up to some thousands, which float32 rounds."""
    return scaled_dot_product_attention(200 * x, x, x)


@pytest.mark.parametrize("way", [fused, in_a_product, in_a_transposed_product, in_a_sum])
def test_the_maps_are_found_in_matrix_products(way):
    torch.manual_seed(0)
    model = Vit(way)
    images = torch.randn(1, 3, 64, 64)
    x = model.tokens(images).unflatten(-1, (3, 16)).transpose(1, 2)[0]
    expected = (x @ x.mT / 4).softmax(dim=-1)
    (found,) = maps_in_products(model, images)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert independent(model, images) < 1e-5


def test_an_independent_check_finds_maps_that_were_read_wrongly(monkeypatch):
    torch.manual_seed(0)
    images = torch.randn(1, 3, 64, 64)
    read = inspect_libraries.attention_of

    def expect_difference(change):
        def changed(*args):
            return [replace(layer, maps=change(layer.maps)) for layer in read(*args)]

        monkeypatch.setattr(inspect_libraries, "attention_of", changed)
        assert independent(Vit(fused), images) > 1e-2

    expect_difference(lambda maps: maps.flip(-1))
    expect_difference(lambda maps: maps.movedim((4, 5), (2, 3)))  # keys are not queries
    expect_difference(lambda maps: torch.cat([maps[:, :2], maps[:, :1]], dim=1))
    monkeypatch.setattr(inspect_libraries, "attention_of", read)
    assert independent(Vit(fused), images) < 1e-5


def test_an_independent_check_uses_float64_where_float32_rounds_too_much():
    torch.manual_seed(0)
    model = Vit(in_float64_only)
    images = torch.randn(1, 3, 64, 64)
    assert independent(model, images) < 1e-9


def test_maps_in_another_order_and_some_windows_are_found():
    torch.manual_seed(0)
    product = torch.rand(6, 9, 9).softmax(dim=-1)
    order = torch.randperm(9)
    maps = product[[4, 1, 2]][:, order][..., order].unflatten(-1, (3, 3)).unflatten(1, (3, 3))
    layer = LayerAttention("", maps[:, None], torch.zeros(1))
    assert largest_difference([layer], [product], ordered=False) < 1e-6
    assert largest_difference([layer], [product]) > 1e-2
    assert largest_difference([layer], [torch.rand(7, 8, 8), product[:2]]) is None
    shuffled = LayerAttention("", product[[4, 1]].view(2, 1, 3, 3, 3, 3), torch.zeros(1))
    assert largest_difference([shuffled], [product]) < 1e-6
    both = [shuffled, replace(shuffled, maps=shuffled.maps.flip(0))]
    assert largest_difference(both, [product.flip(1), product, product]) < 1e-6
    assert largest_difference(both, [product.flip(1), product]) is None
