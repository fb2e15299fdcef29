"""The engine on a GPU. Skipped where there is none; ATTNCONV_GPU=cpu runs them on the CPU, to try
the tests themselves."""

import os

import pytest
import torch
from helpers.runs import check_record, places, results, stop_after

from attnconv import load_dataset
from companion.runs.parameters import RunParameters
from companion.specs import MODELS
from companion.training.loop import train
from companion.training.machine import Interrupted

DEVICE = os.environ.get("ATTNCONV_GPU", "cuda")
needs_gpu = pytest.mark.skipif(
    DEVICE == "cuda" and not torch.cuda.is_available(), reason="torch finds no CUDA GPU here"
)
pytestmark = [pytest.mark.slow, needs_gpu]

DIGITS = load_dataset("digits")
BFLOAT16 = 2**-8  # the spacing of its numbers at one
# as CUDA graphs; to compile for a CPU takes long and shows nothing here
FAST = {"precision": "bfloat16", "compile": "off" if DEVICE == "cpu" else "reduce-overhead"}


def ten_steps(folder, **values):
    """A run of ten steps without dropout, which draws other numbers on a GPU."""
    network = {"num_layers": 2, "hidden": 16, "intermediate": 16}
    data = {"train_images": 250, "test_images": 100, "batch_size": 25, "augment": True}
    values = {"epochs": 1, "compile": "off", "precision": "float32", "device": DEVICE} | values
    kept = {"resume": True, "checkpoint_every": 1} | places(folder)
    parameters = RunParameters.check(network | data | kept | values)
    if parameters.model == "sa-generalized-pruned":
        train(parameters.parent(), DIGITS)
    return parameters


def weights_apart(ours, theirs):
    """The largest difference of two models' weights over their largest weight."""
    pairs = list(zip(ours.parameters(), theirs.parameters(), strict=True))
    apart = max((a - b).abs().max().item() for a, b in pairs)
    return apart / max(b.abs().max().item() for _, b in pairs)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_ten_steps_are_those_of_the_cpu(model, tmp_path):
    """In float32 to rounding, in bfloat16, compiled, as CUDA graphs, within its error."""
    ways = {"cpu": {"device": "cpu"}, "exact": {}, "fast": FAST}
    cpu, exact, fast = (  # at a rate that does not make much of little
        train(ten_steps(tmp_path / way, model=model, learning_rate=1e-3, **values), DIGITS)
        for way, values in ways.items()
    )
    losses = [run.metrics[0]["train_loss"] for run in (cpu, exact, fast)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert weights_apart(exact.model, cpu.model) < 1e-3
    assert losses[2] == pytest.approx(losses[0], rel=4 * BFLOAT16)
    assert fast.model.state_dict().keys() == cpu.model.state_dict().keys()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_compiled_steps_are_those_that_are_not(mode, tmp_path):
    runs = [
        train(ten_steps(tmp_path / way, compile=way, model="sa-generalized"), DIGITS)
        for way in ("off", mode)
    ]
    losses = [run.metrics[0]["train_loss"] for run in runs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("model", ["sa-quadratic", "sa-learned-content", "resnet18"])
def test_stopped_and_resumed_it_is_the_same_run(model, tmp_path, monkeypatch):
    """With all that is random, in bfloat16, as CUDA graphs; a GPU may add in another order."""
    values = FAST | {"model": model, "epochs": 2, "dropout": 0.1, "attention_dropout": 0.1}
    whole = train(ten_steps(tmp_path / "whole", **values), DIGITS)
    parameters = ten_steps(tmp_path / "parts", **values)
    with monkeypatch.context() as patch:
        stop_after(patch, 13)
        with pytest.raises(Interrupted, match="a checkpoint was written"):
            train(parameters, DIGITS)
    again = train(parameters, DIGITS)
    assert again.record.info.times_resumed == 1
    if DEVICE == "cpu":
        assert results(again) == results(whole)
    for ours, theirs in zip(again.metrics, whole.metrics, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=BFLOAT16)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_two_steps_of_the_papers_recipe(model, cifar10_root, tmp_path):
    """The paper's sizes, as the command runs them on this device."""
    values = {"model": model, "dataset": "cifar10", "epochs": 1, "device": DEVICE}
    values |= {"train_images": 200, "test_images": 100, "data_root": str(cifar10_root)}
    if DEVICE == "cpu":
        values |= {"num_layers": 2} if "sa-" in model else {}
        values |= {"compile": "off"}
    parameters = RunParameters.check(values | places(tmp_path) | {"parent_epochs": None})
    if model == "sa-generalized-pruned":
        parameters = parameters.model_copy(update={"parent_epochs": 1})
        train(parameters.parent())
    check_record(train(parameters).record, model, 1)


def test_an_arm_of_chapter_15_trains(cifar10_root, tmp_path):
    values = {"dataset": "cifar10", "tier": "small-free", "override": True, "epochs": 1}
    values |= {"train_images": 250, "test_images": 100, "data_root": str(cifar10_root)}
    values |= places(tmp_path)
    arm = RunParameters.check(values | {"model": "freed-100", "parent_epochs": 4, "device": DEVICE})
    train(arm.parent())
    check_record(train(arm).record, "freed-100", 1)
