"""Tests of starts in use: scales, dropout, class tokens, selections, images and compiled models."""

import contextlib
import copy
import re
import warnings

import numpy as np
import pytest
import torch
from helpers.models import unchanged
from torch import nn

from attnconv import init_as_convolution
from attnconv.vit.biases import biased_layers
from attnconv.vit.start import mass_on_offsets

timm = pytest.importorskip("timm")


def relpos(**options):
    from timm.models.vision_transformer_relpos import VisionTransformerRelPos

    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 36, "depth": 2, "num_heads": 9}
    defaults = {"num_classes": 10, "mlp_ratio": 2, "init_values": None, "rel_pos_type": "bias"}
    return VisionTransformerRelPos(**sizes | defaults | options).eval()


def plain(**options):
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 54, "depth": 2, "num_heads": 9}
    return VisionTransformer(**sizes | {"num_classes": 10, "mlp_ratio": 2} | options).eval()


def images(side=32):
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))


def set_scales(model):
    for name, parameter in model.named_parameters():
        if name.endswith("gamma"):
            nn.init.ones_(parameter)


REMEDIES = {
    "init_values=1.0": lambda model: relpos(init_values=1.0),
    "set these scales to 1": lambda model: set_scales(model) or model,
}


@pytest.mark.parametrize("remedy", REMEDIES)
def test_layer_scale_near_zero_is_warned_of_and_each_remedy_works(remedy):
    model = relpos(init_values=1e-6)
    with pytest.warns(UserWarning, match=r"2 of 2 layers.*blocks\.0\.ls1\.gamma") as caught:
        report = init_as_convolution(model)
    assert remedy in str(caught[0].message) and str(caught[0].message) in str(report)
    assert max(layer.effect for layer in report.layers) < 1e-5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = init_as_convolution(REMEDIES[remedy](model))
    assert min(layer.effect for layer in report.layers) > 0.01
    assert all(layer.fidelity.min() > 0.6 for layer in report.layers)


@pytest.mark.parametrize("build", [relpos, plain])
def test_the_effect_is_that_of_a_block_without_its_output_projection(build):
    model = build()
    shown = images()[:1]
    report = init_as_convolution(model, images=shown)
    inputs = {}
    hook = model.blocks[1].register_forward_pre_hook(lambda _, args: inputs.update(x=args[0]))
    with torch.no_grad():
        model(shown)
        hook.remove()
        whole = model.blocks[1](inputs["x"])
        silent = copy.deepcopy(model.blocks[1])
        silent.attn.proj.weight.zero_()
        silent.attn.proj.bias.zero_()
        without = silent(inputs["x"])
    content = slice(-10 if build is plain else None)  # a plain model keeps positions in the rest
    change = (whole - without)[..., content].norm() / without[..., content].norm()
    assert report.layers[1].effect == pytest.approx(float(change), rel=1e-3)


def fidelities(model, offsets, runs=50):
    (layer, *_) = biased_layers(model)
    return torch.stack([mass_on_offsets(layer.probabilities(), offsets) for _ in range(runs)])


def test_dropout_in_a_perceptron_does_little_harm_after_loading_and_the_note_removes_it():
    options = {"rel_pos_type": "mlp", "img_size": 56}
    model = relpos(**options)
    report = init_as_convolution(model)
    (start, *_) = report.layers
    torch.manual_seed(0)
    loaded = relpos(**options).train()
    loaded.load_state_dict(model.state_dict())
    found = fidelities(loaded, start.offsets)
    assert found.std() > 0, "the dropout is back"
    assert (found.mean(dim=0) - start.fidelity).abs().max() < 0.08 and found.min() > 0.15
    (line,) = re.findall(r"repeat: (for .*)", str(report))
    exec(line, {"model": loaded})
    found = fidelities(loaded, start.offsets, runs=2)
    torch.testing.assert_close(found, start.fidelity.expand_as(found), atol=1e-5, rtol=0)


def maps_in_forward(model, shown):
    """The argument of the softmax's dropout in the first layer of timm's own forward pass."""
    attention = next(module for module in model.modules() if hasattr(module, "attn_drop"))
    attention.fused_attn = False
    found = {}
    hook = attention.attn_drop.register_forward_pre_hook(lambda _, args: found.update(maps=args[0]))
    with torch.no_grad():
        model(shown)
    hook.remove()
    return found["maps"].double()


