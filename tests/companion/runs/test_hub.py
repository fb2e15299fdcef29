"""A trained model as a folder of the model hub, and back."""

import shutil

import pytest
import torch

from companion.runs.hub import HubModel
from companion.runs.weights import load_model
from companion.store import DamagedFile


@pytest.mark.parametrize("name", ["cnn", "sa-generalized-pruned"])
def test_a_model_comes_back_as_it_was(name, tmp_path):
    model = load_model(name)
    images = torch.randn(2, 3, 32, 32)
    HubModel(model).save_pretrained(tmp_path / "a", config={"model": name})
    first = HubModel.from_pretrained(tmp_path / "a")
    first.save_pretrained(tmp_path / "b")  # also one that was read from such a folder
    read = HubModel.from_pretrained(tmp_path / "b")
    assert not read.training and read.network.record.name == "b"
    with torch.no_grad():
        assert torch.equal(read(images), model(images))


def test_the_folder_has_neither_pickle_nor_code(tmp_path):
    HubModel(load_model("sa-quadratic")).save_pretrained(tmp_path, config={"model": "sa-quadratic"})
    kinds = {path.suffix for path in tmp_path.iterdir()}
    assert kinds == {".json", ".csv", ".safetensors", ".md"}


def test_damaged_weights_are_refused(tmp_path):
    HubModel(load_model("sa-quadratic")).save_pretrained(tmp_path)
    other = load_model("cnn").record.folder / "weights.safetensors"
    shutil.copyfile(other, tmp_path / "model.safetensors")
    with pytest.raises(DamagedFile, match="got the weights of another model"):
        HubModel.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors is missing"):
        HubModel.from_pretrained(tmp_path)
