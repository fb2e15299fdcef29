"""Steps by hand: each kind of optimizer, and the groups with rates of their own."""

import pytest
import torch
from torch import nn

from attnconv.layers.attention import PositionAttention
from attnconv.layers.encodings import QuadraticEncoding
from companion.runs.parameters import RunParameters
from companion.training.learner import make_optimizer, set_rate

DECAY = 0.01
RATE = 0.1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.attention = PositionAttention(QuadraticEncoding(2), 2, 3)


def parameters(**values):
    given = {"optimizer": "nesterov", "weight_decay": DECAY, "position_rate": 10.0}
    return RunParameters.check({"norm_rate": 64.0} | given | values)


def stepped(model, gradients, **values):
    """The change of each parameter after steps with the given gradients everywhere."""
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = make_optimizer(model, parameters(**values))
    set_rate(optimizer, RATE)
    for gradient in gradients:
        for value in model.parameters():
            value.grad = torch.full_like(value, gradient)
        optimizer.step()
    return before, dict(model.named_parameters())


def by_hand(value, gradients, rate, decay, nesterov):
    velocity = torch.zeros_like(value)
    for gradient in gradients:
        total = gradient + decay * value
        velocity = 0.9 * velocity + total
        value = value - rate * (total + 0.9 * velocity if nesterov else velocity)
    return value


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov"])
def test_each_group_steps_at_its_rate(optimizer):
    torch.manual_seed(0)
    before, after = stepped(Net(), (1.0, -0.5), optimizer=optimizer)
    groups = dict.fromkeys(("conv.weight", "conv.bias", "norm.weight"), (RATE, DECAY))
    groups["norm.bias"] = (64 * RATE, DECAY / 64)
    for name in ("centers", "spread"):
        groups[f"attention.encoding.{name}"] = (10 * RATE, 0.0)
    for name, (rate, decay) in groups.items():
        expected = by_hand(before[name], (1.0, -0.5), rate, decay, optimizer == "nesterov")
        torch.testing.assert_close(after[name].detach(), expected, msg=name)


def test_without_a_rate_of_their_own_norms_are_weights():
    model = Net()
    optimizer = make_optimizer(model, parameters(norm_rate=1.0))
    assert [group["factor"] for group in optimizer.param_groups] == [1.0, 10.0]
    assert any(value is model.norm.bias for value in optimizer.param_groups[0]["params"])
