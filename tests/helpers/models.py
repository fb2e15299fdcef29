"""Known numbers of the models, a small network, and what a model must keep."""

import copy
from contextlib import contextmanager

import torch
from torch import nn

from attnconv import attention_probabilities
from attnconv.cnn import SmallCNN
from attnconv.layers.attention import ContentAttention

# From the published code, to the unit; the paper's Table 4 has them rounded.
PARAMETERS = {
    "resnet18": 11_173_962,
    "sa-quadratic": 12_086_844,
    "sa-quadratic-16": 18_806_970,
    "sa-generalized": 12_087_006,
    "sa-generalized-pruned": 9_686_916,
    "sa-learned": 12_278_682,
    "sa-learned-content": 29_484_282,
}


def small_cnn():
    """Return a small CNN in double precision with batch statistics and random kernels."""
    torch.manual_seed(0)
    model = SmallCNN(width=6).double()
    images = torch.randn(20, 3, 20, 20, dtype=torch.float64)
    model.prepare(images)
    model(images)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, std=0.3)
    return model.eval()


@contextmanager
def unchanged(model):
    """Assert that the block leaves the model's parameters and buffers as they were."""
    before = copy.deepcopy(model.state_dict())
    yield
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@torch.no_grad()
def maps_of(model, images):
    """Yield the maps of each layer, `(B, N_h, H, W, H, W)`, from the inputs of its attention."""
    inputs = []
    hooks = [
        attention.register_forward_pre_hook(lambda _, X: inputs.append(X[0]))
        for attention in model.attentions
    ]
    model(images)
    for hook in hooks:
        hook.remove()
    for attention, X in zip(model.attentions, inputs, strict=True):
        if isinstance(attention, ContentAttention):
            yield attention.probabilities(X)
        else:
            yield attention_probabilities(attention, *X.shape[1:3]).expand(len(X), *[-1] * 5)
