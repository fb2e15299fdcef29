"""Tests of the attention read from models, against timm's own extraction and other computations."""

import pytest
import torch
from helpers.ways import content_probabilities
from torch import nn

from attnconv import attention_probabilities, build_model, inspect_attention
from attnconv.vit.capture import attention_of

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
    model = build(family, **options)
    images = torch.randn(2, 3, *size)
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


def timms_hiera():
    options = {"stages": (1, 1, 2, 1), "embed_dim": 24, "num_heads": 1}
    return timm.create_model("hiera_tiny_224", img_size=(64, 96), **options)


class InStages(nn.Module):
    """timm's Hiera in the form of transformers': blocks in stages, and a method `reroll`."""

    def __init__(self):
        super().__init__()
        hiera = timms_hiera()
        self.parts = [hiera]  # unregistered
        self.stages = nn.ModuleList()
        self.schedule = {}
        for stage, numbers in enumerate([[0], [1], [2, 3], [4]]):
            self.stages.append(nn.Sequential(*(hiera.blocks[number] for number in numbers)))
            self.schedule[stage] = hiera.reroll.schedule[numbers[-1]]

    def reroll(self, x, stage):
        return self.parts[0].reroll(x, [0, 1, 3, 4][stage])

    def forward(self, images):
        hiera = self.parts[0]
        x = hiera.unroll(hiera._pos_embed(hiera.patch_embed(images)))
        for stage in self.stages:
            x = stage(x)
        return x


def transformers_hiera():
    library = pytest.importorskip("transformers")
    sizes = {"embed_dim": 24, "depths": [1, 1, 2, 1], "num_heads": [1, 2, 4, 8]}
    return library.HieraModel(library.HieraConfig(image_size=[64, 96], **sizes))


# the module that rerolls and, for two layers, the name, the number for `reroll`, and the grid
HIERAS = {
    "timm": (timms_hiera, "", [("blocks.0.attn", 0), ("blocks.3.attn", 3)]),
    "stages": (InStages, "", [("stages.0.0.attn", 0), ("stages.2.1.attn", 2)]),
    "transformers": (
        transformers_hiera,
        "encoder",
        [("encoder.stages.0.layers.0.attn", 0), ("encoder.stages.2.layers.1.attn", 2)],
    ),
}


@pytest.mark.parametrize("case", HIERAS)
def test_the_tokens_of_hiera_are_put_back_into_the_order_of_the_image(case):
    """Each window's maps against those of its queries and keys, cut out of the image."""
    torch.manual_seed(0)
    build, backbone, layers = HIERAS[case]
    model = build().eval()
    inputs = {}
    for name, _ in layers:  # of windows, and of the whole image
        layer = model.get_submodule(name)
        layer.qkv.weight.data.mul_(30)
        layer.register_forward_pre_hook(lambda layer, given: inputs.update({layer: given[0]}))
    found = {layer.name: layer for layer in attention_of(model, torch.randn(2, 3, 64, 96))}
    for (name, number), side in zip(layers, [(8, 8), (4, 6)], strict=True):
        maps = found[name].maps
        layer = model.get_submodule(name)
        assert tuple(maps.shape[2:]) == side * 2
        image = model.get_submodule(backbone).reroll(inputs[layer], number)  # (B, H, W, C)
        rows, columns = (image.shape[axis] // side[axis - 1] for axis in (1, 2))
        windows = image.unflatten(1, (rows, side[0])).unflatten(3, (columns, side[1]))
        tokens = windows.transpose(2, 3).flatten(3, 4).flatten(0, 2)
        heads = maps.shape[1]
        q, k, _ = layer.qkv(tokens).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        expected = (q @ k.mT * layer.scale).softmax(dim=-1).detach().flatten(1)
        assert expected.max() > 0.3
        gaps = (maps.flatten(1)[:, None] - expected).abs().amax(dim=-1)
        assert gaps.amin(dim=1).max() < 1e-5, "each map is that of some window"
        assert gaps.argmin(dim=1).unique().numel() == len(maps), "and no two of the same one"


def test_the_first_layer_of_hiera_sees_windows_of_the_embedded_image():
    """Without `reroll`: the embedding's tokens are in row-major order."""
    torch.manual_seed(0)
    model = transformers_hiera().eval()
    block = model.encoder.stages[0].layers[0]
    block.attn.qkv.weight.data.mul_(30)
    images = torch.randn(1, 3, 64, 96)
    tokens = block.layernorm_before(model.embeddings(images)[0]).unflatten(1, (16, 24))
    windows = tokens.unflatten(1, (2, 8)).unflatten(3, (3, 8)).transpose(2, 3).flatten(3, 4)
    q, k, _ = block.attn.qkv(windows.flatten(0, 2)).chunk(3, dim=-1)
    expected = (q @ k.mT * block.attn.scale).softmax(dim=-1).detach()
    maps = attention_of(model, images)[0].maps.flatten(4).flatten(1, 3)
    assert expected.max() > 0.3
    assert torch.allclose(maps, expected, atol=1e-5)


def test_hiera_at_another_size_than_reroll_knows_is_refused():
    model = InStages()
    model.schedule = {n: (steps, [8, 12]) for n, (steps, _) in model.schedule.items()}
    with pytest.raises(TypeError, match="into another order than the image's"):
        attention_of(model, torch.randn(2, 3, 64, 96))


def naflex_input(images, padding):
    """The patches of 16 x 16 pixels as timm's NaFlex models take them, followed by padding."""
    patches = images.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 4, 5, 1)
    count = len(images)
    (height, width) = patches.shape[1:3]
    coordinates = torch.cartesian_prod(torch.arange(height), torch.arange(width))
    patches = nn.functional.pad(patches.flatten(3).flatten(1, 2), (0, 0, 0, padding), value=0.7)
    return {
        "patches": patches,
        "patch_coord": nn.functional.pad(coordinates, (0, 0, 0, padding)).expand(count, -1, -1),
        "patch_valid": (torch.arange(patches.shape[1]) < height * width).expand(count, -1),
    }


def test_naflex_reads_patches_and_ignores_padding():
    torch.manual_seed(0)
    model = timm.create_model("naflexvit_base_patch16_gap", depth=2).eval()
    images = torch.randn(2, 3, 96, 64)
    given = naflex_input(images, padding=3)
    assert torch.allclose(model(given), model(images), atol=1e-5)
    padded, plain = attention_of(model, given), attention_of(model, images)
    for one, other in zip(padded, plain, strict=True):
        assert one.maps.shape == (2, 12, 6, 4, 6, 4)
        assert torch.allclose(one.maps, other.maps, atol=1e-6)
        assert torch.allclose(one.prefix_mass, other.prefix_mass, atol=1e-6)
    report = inspect_attention(model, given)
    assert report.layers[0].grid == (6, 4)


def test_other_dicts_and_images_of_different_sizes_are_refused():
    model = timm.create_model("naflexvit_base_patch16_gap", depth=1)
    with pytest.raises(ValueError, match="images is a dict of pixel_values; expected a tensor"):
        attention_of(model, {"pixel_values": torch.randn(1, 3, 32, 32)})
    one, other = (naflex_input(torch.randn(1, 3, *size), 0) for size in ((64, 96), (96, 64)))
    both = {name: torch.cat([one[name], other[name]]) for name in one}
    with pytest.raises(ValueError, match="differ in their grids of patches"):
        attention_of(model, both)
    for each in (one, other):
        assert len(attention_of(model, each)) == 1
    one["patch_coord"] = one["patch_coord"].flip(1)
    with pytest.raises(ValueError, match="not in row-major order"):
        attention_of(model, one)


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
