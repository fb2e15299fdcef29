"""Tests of the maps read from explicit softmaxes against computations that do not repeat them.

Where a model computes the softmax itself, the reader finds the weights in the model's own product.
Here, the same model attends once more through torch's fused function, whose weights the reader
computes from queries and keys, or the maps are computed from the layers' weights and inputs.
"""

import pytest
import torch

from attnconv.vit.capture import attention_of

TIMM = {
    "vit_tiny_patch16_224": {"img_size": 64},
    "vit_relpos_small_patch16_224": {"img_size": 64},
    "beit_base_patch16_224": {"img_size": 64, "depth": 2},
    "eva02_tiny_patch14_224": {"img_size": 56},
    "swin_tiny_patch4_window7_224": {"img_size": 56, "window_size": 7, "depths": (2, 2)},
    "deit3_small_patch16_224": {"img_size": 64, "depth": 2},
}
TRANSFORMERS = ["ViT", "DeiT", "Dinov2", "CLIPVision", "SiglipVision", "Beit"]


def sharpened(model):
    """Make the maps of a model with random weights far from uniform."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6)
    return model.eval()


def expect_same(explicit, independent):
    assert [layer.name for layer in explicit] == [layer.name for layer in independent]
    for one, other in zip(explicit, independent, strict=True):
        assert torch.allclose(one.maps, other.maps, atol=1e-5)
        assert torch.allclose(one.prefix_mass, other.prefix_mass, atol=1e-5)
    tokens = explicit[0].maps.shape[-2] * explicit[0].maps.shape[-1]
    assert max(layer.maps.max() for layer in explicit) > 4 / tokens, "the maps are not uniform"


@pytest.mark.parametrize("name", TIMM)
def test_timm(name):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = sharpened(timm.create_model(name, **TIMM[name]))
    side = TIMM[name]["img_size"]
    images = torch.randn(1, 3, side, side)
    readings = []
    for fused in (False, True):
        switches = [module for module in model.modules() if hasattr(module, "fused_attn")]
        assert switches
        for module in switches:
            module.fused_attn = fused
        readings.append(attention_of(model, images))
    expect_same(*readings)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name):
    library = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 96, "image_size": 64, "patch_size": 16}
    config = getattr(library, f"{name}Config")(**sizes, attn_implementation="eager")
    model = sharpened(getattr(library, f"{name}Model")(config))
    images = torch.randn(1, 3, 64, 64)
    explicit = attention_of(model, images)
    for other in ("sdpa",) if name == "Beit" else ("sdpa", "flex_attention"):
        model.set_attn_implementation(other)
        assert model.config._attn_implementation == other
        expect_same(explicit, attention_of(model, images))


@pytest.mark.parametrize("name", ["ViT", "SimpleViT"])
def test_vit_pytorch(name):
    """The maps follow from the input and the weights of each layer's `to_qkv`, in float64."""
    library = pytest.importorskip("vit_pytorch")
    torch.manual_seed(0)
    sizes = {"image_size": 64, "patch_size": 16, "num_classes": 10, "dim": 48, "depth": 2}
    model = sharpened(getattr(library, name)(**sizes, heads=3, mlp_dim=96, dim_head=16))
    inputs = {}
    for path, module in model.named_modules():
        if path.endswith("to_qkv"):
            module.register_forward_pre_hook(
                lambda module, given: inputs.update({module: given[0].double()})
            )
    found = attention_of(model, torch.randn(2, 3, 64, 64))
    assert len(found) == len(inputs) == 2
    prefix = int(name == "ViT")
    for layer, (to_qkv, tokens) in zip(found, inputs.items(), strict=True):
        query, key = (
            (tokens @ to_qkv.weight.double().T).unflatten(-1, (3, 3, 16))[..., :2, :, :].unbind(2)
        )
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) / 4
        maps = scores.softmax(dim=-1)[:, :, prefix:, prefix:]
        assert maps.max() > 0.25
        maps = maps / maps.sum(dim=-1, keepdim=True)
        given = layer.maps.double().flatten(4).flatten(2, 3)
        assert torch.allclose(given, maps, atol=1e-5)