def beit():
    from timm.models.beit import Beit

    sizes = {"img_size": 32, "patch_size": 4, "embed_dim": 98, "depth": 2, "num_heads": 49}
    return Beit(**sizes, use_rel_pos_bias=True, num_classes=10).eval()


CLASS_TOKENS = {
    "beit": beit,
    "bias": lambda: relpos(class_token=True, num_heads=49, embed_dim=98),
    "mlp": lambda: relpos(class_token=True, rel_pos_type="mlp", num_heads=49, embed_dim=98),
}


@pytest.mark.parametrize("kind", CLASS_TOKENS)
@pytest.mark.parametrize(("kernel_size", "alpha"), [(3, 2.0), (7, 2.0), (3, 30.0), (7, 30.0)])
def test_no_patch_attends_to_the_class_token_at_any_border(kind, kernel_size, alpha):
    """Where the kernel's pixel is missing, the token must score lower than the nearest patch."""
    model = CLASS_TOKENS[kind]()
    init_as_convolution(model, kernel_size, alpha)
    to_class = maps_in_forward(model, images())[:, :, 1:, 0]
    assert to_class.max() < 2.1e-9  # exp(-20)


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0])
def test_the_weights_of_the_norms_do_not_change_the_fidelity(weight):
    expected = init_as_convolution(plain(), images=images()).layers
    model = plain()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.constant_(module.weight, weight)
            nn.init.normal_(module.bias, std=weight)
    found = init_as_convolution(model, images=images()).layers
    assert (found[0].fidelity - expected[0].fidelity).abs().max() < 1e-4
    assert found[1].fidelity.min() > 0.55


@pytest.mark.parametrize("layers", [[0], range(1), slice(1), iter([0]), (n for n in (-2,))])
def test_layers_can_be_given_in_any_form(layers):
    report = init_as_convolution(relpos(), layers=layers)
    assert [layer.name for layer in report.layers] == ["blocks.0.attn"]


@pytest.mark.parametrize("build", [relpos, plain])
def test_a_compiled_model_starts_like_the_model_itself(build):
    model, other = build(), build()
    expected = init_as_convolution(model, images=images())
    report = init_as_convolution(torch.compile(other, backend="eager"), images=images())
    assert str(report) == str(expected)
    compiled = torch.compile(build(), backend="eager")
    with torch.no_grad():
        compiled(images())  # compiled before the start
        init_as_convolution(compiled, images=images())
        torch.testing.assert_close(compiled(images()), model(images()), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("build", [relpos, plain])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda x: x[0],
            ValueError,
            r"shape \(3, 32, 32\), .* add the batch axis with images\[None\]",
        ),
        (
            lambda x: x[..., :28],
            ValueError,
            r"shape \(2, 3, 32, 28\), expected \(batch, 3, 32, 32\)",
        ),
        (lambda x: x.movedim(1, -1), ValueError, r"shape \(2, 32, 32, 3\), expected \(batch, 3,"),
        (lambda x: x.byte(), TypeError, r"dtype torch.uint8, expected floating-point .* / 255"),
        (lambda x: x.byte().numpy(), TypeError, "dtype torch.uint8"),
        (lambda x: "photo.png", TypeError, "images is a str, expected a tensor"),
        (lambda x: x / 0, ValueError, "NaN or infinite"),
    ],
)
def test_images_that_the_model_cannot_take_are_refused_in_a_sentence(build, change, error, message):
    model = build()
    with unchanged(model), pytest.raises(error, match=message):
        init_as_convolution(model, images=change(images()))


@pytest.mark.parametrize("build", [relpos, plain])
def test_arrays_and_other_precisions_are_taken_as_they_are_meant(build):
    expected = init_as_convolution(build(), images=images())
    array = np.asarray(images(), dtype=np.float64)
    assert str(init_as_convolution(build(), images=array)) == str(expected)
    model = build().to(torch.bfloat16)
    context = contextlib.nullcontext() if build is relpos else warnings.catch_warnings()
    with context:
        report = init_as_convolution(model, images=images())
    assert min(layer.effect for layer in report.layers) > 0.001
