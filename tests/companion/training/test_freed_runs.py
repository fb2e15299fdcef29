"""The arms of chapter 15 as runs: what they start from, what moves, what is refused, kill and
resume."""

import shutil

import pytest
import torch
from helpers.runs import check_record, places, results

from companion.runs.parameters import RunParameters
from companion.runs.record import load_run
from companion.runs.weights import load_model
from companion.specs import ARMS
from companion.store import read_tensors
from companion.studies.freed.arms import STARTS
from companion.studies.freed.network import attention_layers
from companion.training.checkpoint import Checkpoints
from companion.training.loop import train
from companion.training.origin import epochs_to_keep

pytestmark = pytest.mark.slow

BRIEF = {"epochs": 2, "parent_epochs": 4, "batch_size": 20, "width": 6, "override": True}


def brief(folder, model, **values):
    given = BRIEF | {"dataset": "cifar10", "tier": "small-free", "model": model, "device": "cpu"}
    given |= {"epochs": 4, "parent_epochs": None} if model == "cnn" else {}
    return RunParameters.check(given | places(folder) | values)


@pytest.fixture(scope="module")
def folder(noise, tmp_path_factory):
    """With a trained CNN."""
    folder = tmp_path_factory.mktemp("cnn")
    train(brief(folder, "cnn"), noise)
    return folder


def test_a_cnn_keeps_its_weights_where_arms_start(folder):
    parameters = brief(folder, "cnn")
    assert epochs_to_keep(parameters) == {0, 1, 2, 4}
    kept = Checkpoints(parameters.checkpoint_folder)
    assert {e for e in range(5) if kept.weights_path(e).exists()} == {0, 1, 2, 4}
    usual = RunParameters.check({"model": "cnn", "dataset": "cifar10", "tier": "small-free"})
    assert epochs_to_keep(usual) == {0, 2, 4, 8} and usual.epochs == 8
    assert not epochs_to_keep(brief(folder, "cnn", checkpoint_every=0))
    assert not epochs_to_keep(brief(folder, "grid-0"))


@pytest.mark.parametrize("name", sorted(ARMS))
def test_each_arm_trains_from_where_it_should(name, folder, noise, monkeypatch):
    start = STARTS[name]
    paths = []

    def read(path):
        paths.append(path)
        return read_tensors(path)

    monkeypatch.setattr("companion.training.origin.read_tensors", read)
    run = train(brief(folder, name), noise)
    weights = Checkpoints(brief(folder, "cnn").checkpoint_folder)
    assert paths == [weights.weights_path(round(start.share * 4))]
    check_record(run.record, name, 2)
    origin = run.record.info.parent
    assert origin["run"] == "cnn--cifar10-small-free--seed0"
    assert origin["epochs"] == round(start.share * 4)
    parent = load_run(brief(folder, "cnn").record_folder)
    if start.share == 1.0:
        assert origin["test_accuracy"] == parent.accuracy
    history = run.record.history
    if start.heads is None:
        assert not history.by_layer and "distances" not in origin
        assert origin["test_accuracy_at_start"] == origin["test_accuracy"]
        return
    assert history.epochs.tolist() == [0, 1, 2] and len(history.by_layer) == 7
    for layer in zip(history.layers("centers"), history.layers("alpha"), strict=True):
        for values, parameter in zip(layer, ("centers", "spread"), strict=True):
            still = torch.equal(values[0], values[-1])
            assert still != (parameter in start.freed)  # not by a bit, where they are fixed
    assert len(origin["distances"]) == 7 and 0 <= origin["test_accuracy_as_convolutions"] <= 1
    assert max(origin["distances"]) > 0
    model = load_model(name, "small-free", runs=folder / "runs")
    layers = zip(attention_layers(model), history.layers("centers"), strict=True)
    for layer, centers in layers:
        assert torch.allclose(layer.encoding.centers, centers[-1], atol=1e-3)  # of half precision


def test_killed_and_resumed_an_arm_is_the_same(folder, noise, tmp_path):
    def arm(where):
        return brief(folder, "random-freed", runs=str(tmp_path / where / "runs"))

    whole = train(arm("whole"), noise)
    newest, before = Checkpoints(arm("whole").checkpoint_folder).paths()
    newest.unlink()  # as killed after one epoch
    assert before.exists()
    again = train(arm("again"), noise)
    assert again.record.info.times_resumed == 1 and results(again) == results(whole)
    assert again.record.info.parent == whole.record.info.parent


def test_without_the_cnn_the_command_that_makes_it_is_named(noise, tmp_path):
    with pytest.raises(ValueError) as error:
        train(brief(tmp_path, "freed-25"), noise)
    text = "cifar10-small-free--seed0"
    text = f"freed-25--{text} starts from cnn--{text} after 1 of 4 epochs, which is not available"
    assert text in str(error.value)
    command = "-m attnconv train --model cnn --dataset cifar10 --tier small-free --seed 0"
    assert str(error.value).endswith(command)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("what", ["damaged", "another"])
def test_a_damaged_cnn_or_another_is_refused(what, folder, noise, tmp_path):
    cnn = brief(folder, "cnn").checkpoint_folder
    shutil.copytree(cnn, tmp_path / "checkpoints" / cnn.name)
    arm = brief(tmp_path, "freed-100", **({"width": 8} if what == "another" else {}))
    path = Checkpoints(brief(tmp_path, "cnn").checkpoint_folder).weights_path(4)
    if what == "damaged":
        content = bytearray(path.read_bytes())
        content[-20] ^= 1
        path.write_bytes(bytes(content))
    reason = "is damaged" if what == "damaged" else r"width = 6 \(requested: 8\)"
    with pytest.raises(ValueError, match=f"starts from .* not available .*{reason}.* this command"):
        train(arm, noise)


def test_the_recipe_is_the_tiers(tmp_path):
    usual = {"model": "freed-0", "dataset": "cifar10", "tier": "small-free"}
    with pytest.raises(ValueError, match=r"position_rate = 10\.0: the tier small-free has"):
        RunParameters.check(usual | {"position_rate": 10.0})
    with pytest.raises(ValueError, match="expected tier = 'small-free' and dataset cifar10"):
        RunParameters.check({"model": "freed-0", "dataset": "digits"})
