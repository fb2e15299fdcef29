"""Tests of plain vision transformers started as convolutions, in timm's own forward pass."""

import copy
import re
from functools import partial

import pytest
import torch
from helpers.models import unchanged
from hypothesis import given, settings
from hypothesis import strategies as st

from attnconv import init_as_convolution
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.attention import spatial_softmax
from attnconv.vit.absolute import CODE, position_code
from attnconv.vit.capture import attention_of
from companion.data import load_photograph

timm = pytest.importorskip("timm")


def plain(**options):
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 54, "depth": 4, "num_heads": 9}
    return VisionTransformer(**sizes | {"num_classes": 10, "mlp_ratio": 2} | options).eval()


def photographs(size):
    """Crops of two photographs, centred and scaled as networks take them."""
    crops = []
    for name in ("china", "flower"):
        image = load_photograph(name, (2 * size, 2 * size)).movedim(-1, 0)
        crops += [image[:, :size, :size], image[:, size:, size:], image[:, :size, size:]]
    return (torch.stack(crops) - 0.5) / 0.25


def quadratic(offsets, alpha, grid):
    encoding = QuadraticEncoding.from_alpha(offsets.double(), alpha)
    return spatial_softmax(encoding.position_scores(*grid))


@settings(max_examples=20, deadline=None)
@given(
    height=st.integers(3, 16),
    width=st.integers(3, 16),
    prefix=st.integers(0, 2),
    alpha=st.floats(0.2, 40),
)
def test_codes_have_mean_zero_and_one_norm(height, width, prefix, alpha):
    """So the LayerNorm divides every token by the same number when content is small."""
    codes, _ = position_code(height, width, prefix, alpha, reach=1.0)
    assert codes.shape == (prefix + height * width, CODE)
    torch.testing.assert_close(codes.sum(dim=1), torch.zeros_like(codes[:, 0]), atol=1e-12, rtol=0)
    norms = codes.norm(dim=1)
    torch.testing.assert_close(norms, norms[:1].expand_as(norms), atol=0, rtol=1e-12)
    assert len(codes[prefix:].unique(dim=0)) == height * width


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"class_token": False, "global_pool": "avg"},
        {"num_heads": 4, "embed_dim": 48, "img_size": (20, 28)},
        {"num_heads": 12, "embed_dim": 48, "img_size": 64},
    ],
)
@pytest.mark.parametrize(("kernel_size", "alpha"), [(3, 2.0), (5, 0.7), (2, 30.0)])
def test_the_start_is_exact_where_content_has_the_same_size_everywhere(options, kernel_size, alpha):
    """On an image of one colour, in the first layer, in float64: borders included."""
    model = plain(**options).double()
    model.pos_embed.data.zero_()
    if model.cls_token is not None:
        model.cls_token.data.zero_()
    images = torch.full((1, 3, *model.patch_embed.img_size), 0.7, dtype=torch.float64)
    report = init_as_convolution(model, kernel_size, alpha, images=images)
    found = attention_of(model, images)[0]
    expected = quadratic(report.layers[0].offsets, alpha, model.patch_embed.grid_size)
    assert (found.maps[0] - expected).abs().max() < 1e-5
    assert found.prefix_mass.max() < 1e-8


def test_photographs_leave_every_layer_convolutional():
    """On real images and through all layers, where the LayerNorm mixes positions with content."""
    model = plain()
    images = photographs(32)
    report = init_as_convolution(model, 3, 2.0, images=images)
    for layer, found in zip(report.layers, attention_of(model, images), strict=True):
        exact = quadratic(layer.offsets, 2.0, (8, 8))
        assert (found.maps.double().mean(dim=0) - exact).abs().max() < 0.02
        assert layer.fidelity.min() > 0.6 and layer.residual < 0.25


def test_images_change_the_output_and_content_keeps_its_size():
    model = plain()
    images = photographs(32)
    before = copy.deepcopy(model)
    before.pos_embed.data.zero_()
    init_as_convolution(model, images=images)
    assert model(images).std(dim=0).max() > 1e-3
    sizes = []
    for each in (before, model):
        tokens = each._pos_embed(each.patch_embed(images))[:, 1:]
        sizes.append(each.blocks[0].norm1(tokens)[..., :-CODE].square().mean().sqrt().item())
    assert sizes[1] == pytest.approx(sizes[0], rel=0.25)


