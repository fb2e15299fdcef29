"""Uses of a converted network whose convolutions were transposed or padded in their own way."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnconv import convert_network
from companion.gaps import largest_gap

X = torch.randn(1, 3, 9, 8, generator=torch.Generator().manual_seed(1)).double()
OTHER = torch.randn(2, 3, 14, 13, generator=torch.Generator().manual_seed(2)).double()


class Static(nn.Conv2d):
    def forward(self, input):
        return super().forward(F.pad(input, (1, 2, 0, 1)))


class ByStride(nn.Conv2d):
    def forward(self, input):
        sizes = zip(input.shape[:1:-1], self.kernel_size, self.stride, strict=True)
        totals = [max(k - 1 - (size - 1) % s, 0) for size, k, s in sizes]
        pads = [pad for total in totals for pad in (total // 2, total - total // 2)]
        return super().forward(F.pad(input, pads))


LAYERS = {
    "transposed": nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
    "static": Static(3, 4, 3, stride=2),
    "by stride": ByStride(3, 4, 3, stride=2),
}


@torch.no_grad()
def traced(network):
    return torch.jit.trace(network, X)(OTHER)


def symbolically_traced(network):
    return torch.fx.symbolic_trace(network)(OTHER)


def exported(network):
    return torch.export.export(network.eval(), (X,)).module()(X)


def pickled(network):
    return pickle.loads(pickle.dumps(network))(OTHER)


def in_channels_last(network):
    return network(OTHER.to(memory_format=torch.channels_last))


def stacked(network):
    state = torch.func.stack_module_state([network, copy.deepcopy(network)])
    like = copy.deepcopy(network).to("meta")
    return torch.vmap(lambda *values: torch.func.functional_call(like, values, (X,)))(*state)


def on_the_meta_device(network):
    return network.to("meta")(OTHER.to("meta"))


def in_autocast(network):
    with torch.autocast("cpu", torch.bfloat16):
        return network.float()(X.float())


def gradient(network):
    x = X.clone().requires_grad_()
    network(x).square().sum().backward()
    return torch.cat([x.grad.flatten(), *(p.grad.flatten() for p in network.parameters())])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    "use",
    [
        *(traced, symbolically_traced, exported, pickled, in_channels_last, stacked),
        *(on_the_meta_device, in_autocast, gradient),
    ],
)
@pytest.mark.parametrize("name", LAYERS)
def test_a_use_gives_what_the_network_gives(name, use):
    if name == "by stride" and use in (traced, symbolically_traced):
        pytest.skip("the network itself then keeps the padding of one size")
    network = nn.Sequential(copy.deepcopy(LAYERS[name]), nn.Tanh()).double()
    converted = convert_network(network)
    ours, theirs = use(converted).detach(), use(network).detach()
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    assert ours.stride() == theirs.stride()
    bound = 2e-2 if use is in_autocast else 1e-12
    assert ours.is_meta or largest_gap(ours, theirs) < bound
