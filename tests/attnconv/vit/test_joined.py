"""Tests of tokens that a model joins to those of the image, in front of them and behind them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnconv.vit.capture import attention_of
from attnconv.vit.substitution import output_with, read_output

HEADS, DIM, HEIGHT, WIDTH = 2, 8, 4, 3


class Attend(nn.Module):
    """It is given queries, keys and values by head, as in x-transformers."""

    def forward(self, q, k, v):
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1) @ v


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = HEADS
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.attend = Attend()

    def parts(self, x):
        return self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, x):
        return self.attend(*self.parts(x)).transpose(1, 2).flatten(2)


class Fused(Attention):
    def forward(self, x):
        return F.scaled_dot_product_attention(*self.parts(x)).transpose(1, 2).flatten(2)


class Vit(nn.Module):
    """A vision transformer whose class token comes first and whose other tokens come last."""

    def __init__(self, first, last, attention=Fused):
        super().__init__()
        self.embed = nn.Conv2d(3, DIM, 4, 4)
        self.cls_token = nn.Parameter(3 * torch.randn(first, DIM))
        self.detections = nn.Parameter(3 * torch.randn(last, DIM))
        self.position = nn.Parameter(torch.randn(last, DIM))
        self.attention = attention()

    def forward(self, images):
        x = self.embed(images).flatten(2).mT
        first = self.cls_token.to(x.dtype).expand(len(x), -1, -1)
        x = torch.cat([first, x], dim=1)
        last = (self.detections + self.position)[None].repeat(len(x), 1, 1)
        return self.attention(torch.cat((x, last), 1))


class AtOnce(Vit):
    def forward(self, images):
        x = self.embed(images).flatten(2).mT
        last = self.detections + self.position
        parts = [self.cls_token.expand(len(x), -1, -1), x, last.expand(len(x), -1, -1)]
        return self.attention(torch.concat(parts, axis=-2))


class Inside(Vit):
    """As in DINOv2, register tokens are put between the class token and the patches."""

    def __init__(self, first, last):
        super().__init__(first, last)
        self.register_tokens = self._parameters.pop("detections")

    def forward(self, images):
        x = self.embed(images).flatten(2).mT
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        last = (self.register_tokens + self.position).expand(len(x), -1, -1)
        return self.attention(torch.cat([x[:, : len(self.cls_token)], last, x[:, 1:]], dim=1))


@pytest.fixture
def images():
    torch.manual_seed(0)
    return torch.randn(2, 3, 4 * HEIGHT, 4 * WIDTH)


def expect_maps_of_patches(vit, images, first):
    """Compare what is read with weights from the layer's own queries and keys.

    `first` tokens come before the patches.
    """
    (layer,) = attention_of(vit, images)
    assert layer.name == "attention" and layer.gap < 1e-6
    inputs = []
    hook = vit.attention.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    vit(images)
    hook.remove()
    q, k, _ = vit.attention.parts(inputs[0]).double()
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
    patches = slice(first, first + HEIGHT * WIDTH)
    weights = weights[:, :, patches, patches].detach()
    share = weights.sum(dim=-1, keepdim=True)
    assert torch.allclose(layer.prefix_mass, 1 - share.mean(dim=(0, 2, 3)), atol=1e-6)
    found = layer.maps.flatten(4).flatten(2, 3).double()
    assert found.shape == weights.shape
    assert torch.allclose(found, weights / share, atol=1e-5)


@pytest.mark.parametrize("kind", [Vit, AtOnce])
@pytest.mark.parametrize("attention", [Fused, Attention])
@pytest.mark.parametrize(("first", "last"), [(1, 4), (0, 3), (1, 0), (2, 100)])
def test_the_patches_are_found_among_other_tokens(images, kind, attention, first, last):
    expect_maps_of_patches(kind(first, last, attention), images, first)


@pytest.mark.parametrize("registers", [4, 5])
def test_tokens_between_class_token_and_patches_are_known_by_their_names(images, registers):
    expect_maps_of_patches(Inside(1, registers), images, 1 + registers)


@torch.no_grad()
@pytest.mark.parametrize("attention", [Fused, Attention])
def test_a_layers_own_maps_change_nothing_behind_other_tokens(images, attention):
    vit = AtOnce(1, 4, attention)
    image = images[:1]
    own, reading = read_output(vit, image, lambda layer: layer)
    maps = {layer.name: layer.maps[0] for layer in reading.layers}
    assert torch.allclose(output_with(vit, image, maps), own, atol=1e-5)
    maps["attention"] = maps["attention"].flip(3)
    assert not torch.allclose(output_with(vit, image, maps), own, atol=1e-2)


def test_parameters_keep_no_trace_of_a_reading(images):
    vit = Vit(1, 4)
    attention_of(vit, images)
    assert not any(vars(parameter) for parameter in vit.parameters())


LIBRARIES = {
    "vit_pytorch": "simple_vit_with_register_tokens",
    "x_transformers": None,
    "transformers": None,
}


def of_library(name, library):
    sizes = {"image_size": 64, "patch_size": 16}
    small = sizes | {"num_classes": 10, "dim": 48, "depth": 2, "heads": 3, "mlp_dim": 96}
    if name == "vit_pytorch":
        return library.SimpleViT(**small, num_register_tokens=4), (0, 4)
    if name == "x_transformers":
        layers = library.Encoder(dim=48, depth=2, heads=3, attn_dim_head=16)
        wrap = library.ViTransformerWrapper
        return wrap(**sizes, num_classes=10, attn_layers=layers, num_register_tokens=4), (0, 4)
    hidden = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = library.YolosConfig(**hidden, image_size=[64, 64], patch_size=16)
    return library.YolosModel(config), (1, 100)


@pytest.mark.parametrize("name", LIBRARIES)
def test_appended_tokens_in_other_libraries(name):
    """A change of one patch of the image changes the queries of this patch alone."""
    path = ".".join(filter(None, [name, LIBRARIES[name]]))
    library = pytest.importorskip(path)
    torch.manual_seed(0)
    model, (before, after) = of_library(name, library)
    one = torch.randn(1, 3, 64, 64)
    other = one.clone()
    other[..., 16:32, 48:] = torch.randn(16, 16)  # row 1, column 3
    maps = [attention_of(model, image)[0].maps for image in (one, other)]
    changed = (maps[0] - maps[1]).abs().amax(dim=(0, 1))  # (H, W, H, W)
    # keys: each query's weight for the changed patch, relative to that of another patch
    ratios = [each / each[..., :1, :1] for each in maps]
    by_key = (ratios[0] / ratios[1] - 1).abs().amax(dim=(0, 1))
    others = torch.ones(4, 4, dtype=torch.bool)
    others[1, 3] = False
    assert changed.shape == (4, 4, 4, 4) and before + after > 0
    assert by_key[others][:, others].max() < 1e-4 < by_key[others][:, 1, 3].min()
    assert by_key[1, 3].max() > 1e-3
