"""Tests of the attention read from models, against timm's own extraction and other computations."""

import pytest
import torch
from torch import nn

from attnconv import attention_probabilities, build_model
from attnconv.vit.capture import attention_of
from companion.heads import content_probabilities

timm = pytest.importorskip("timm")

# name: options of the model, the size of the image, and the grid of the first layer
FAMILIES = {
    "vit_tiny_patch16_224": ({"img_size": 48}, (48, 48), (3, 3)),
    "vit_tiny_patch16_224, any size": ({"dynamic_img_size": True}, (96, 64), (6, 4)),
    "deit_tiny_distilled_patch16_224": ({"img_size": (64, 48)}, (64, 48), (4, 3)),
    "vit_relpos_small_patch16_224": ({"img_size": 48}, (48, 48), (3, 3)),
    "vit_relpos_base_patch16_clsgap_224": ({"img_size": (32, 48)}, (32, 48), (2, 3)),
    "vit_small_patch14_reg4_dinov2": ({"img_size": 56}, (56, 56), (4, 4)),
    "swin_tiny_patch4_window7_224": ({}, (224, 224), (7, 7)),
    "swinv2_tiny_window8_256": ({}, (256, 256), (8, 8)),
    "beit_base_patch16_224": ({"img_size": 48}, (48, 48), (3, 3)),
    "maxvit_tiny_tf_224": ({}, (224, 224), (7, 7)),
    "coatnet_nano_rw_224": ({"img_size": 128}, (128, 128), (8, 8)),
    "gcvit_xxtiny": ({}, (224, 224), (7, 7)),
}


