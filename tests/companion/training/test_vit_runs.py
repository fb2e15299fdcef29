"""The vision transformers of chapter 17 as runs: their records and weights."""

import pytest
import torch
from helpers.runs import check_record, two_steps

from companion.heads import heads_of
from companion.runs.select import Records
from companion.runs.weights import load_model
from companion.specs import VITS
from companion.studies.starts.measures import SHIFTS, share_that_stayed
from companion.training.loop import train

pytest.importorskip("timm")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "model",
    [
        *sorted(VITS),
        "vit-wide-mimetic-values",
        "vit-rotary-convolution",
        "vit-alpha-8",
        "vit-impulse",
    ],
)
def test_two_steps_leave_a_record(model, noise, tmp_path):
    run = train(two_steps(tmp_path, model, "vit-10k"), noise)
    record = run.record
    check_record(record, model, epochs=1)
    assert record.tier == "vit-10k" and not Records.read(tmp_path / "runs", "vit-10k").of(model)
    if model == "vit-convolution":
        again = load_model(model, "vit-10k", runs=tmp_path / "runs")
        images = noise.normalise(noise.test_images)
        with torch.no_grad():
            assert (again(images) - run.model(images)).abs().max() < 2e-2, "half precision"
    by_offset = record.attention[SHIFTS].float()
    assert by_offset.shape == (6, 9, 15, 15)
    if model in ("vit-mimetic", "vit-rotary-convolution", "vit-impulse"):
        return  # they have no relative position bias
    start, end = (heads_of(record, moment) for moment in (0, -1))
    assert share_that_stayed(record) > 0.7, "two steps move little"
    if model == "vit-frozen":
        assert all(torch.equal(a.by_offset, b.by_offset) for a, b in zip(start, end, strict=True))
        # queries and keys are still zero: attention with content is that of the position alone
        position = torch.stack([layer.by_offset for layer in end]).float()
        torch.testing.assert_close(by_offset, position, atol=2e-3, rtol=0)
    else:
        assert not torch.equal(start[0].by_offset, end[0].by_offset)


def test_two_steps_of_the_yardstick_leave_a_record(noise, tmp_path):
    record = train(two_steps(tmp_path, "vit-lite-6-4", "vit-lite", train_images=40), noise).record
    check_record(record, "vit-lite-6-4", epochs=1)
    assert record.tier == "vit-lite" and record.info.parameter_count == 3_190_538