def test_the_class_token_looks_everywhere_alike_and_is_not_looked_at():
    model = plain()
    images = photographs(32)
    init_as_convolution(model, images=images)
    maps = {}
    model.blocks[0].attn.fused_attn = False
    model.blocks[0].attn.attn_drop.register_forward_hook(
        lambda _, inputs, output: maps.update(found=output.detach())
    )
    model(images)
    of_class = maps["found"][:, :, 0, 1:]
    to_class = maps["found"][:, :, 1:, 0]
    assert to_class.max() < 1e-6
    assert of_class.std() < 0.01 and float(of_class.mean()) == pytest.approx(1 / 65, rel=0.3)


def test_values_keep_their_start_and_queries_can_be_learned():
    model = plain()
    before = copy.deepcopy(model.state_dict())
    init_as_convolution(model, layers=(0, 2), images=photographs(32))
    after = model.state_dict()
    for number in range(4):
        name = f"blocks.{number}.attn.qkv.weight"
        kept = slice(2 * 54, None) if number in (0, 2) else slice(None)
        assert torch.equal(before[name][kept, :-CODE], after[name][kept, :-CODE])
    model.train()(photographs(32)).square().sum().backward()
    gradient = model.blocks[0].attn.qkv.weight.grad
    assert gradient[:54].abs().max() > 0 and gradient[54:108].abs().max() > 0


FORMS = {
    "class token": {},
    "mean, fc_norm": {"class_token": False, "global_pool": "avg"},
    "mean, norm": {"class_token": False, "global_pool": "avg", "fc_norm": False},
    "class token without position": {"no_embed_class": True},  # DeiT III
    "norm before the blocks": {"pre_norm": True},  # CLIP
    "attention pooling": {"global_pool": "map", "class_token": False},  # SigLIP
    "gated MLP": {"mlp_layer": timm.layers.GluMlp},
    "registers": {"no_embed_class": True, "reg_tokens": 4, "init_values": 1.0},  # DINOv2
}


def pooled(model, images):
    """The size of what the classifier reads, in the dimensions that hold no code."""
    with torch.no_grad():
        features = model.forward_head(model.forward_features(images), pre_logits=True)
    return features[:, :-CODE].square().mean().sqrt().item()


@pytest.mark.parametrize("form", FORMS)
def test_the_classifier_reads_features_of_the_same_size_as_before(form):
    """Most of a token is its code, so that the last LayerNorm alone would make content tiny."""
    model = plain(**FORMS[form])
    images = photographs(32)
    before = pooled(model, images)
    report = init_as_convolution(model, images=images)
    assert pooled(model, images) == pytest.approx(before, rel=0.3)
    for layer in report.layers:
        assert layer.fidelity.min() > 0.6
    if model.cls_token is not None and not model.no_embed_class:
        assert not model.cls_token[..., -CODE:].any()


#: The first norm measures tokens without the dimensions of the code, which are not empty at first.
RTOL_TWICE = {"norm before the blocks": 2e-3}


@pytest.mark.parametrize("form", FORMS)
def test_starting_twice_is_starting_once(form):
    model = plain(**FORMS[form])
    images = photographs(32)
    init_as_convolution(model, images=images)
    once = copy.deepcopy(model.state_dict())
    init_as_convolution(model, images=images)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, once[name], rtol=RTOL_TWICE.get(form, 1e-4), atol=1e-6)