def build(family, **options):
    return timm.create_model(family.partition(",")[0], pretrained=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_what_timm_extracts(family):
    """Against timm's AttentionExtract on the same model, built without fused attention."""
    options, size, grid = FAMILIES[family]
    torch.manual_seed(0)
    model, images = build(family, **options), torch.randn(2, 3, *size)
    timm.layers.set_fused_attn(False)
    try:
        plain = build(family, **options)
    finally:
        timm.layers.set_fused_attn(True)
    plain.load_state_dict(model.state_dict())
    extract = timm.utils.AttentionExtract(plain, method="hook")
    with torch.no_grad():
        expected = extract(images)
    found = attention_of(model, images)
    assert [f"{layer.name}.attn_drop" for layer in found] == list(expected)
    assert tuple(found[0].maps.shape[-2:]) == grid
    for layer, maps in zip(found, expected.values(), strict=True):
        patches = layer.maps.shape[-2] * layer.maps.shape[-1]
        prefix = maps.shape[-1] - patches
        assert prefix == getattr(model, "num_prefix_tokens", 0)
        to_patches = maps[..., prefix:, prefix:]
        share = to_patches.sum(dim=-1)  # one less the mass on prefix tokens
        assert torch.allclose(layer.prefix_mass.float(), 1 - share.mean(dim=(0, 2)), atol=1e-5)
        given = layer.maps.flatten(4).flatten(2, 3) * share.unsqueeze(-1)
        assert torch.allclose(given, to_patches, atol=1e-6)


def test_a_block_against_its_queries_and_keys():
    torch.manual_seed(0)
    model = build("vit_tiny_patch16_224", img_size=(32, 48)).eval()
    images = torch.randn(2, 3, 32, 48)
    layer = attention_of(model, images)[0]
    block = model.blocks[0]
    tokens = block.norm1(model.norm_pre(model._pos_embed(model.patch_embed(images))))
    qkv = tokens @ block.attn.qkv.weight.T + block.attn.qkv.bias
    width = qkv.shape[-1] // 3 // 3  # of a head
    for head in range(3):
        q, k = (
            qkv[..., part * 3 * width :][..., head * width : (head + 1) * width] for part in (0, 1)
        )
        scores = q[:, 1:] @ k[:, 1:].mT / width**0.5  # the softmax among the patches
        assert torch.allclose(
            layer.maps[:, head].flatten(3).flatten(1, 2), scores.softmax(-1), atol=1e-6
        )


def test_the_model_is_left_as_it_was():
    model = build("vit_tiny_patch16_224", img_size=32, depth=2).train()
    model.blocks[1].eval()
    model.blocks[1].attn.fused_attn = False
    state = [(module.training, getattr(module, "fused_attn", None)) for module in model.modules()]
    for images in (torch.randn(1, 3, 32, 32), torch.randn(1, 3, 99, 32)):
        try:
            attention_of(model, images)
        except AssertionError:
            assert images.shape[2] == 99, "an image that the model refuses"
        assert state == [
            (module.training, getattr(module, "fused_attn", None)) for module in model.modules()
        ]
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_our_networks():
    torch.manual_seed(0)
    images = torch.randn(2, 3, 12, 8)
    model = build_model("sa-quadratic", num_layers=2)
    found = attention_of(model, images)
    for layer, attention in zip(found, model.attentions, strict=True):
        assert torch.equal(layer.maps, attention_probabilities(attention, 6, 4)[None].detach())
    model = build_model("sa-learned-content", num_layers=2, hidden=16, image_size=12).eval()
    expected = content_probabilities(model, images)
    for layer, maps in zip(attention_of(model, images), expected, strict=True):
        assert layer.maps.shape == (2, 9, 6, 4, 6, 4) and torch.equal(layer.maps, maps)


def test_a_wrapped_model_keeps_its_grid_and_prefix_tokens():
    model = timm.create_model("vit_tiny_patch16_224", img_size=(64, 80), depth=1).eval()
    images = torch.randn(2, 3, 64, 80)
    (alone,), (wrapped,) = (
        attention_of(each, images) for each in (model, nn.Sequential(nn.Identity(), model))
    )
    assert alone.maps.shape[2:] == (4, 5, 4, 5)
    assert torch.equal(wrapped.maps, alone.maps)
    assert torch.equal(wrapped.prefix_mass, alone.prefix_mass) and alone.prefix_mass.min() > 0


def test_a_grid_is_not_guessed_on_images_that_are_not_square():
    model = timm.create_model("mobilevit_xxs", pretrained=False)
    assert attention_of(model, torch.randn(1, 3, 128, 128))[0].maps.shape[2:] == (8, 8, 8, 8)
    with pytest.raises(ValueError, match="or square images and a square number of tokens"):
        attention_of(model, torch.randn(1, 3, 64, 256))


class Attention(nn.Module):
    """It attends with one head whose maps, before the softmax, are given."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def forward(self, x):
        return self.scores(x).softmax(dim=-1)[:, 0] @ x


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (nn.Linear(6, 6), TypeError, "Sequential has no attention that can be read; expected"),
        (Attention(lambda x: torch.ones(2, 1, 4, 5)), TypeError, r"0 \(Attention\) has 4 queries"),
        (Attention(lambda x: torch.ones(2, 1, 5, 5)), ValueError, "5 tokens, 0 of them"),
    ],
)
def test_what_cannot_be_read_is_refused(layer, error, message):
    with pytest.raises(error, match=message):
        attention_of(nn.Sequential(layer), torch.randn(2, 5, 6))


def test_chosen_layers_alone_are_read():
    model = timm.create_model("vit_tiny_patch16_224", img_size=48, depth=3, pretrained=False)
    images = torch.randn(2, 3, 48, 48)
    every = attention_of(model, images)
    last, first = attention_of(model, images, [-1, 0])
    assert (last.name, first.name) == (every[2].name, every[0].name)
    assert torch.equal(last.maps, every[2].maps) and torch.equal(first.maps, every[0].maps)
    model.blocks[1].attn.fused_attn = False
    model.blocks[1].attn.attn_drop.register_forward_pre_hook(lambda _, inputs: (2 * inputs[0],))
    with pytest.raises(TypeError, match=r"blocks.1.attn \(Attention\) cannot be read"):
        attention_of(model, images)
    assert len(attention_of(model, images, [0, 2])) == 2, "a layer not chosen is not checked"
    with pytest.raises(ValueError, match="layers has 3, expected numbers from 0 to 2"):
        attention_of(model, images, [3])
