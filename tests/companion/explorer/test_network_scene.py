"""Tests of the data of scene 3: its networks and pictures, and nothing for the other scenes."""

import json

import pytest
import safetensors.torch

from attnconv import load_model
from companion.data import PICTURES, load_photograph
from companion.explorer.networks import PICTURE_SIZE, add_network_scene
from companion.explorer.payload import stage_payload


@pytest.fixture(scope="module")
def payload():
    records = [load_model(name).record for name in ("cnn", "sa-quadratic")]
    return add_network_scene(stage_payload(place="files"), records)


def test_the_weights_lie_beside_the_page(payload):
    for entry in payload.data["networks"]:
        name = f"{entry['file']['name']}.safetensors"
        assert entry["file"]["url"] == f"files/{name}" and len(payload.files[name]) > 500_000
    assert len(json.dumps(payload.data)) < 150_000


def test_a_scene_alone_has_none():
    assert not stage_payload("heads").files
    assert not {"networks", "worker", "pictures"} & stage_payload("heads").data.keys()


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_the_middle_square(name, payload):
    picture = payload.data["images"][name]
    assert picture["height"] == picture["width"] == PICTURE_SIZE
    values = safetensors.torch.load(payload.files[f"{name}.safetensors"])["pixels"]
    whole = load_photograph(name)
    side = min(whole.shape[:2])
    top, left = ((length - side) // 2 for length in whole.shape[:2])
    square = whole[top : top + side, left : left + side]
    expected = (square[: side // 2], square[side // 2 :])
    halves = values.split(PICTURE_SIZE // 2)
    for ours, theirs in zip(halves, expected, strict=True):
        assert ours.float().mean() / 255 == pytest.approx(theirs.mean().item(), abs=2e-3)
