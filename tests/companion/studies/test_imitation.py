import torch
from torch import nn

from attnconv.layers.attention import PositionAttention
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.grid import offset_set
from companion.data import load_photograph, whitened
from companion.studies.imitation import (
    ImitationParameters,
    imitate_convolution,
    imitate_convolutions,
)


def test_imitation_moves_towards_the_grid():
    conv = nn.Conv2d(3, 16, 3, padding=1)
    picture = whitened(load_photograph("china", (53, 80)))
    learned = imitate_convolution(conv, picture, ImitationParameters(steps=400))
    assert learned.centers.shape == (401, 9, 2) and learned.errors.shape == (400,)
    assert learned.errors[-20:].mean() < 0.2 < learned.errors[0]
    offsets = offset_set((3, 3)).float()
    start, end = (
        torch.cdist(learned.centers[at], offsets).amin(dim=0).mean() for at in (0, -1)
    )  # from each offset to the nearest centre
    assert end < start / 2
    assert torch.equal(learned.layer.encoding.centers, learned.centers[-1])


def test_side_by_side_is_the_same_as_alone():
    """A second route: another's convolution, start, decay and values change nothing but the
    rounding."""
    picture = whitened(load_photograph("china", (53, 80)))
    convs = [nn.Conv2d(3, 4, 3, padding=1) for _ in range(3)]
    runs = [
        ImitationParameters(steps=30, weight_decay=decay, values_at_zero=decay > 0)
        for decay in (0.1, 0.5, 0.0)
    ]
    together = imitate_convolutions(convs, picture, runs)
    for conv, run, joint in zip(convs, runs, together, strict=True):
        alone = imitate_convolution(conv, picture, run)
        for name, ours, theirs in zip(
            ("centers", "errors"), _numbers(joint), _numbers(alone), strict=True
        ):
            torch.testing.assert_close(
                ours, theirs, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
            )
        X = torch.randn(2, 12, 12, 3)
        torch.testing.assert_close(joint.layer(X), alone.layer(X), rtol=1e-2, atol=1e-3)


def _numbers(imitation):
    return imitation.centers, imitation.errors


def test_the_values_decay_as_in_adamw():
    """In the first step: Adam's step, from values that were first made smaller by rate times
    decay."""
    picture, conv = whitened(load_photograph("china", (53, 80))), nn.Conv2d(3, 4, 3, padding=1)
    run = ImitationParameters(steps=1, weight_decay=0.7, values_at_zero=False)
    learned = imitate_convolution(conv, picture, run)
    torch.manual_seed(run.seed)
    start = PositionAttention(QuadraticEncoding(9, center_std=1.0), 3, 4)
    none = imitate_convolution(conv, picture, run.model_copy(update={"weight_decay": 0.0}))
    decayed = none.layer.value.weight - 1e-2 * 0.7 * start.value.weight
    torch.testing.assert_close(learned.layer.value.weight, decayed, rtol=0, atol=1e-6)
