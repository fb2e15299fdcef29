"""The vision transformers of chapter 17 as runs: their records, kill and resume."""

import pytest
import torch
from helpers.runs import check_record, stop_after, untimed

from companion.data import Dataset
from companion.data.cifar10 import CIFAR10_CLASSES
from companion.heads import heads_of
from companion.runs.parameters import RunParameters
from companion.runs.record import load_run
from companion.runs.select import Records
from companion.runs.weights import load_model
from companion.specs import VITS
from companion.studies.starts.measures import SHIFTS, share_that_stayed
from companion.training.loop import train
from companion.training.machine import Interrupted

pytest.importorskip("timm")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def noise():
    """Images of CIFAR-10's shape with its name: 200 to train on, 60 to test."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (260, 32, 32, 3), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (260,), generator=generator)
    about = {"classes": CIFAR10_CLASSES, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return Dataset("cifar10", images[:200], labels[:200], images[200:], labels[200:], **about)


def two_steps(folder, model):
    """The tier's recipe and network, for one epoch of two batches."""
    brief = {"epochs": 1, "batch_size": 100, "train_images": 200, "override": True}
    places = {"runs": str(folder / "runs"), "checkpoints": str(folder / "checkpoints")}
    about = {"model": model, "dataset": "cifar10", "tier": "vit-10k", "device": "cpu"}
    return RunParameters.check(about | brief | places)


@pytest.mark.parametrize("model", [*sorted(VITS), "vit-wide-mimetic-values"])
def test_two_steps_leave_a_record(model, noise, tmp_path):
    record = train(two_steps(tmp_path, model), noise).record
    check_record(record, model, epochs=1)
    assert record.tier == "vit-10k" and not Records.read(tmp_path / "runs", "vit-10k").of(model)
    by_offset = record.attention[SHIFTS].float()
    assert by_offset.shape == (6, 9, 15, 15)
    if model == "vit-mimetic":
        return  # it has no relative position bias
    start, end = (heads_of(record, moment) for moment in (0, -1))
    assert share_that_stayed(record) > 0.7, "two steps move little"
    if model == "vit-frozen":
        assert all(torch.equal(a.by_offset, b.by_offset) for a, b in zip(start, end, strict=True))
        # queries and keys are still zero: attention with content is that of the position alone
        position = torch.stack([layer.by_offset for layer in end]).float()
        torch.testing.assert_close(by_offset, position, atol=2e-3, rtol=0)
    else:
        assert not torch.equal(start[0].by_offset, end[0].by_offset)


def test_a_stopped_run_goes_on_bit_for_bit(noise, tmp_path, monkeypatch):
    model = "vit-convolution"
    whole = train(two_steps(tmp_path / "whole", model), noise)
    stop_after(monkeypatch, 0)
    parameters = two_steps(tmp_path / "parts", model)
    with pytest.raises(Interrupted, match="stopped by SIGTERM in epoch 1, step 1"):
        train(parameters, noise)
    monkeypatch.undo()
    assert untimed(train(parameters, noise).record) == untimed(whole.record)
    again = load_model(model, tier="vit-10k", runs=tmp_path / "parts" / "runs")
    images = noise.normalise(noise.test_images)
    with torch.no_grad():
        assert (again(images) - whole.model(images)).abs().max() < 2e-2, "half precision"
    record = load_run(parameters.record_folder)
    assert all(
        torch.equal(record.attention[n], whole.record.attention[n]) for n in record.attention
    )
