import torch
from torch import nn

from attnconv.config import ImitationParameters
from attnconv.data import load_photograph, whitened
from attnconv.imitate import imitate_convolution


def test_imitation_moves_towards_the_grid():
    conv = nn.Conv2d(3, 16, 3, padding=1)
    picture = whitened(load_photograph("china", (53, 80)))
    learned = imitate_convolution(conv, picture, ImitationParameters(steps=400))
    assert learned.centers.shape == (401, 9, 2) and learned.errors.shape == (400,)
    assert learned.errors[-20:].mean() < 0.2 < learned.errors[0]
    # the heads' parameters, not the random start, produced the output
    assert not torch.equal(learned.centers[0], learned.centers[-1])