def test_other_layers_cannot_be_started_later():
    """The position code is one for all layers, so a second call would undo the first."""
    model = plain()
    images = photographs(32)
    init_as_convolution(model, layers=[0, 1], images=images)
    with (
        unchanged(model),
        pytest.raises(ValueError, match=r"blocks\.0, blocks\.1 would lose the start"),
    ):
        init_as_convolution(model, layers=[2, 3], images=images)
    report = init_as_convolution(model, alpha=5.0, images=images)
    assert len(report.layers) == 4 and min(layer.fidelity.min() for layer in report.layers) > 0.8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images: images[0], r"shape \(3, 32, 32\), expected \(batch, 3, 32, 32\)"),
        (lambda images: images[..., :28], r"shape \(6, 3, 32, 28\)"),
        (lambda images: images[:0], r"shape \(0, 3, 32, 32\)"),
        (lambda images: images / 0, "NaN or infinite"),
    ],
)
def test_images_that_the_model_cannot_take_are_refused(change, message):
    model = plain()
    with unchanged(model), pytest.raises(ValueError, match=message):
        init_as_convolution(model, images=change(photographs(32)))


def test_a_failure_after_the_weights_were_written_restores_them(monkeypatch):
    def fail(*_):
        raise MemoryError

    model = plain()
    monkeypatch.setattr("attnconv.vit.start.read_probabilities", fail)
    with unchanged(model), pytest.raises(MemoryError):
        init_as_convolution(model, images=photographs(32))


def test_a_wrapped_model_is_refused_with_the_path_to_it():
    model = plain()
    wrapped = torch.nn.Sequential(torch.nn.Identity(), model)
    with pytest.raises(TypeError, match="contains a vision transformer: pass") as error:
        init_as_convolution(wrapped, images=photographs(32))
    (path,) = re.findall(r'get_submodule\("(.*)"\)', str(error.value))
    assert wrapped.get_submodule(path) is model


def test_a_model_that_fails_on_the_images_keeps_no_hooks():
    model = plain()

    def fail(*_):
        raise RuntimeError("no such image")

    handle = model.blocks[1].register_forward_pre_hook(fail)
    with unchanged(model), pytest.raises(RuntimeError, match="no such image"):
        init_as_convolution(model, images=photographs(32))
    handle.remove()
    assert not [name for name, module in model.named_modules() if module._forward_hooks]


def test_content_that_outweighs_positions_is_warned_of():
    model = plain()
    with torch.no_grad():
        for block in model.blocks:  # the outputs of the first layers outweigh positions later
            block.mlp.fc2.weight *= 1e4
    with pytest.warns(
        UserWarning, match=r"a head of blocks.3.attn has fidelity 0.\d+ instead of 0.6"
    ):
        init_as_convolution(model, images=photographs(32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qk_norm": True}, r"blocks.0.attn \(Attention\): it normalises queries"),
        ({"embed_dim": 18}, "its head dimension is 2"),
        (
            {"global_pool": "avg", "fc_norm": False, "final_norm": False},
            "no LayerNorm after its last",
        ),
        ({"norm_layer": "rmsnorm"}, r"blocks.0.norm1 \(RmsNorm\): expected a LayerNorm"),
        (
            {"norm_layer": "plain"},
            r"blocks.0.norm1 \(LayerNorm\): expected a LayerNorm with weights",
        ),
        ({"embed_norm_layer": "layernorm"}, "patch_embed: its norm"),
        ({"block_fn": "res-post"}, r"blocks.0 \(ResPostBlock\): expected Block"),
    ],
)
def test_other_forms_are_refused(options, message):
    if options.get("block_fn"):
        options = {"block_fn": timm.models.vision_transformer.ResPostBlock}
    if options.get("norm_layer") == "plain":
        options = {"norm_layer": partial(torch.nn.LayerNorm, elementwise_affine=False)}
    model = plain(**options)
    with unchanged(model), pytest.raises(TypeError, match=message):
        init_as_convolution(model)


def test_a_distilled_transformer_starts_on_noise():
    model = timm.create_model("deit_tiny_distilled_patch16_224", pretrained=False).eval()
    report = init_as_convolution(model)
    assert min(layer.fidelity.min() for layer in report.layers) > 0.6


def test_the_start_does_not_depend_on_autocast():
    """Autocast keeps casts of weights, which would be those from before the start."""
    reports = []
    for enabled in (False, True):
        model = plain()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            reports.append(init_as_convolution(model, images=photographs(32)))
    for one, other in zip(*(report.layers for report in reports), strict=True):
        assert torch.equal(one.fidelity, other.fidelity)
