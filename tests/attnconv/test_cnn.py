"""The small CNN: its first layer, its start, its sizes, and that it converts."""

import pytest
import torch
from torch import nn

from attnconv import build_model, convert_network
from attnconv.cnn import WHITENING_EPS, SmallCNN
from companion.gaps import largest_gap
from companion.runs.parameters import RunParameters


@pytest.fixture
def images():
    return torch.randn(40, 3, 32, 32, dtype=torch.float64).cumsum(dim=-1)  # neighbours are alike


def _whitened(images, width=8):
    torch.manual_seed(0)
    model = SmallCNN(width=width).double()
    model.prepare(images)
    return model


def test_the_first_layer_whitens_patches(images):
    X = _whitened(images).whitening(images).detach().movedim(1, -1).flatten(0, 2)
    one, other = X.split(12, dim=1)
    assert torch.equal(one, -other)
    moments = one.T @ one / len(one)
    off = moments - moments.diagonal().diag()
    assert off.abs().max() < 1e-8
    shrunk = 1 - moments.diagonal()  # eps / (eigenvalue + eps)
    assert (shrunk > 0).all() and (shrunk < WHITENING_EPS / 0.05).all()


def test_groups_work_at_31_15_and_7_pixels(images):
    model = _whitened(images)
    sizes = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.MaxPool2d):
            module.register_forward_hook(lambda _, __, out: sizes.append(out.shape[-1]))
    assert model(images[:2]).shape == (2, 10)
    assert sizes == [31, 31, 15, 15, 15, 7, 7, 7, 3, 3]


def test_it_starts_as_the_identity_where_there_is_one_and_scales_stay(images):
    model = _whitened(images, width=32)
    first = model.groups[0][0].weight
    assert torch.equal(first[:24], nn.init.dirac_(torch.empty_like(first[:24])))
    fixed = {name for name, p in model.named_parameters() if not p.requires_grad}
    scales = {f"groups.{group}.{norm}.weight" for group in range(3) for norm in (2, 5)}
    assert fixed == scales | {"whitening.weight"}


def test_it_becomes_attention(images):
    model = _whitened(images)
    model(images)  # the norms have seen images
    recast = convert_network(model.eval())
    assert not any(isinstance(module, nn.Conv2d) for module in recast.modules())
    with torch.no_grad():
        assert largest_gap(recast(images), model(images)) < 1e-12


def test_digits_are_too_small():
    assert build_model("cnn", in_channels=1)(torch.randn(2, 1, 9, 9)).shape == (2, 10)
    with pytest.raises(ValueError, match=r"expected tier = 'paper' or .* and dataset cifar10"):
        RunParameters.check({"model": "cnn", "dataset": "digits"})
