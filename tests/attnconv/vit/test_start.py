"""Tests of vision transformers started as convolutions, against timm's own forward pass."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from helpers.encodings import quadratic_attention
from helpers.models import unchanged
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attnconv import init_as_convolution
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.attention import convolution
from attnconv.theory.theorem1 import softness_bound
from attnconv.vit.absolute import plain_model
from attnconv.vit.biases import PREFIX_MARGIN, biased_layers
from attnconv.vit.capture import attention_of
from attnconv.vit.start import kernel_offsets, mass_on_offsets, zero_queries

timm = pytest.importorskip("timm")

#: Without LayerScale, with which a start has no effect.
SMALL = {"img_size": 80, "init_values": 0.0}
FAMILIES = {
    "bias": ("vit_relpos_small_patch16_224", SMALL | {"rel_pos_type": "bias"}),
    "mlp": ("vit_relpos_small_patch16_224", SMALL),
    "query norm": ("vit_relpos_small_patch16_224", SMALL | {"qk_norm": True}),
    "class token": ("vit_relpos_base_patch16_cls_224", SMALL),
    "shared": ("vit_srelpos_small_patch16_224", SMALL),
    "swin": ("swin_tiny_patch4_window7_224", {}),
    "beit": ("beit_base_patch16_224", {"img_size": 80}),
    "maxvit": ("maxvit_tiny_tf_224", {"img_size": 224}),
    "coatnet": ("coatnet_nano_rw_224", {"img_size": 128}),
    "coatnet, mlp": ("coatnet_rmlp_nano_rw_224", {"img_size": 128}),
}


def small(name):
    model, options = FAMILIES[name]
    return timm.create_model(model, pretrained=False, num_classes=10, **options).eval()


def attention_in_forward(model, images):
    """The probabilities that timm's own forward pass gives to `attn_drop`, by layer."""
    found = {}
    hooks = []
    for name, module in model.named_modules():
        if hasattr(module, "attn_drop"):
            module.fused_attn = False
            hooks.append(
                module.attn_drop.register_forward_hook(
                    lambda _, inputs, output, name=name: found.__setitem__(name, inputs[0])
                )
            )
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_attention_is_the_quadratic_encodings(family):
    """In timm's forward pass on an image, at every query of every window without a mask."""
    torch.manual_seed(0)
    model = small(family)
    size = FAMILIES[family][1].get("img_size", 224)
    report = init_as_convolution(model, 3, alpha=2.0)
    found = attention_in_forward(model, torch.randn(1, 3, size, size))
    assert [layer.name for layer in report.layers] == list(found)
    for layer in report.layers:
        height, width = layer.grid
        maps = found[layer.name][0].double()  # the first window, which no mask cuts
        prefix = maps.shape[-1] - height * width
        to_prefix = maps[:, prefix:, :prefix].sum(dim=-1)
        assert float(to_prefix.max() if prefix else 0) < 1e-6
        expected = quadratic_attention(layer.offsets, 2.0, height, width)
        assert (maps[:, prefix:, prefix:] - expected).abs().max() < 1e-6
        as_maps = expected.unflatten(2, layer.grid).unflatten(1, layer.grid)
        torch.testing.assert_close(
            layer.fidelity, mass_on_offsets(as_maps, layer.offsets), atol=1e-6, rtol=0
        )


def relpos(kind, prefix_tokens=0):
    """timm's attention with a relative position bias of a class in `timm.layers`."""
    from timm.models.vision_transformer_relpos import RelPosAttention

    def build(heads, side):
        bias = partial(
            getattr(timm.layers, kind), window_size=(side, side), prefix_tokens=prefix_tokens
        )
        return RelPosAttention(2 * heads, num_heads=heads, rel_pos_cls=bias)

    return build


def maxxvit(name, kind, head_first):
    """The attention of MaxViT and CoAtNet, which is `name` in timm's `maxxvit`."""

    def build(heads, side):
        bias = partial(getattr(timm.layers, kind), window_size=(side, side))
        attention = getattr(timm.models.maxxvit, name)
        return attention(2 * heads, dim_head=2, head_first=head_first, rel_pos_cls=bias)

    return build


#: For each form of attention with a position bias, a layer with heads of two dimensions.
LAYERS = {
    "bias": relpos("RelPosBias"),
    "mlp": relpos("RelPosMlp"),
    "class token": relpos("RelPosBias", prefix_tokens=1),
    "mlp, class token": relpos("RelPosMlp", prefix_tokens=1),
    "swin": lambda heads, side: timm.models.swin_transformer.WindowAttention(
        2 * heads, heads, window_size=side
    ),
    "beit": lambda heads, side: timm.models.beit.Attention(
        2 * heads, heads, qkv_bias=True, window_size=(side, side)
    ),
    "maxvit, tf": maxxvit("Attention2d", "RelPosBiasTf", True),
    "coatnet": maxxvit("AttentionCl", "RelPosBias", True),
    "coatnet, mlp": maxxvit("Attention2d", "RelPosMlp", False),
}
WITH_CLASS_TOKEN = ("class token", "mlp, class token", "beit")


@torch.no_grad()
def set_values(attention, W):
    """Set identity values and the matrices W `(N_h, 2, D)` of the heads; remove the biases."""
    heads = len(W)
    weights = attention.qkv.weight.flatten(1)  # a view, also of a convolution's weight
    first = getattr(attention, "head_first", False)
    by_head = weights.view(heads, 3, 2, -1)[:, 2] if first else weights.view(3, heads, 2, -1)[2]
    by_head.zero_()
    by_head[:, :, :2] = torch.eye(2)
    attention.proj.weight.copy_(W.flatten(0, 1).T.view_as(attention.proj.weight))
    for bias in (attention.qkv.bias, attention.proj.bias, getattr(attention, "v_bias", None)):
        if bias is not None:
            bias.zero_()


def run_on_image(attention, X, with_class_token):
    """The layer's output on an image `(H, W, D)`, in whichever layout the layer takes."""
    if isinstance(attention.qkv, torch.nn.Conv2d):
        return attention(X.movedim(-1, 0).unsqueeze(0))[0].movedim(0, -1)
    tokens = X.flatten(0, 1).unsqueeze(0)
    if with_class_token:
        tokens = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], dim=1)
    return attention(tokens)[0, int(with_class_token) :].unflatten(0, X.shape[:2])


@settings(max_examples=60, deadline=None)
@given(
    side=st.integers(4, 8),
    heads=st.sampled_from((1, 2, 4, 9, 12, 25)),
    kernel_size=st.integers(1, 4),
    alpha=st.floats(0.2, 40),
    kind=st.sampled_from(sorted(LAYERS)),
)
def test_a_started_layer_is_a_convolution_within_the_bound(side, heads, kernel_size, alpha, kind):
    """With identity values and a kernel for the heads' offsets in the projection (Theorem 1)."""
    torch.manual_seed(side)
    channels = 2  # of the image; each head carries them in its own dimensions
    attention = LAYERS[kind](heads, side).eval()
    model = torch.nn.Sequential(attention)
    offsets = init_as_convolution(model, kernel_size, alpha).layers[0].offsets
    W = torch.randn(heads, channels, 2 * heads)  # one matrix for each head
    set_values(attention, W)
    X = torch.rand(side, side, channels) * 2 - 1
    padded = torch.nn.functional.pad(X, (0, 2 * heads - channels))
    with torch.no_grad():
        output = run_on_image(attention, padded, kind in WITH_CLASS_TOKEN)
    # the convolution whose kernel sums the matrices of the heads at each offset
    reach = kernel_size
    kernel = torch.zeros(2 * reach + 1, 2 * reach + 1, channels, 2 * heads)
    for (row, column), matrix in zip(offsets.tolist(), W, strict=True):
        kernel[row + reach, column + reach] += matrix
    expected = convolution(X, kernel)
    inside = [
        (i, j)
        for i in range(side)
        for j in range(side)
        if all(0 <= i + r < side and 0 <= j + c < side for r, c in offsets.tolist())
    ]
    bound = softness_bound(W.unsqueeze(1), alpha, largest=1.0)
    for i, j in inside:
        difference = (output[i, j] - expected[i, j]).abs().double()
        assert bool((difference <= bound + 1e-4).all())


def test_heads_take_offsets_from_the_centre_and_layers_share_the_kernel():
    nine = {(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    first, second, third = (
        [tuple(o) for o in layer.tolist()] for layer in kernel_offsets(3, (3, 3, 3))
    )
    assert first[0] == (0, 0) and {*first, *second, *third} == nine
    (twelve,) = kernel_offsets(3, (12,))
    assert {tuple(offset) for offset in twelve.tolist()} == nine


def test_the_start_changes_nothing_but_biases_and_queries():
    model = small("bias")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    init_as_convolution(model, 3, layers=(0, -1))
    after = model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    last = len(model.blocks) - 1
    ends = ("attn.rel_pos.relative_position_bias_table", "attn.qkv.weight")
    assert changed == {f"blocks.{n}.{end}" for n in (0, last) for end in ends}
    weight = after["blocks.0.attn.qkv.weight"]
    dim = len(weight) // 3
    assert not weight[:dim].any()
    torch.testing.assert_close(weight[dim:], before["blocks.0.attn.qkv.weight"][dim:])


def test_queries_can_be_learned_afterwards():
    model = small("bias").train()
    init_as_convolution(model)
    model(torch.randn(2, 3, 80, 80)).square().sum().backward()
    gradient = model.blocks[0].attn.qkv.weight.grad
    assert gradient[: len(gradient) // 3].abs().max() > 0
    assert model.blocks[0].attn.rel_pos.relative_position_bias_table.grad.abs().max() > 0


def test_the_first_training_step_keeps_the_start_of_normalised_queries():
    """Tiny queries in front of a LayerNorm would become as large as any others."""
    torch.manual_seed(0)
    model = small("query norm").train()
    before = init_as_convolution(model, layers=[0]).layers[0].fidelity
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    model(torch.randn(2, 3, 80, 80)).square().sum().backward()
    optimiser.step()
    assert model.blocks[0].attn.q_norm.weight.abs().max() > 0, "the queries are trained"
    images = torch.randn(2, 3, 80, 80)
    [after] = attention_of(model, images, [0])
    lost = before - mass_on_offsets(after.maps.double(), kernel_offsets(3, (6,))[0])
    assert lost.abs().max() < 0.01


def test_a_query_norm_without_weights_is_refused():
    model = small("query norm")
    model.blocks[1].attn.q_norm = nn.LayerNorm(64, elementwise_affine=False)
    with pytest.raises(TypeError, match=r"blocks.1.attn: the normalisation of its queries has no"):
        init_as_convolution(model)


def test_queries_of_head_first_layers_are_those_of_each_head():
    from timm.models.maxxvit import Attention2d

    attention = Attention2d(8, dim_head=4, head_first=True)
    zero_queries(attention)
    rows = attention.qkv.weight.flatten(1).abs().sum(dim=1).view(2, 3, 4)
    assert not rows[:, 0].any() and bool((rows[:, 1:] > 0).all())


def test_a_class_token_takes_no_part():
    model = small("class token")
    init_as_convolution(model)
    assert all(
        layer.probabilities().sum(dim=(-2, -1)).min() > 0.999 for layer in biased_layers(model)
    )
    assert PREFIX_MARGIN > 14  # e^-14 is about 1e-6


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("swinv2_tiny_window8_256", r"layers.0.blocks.0.attn \(WindowAttention\): .*sigmoid"),
        ("gcvit_xxtiny", "WindowAttentionGlobal"),
        ("levit_128s", r"stages.0.blocks.0.attn \(Attention\): .*distance along each axis"),
        ("mvitv2_tiny", r"attn \(MultiScaleAttention\): .*products with the query"),
        ("resnet18", "ResNet"),
    ],
)
def test_other_models_are_refused_by_name(name, expected):
    model = timm.create_model(name, pretrained=False)
    with unchanged(model), pytest.raises(TypeError, match=expected):
        init_as_convolution(model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rel_pos_type": "mlp-swin"}, "blocks.0.attn: its bias passes through a sigmoid"),
        ({"rel_pos_dim": 4}, "blocks.0.attn: the perceptron of its bias has 4 hidden units"),
    ],
)
def test_perceptrons_that_cannot_hold_the_scores_are_refused(options, message):
    from timm.models.vision_transformer_relpos import VisionTransformerRelPos

    model = VisionTransformerRelPos(
        img_size=32, patch_size=4, embed_dim=18, depth=1, num_heads=9, **options
    )
    with pytest.raises(TypeError, match=message):
        init_as_convolution(model)


@pytest.mark.slow
@pytest.mark.parametrize("module", timm.models.list_modules())
def test_every_family_of_timm_can_be_started_or_is_refused_by_name(module):
    """Without numbers: on torch's meta device, only the structure is looked at."""
    names = timm.list_models(module=module)
    for name in {names[0], names[-1]} if names else ():
        try:
            with torch.device("meta"):
                model = timm.create_model(name, pretrained=False)
        except NotImplementedError as error:  # by older versions of torch
            pytest.skip(f"{name} cannot be built without numbers: {error}")
        try:
            assert plain_model(model) or biased_layers(model)
        except TypeError as error:
            refused = str(error)
            kind = re.match(r"cannot start (\S+)|(\w+) has no attention layer", refused)
            assert kind, refused
            known = {"the", type(model).__name__, *dict(model.named_modules())}
            assert (kind[1] or kind[2]).rstrip(":") in known, refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"kernel_size": 6},
            "kernel_size is 6, .* 1 to 5, the smaller side of blocks.0.attn in tokens; `layers`",
        ),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"layers": (12,)}, "layers has 12"),
        ({"layers": ()}, r"layers is \(\) and selects no layer; expected a list of numbers"),
        ({"layers": 0}, r"layers is 0, expected a list of numbers such as \[0\]"),
        ({"layers": [0, -12]}, "names a layer twice"),
        ({"layers": [0.0]}, r"layers has 0.0; expected a list of numbers"),
        ({"layers": [True, False]}, r"layers has True; expected a list of numbers"),
        ({"layers": ["0"]}, r"layers has '0'; expected a list of numbers"),
        ({"layers": "0"}, r"layers is '0', expected a list of numbers"),
        ({"layers": slice(12, None)}, r"layers is slice.* selects no layer"),
        ({"kernel_size": True}, "kernel_size is True, expected a whole number"),
    ],
)
def test_bad_arguments_leave_the_model_as_it_was(arguments, message):
    model = small("bias")
    with unchanged(model), pytest.raises(ValueError, match=message):
        init_as_convolution(model, **arguments)


def test_a_start_that_fails_on_the_way_leaves_the_model_as_it_was():
    """Infinite scores are noticed only when the heads are measured, after they were written."""
    model = small("mlp")
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    with unchanged(model), pytest.raises(ValueError, match="NaN"):
        init_as_convolution(model, alpha=1e38)
    assert [module.p for module in model.modules() if isinstance(module, nn.Dropout)] == rates
    assert any(rates), "the start sets the perceptron's dropout to zero"


def test_layers_that_share_a_bias_start_together():
    model = timm.create_model("vit_srelpos_small_patch16_224", depth=3, **SMALL)
    names = [layer.name for layer in init_as_convolution(model).layers]
    with (
        unchanged(model),
        pytest.raises(ValueError, match=f"{names[0]} shares its bias .* choose all of"),
    ):
        init_as_convolution(model, alpha=3.0, layers=[0])


def test_a_shared_bias_is_found_inside_a_wrapper():
    """A wrapper with two models, each of which shares one bias among its layers."""
    models = [
        timm.create_model("vit_srelpos_small_patch16_224", depth=2, **SMALL) for _ in range(3)
    ]
    report = init_as_convolution(nn.ModuleList(models[:2]), 3)
    assert [layer.name for layer in report.layers] == [
        f"{model}.blocks.{block}.attn" for model in range(2) for block in range(2)
    ]
    assert all(layer.fidelity.min() > 0.5 for layer in report.layers)
    init_as_convolution(models[2], 3)
    wrapped, alone = (model.shared_rel_pos.get_bias() for model in models[::2])
    assert torch.equal(wrapped, alone)


def test_numbers_of_numpy_are_numbers():
    report = init_as_convolution(small("bias"), np.int64(3), np.float32(2), [np.int64(0)])
    assert report.alpha == 2 and len(report.layers) == 1


def test_a_model_without_weights_is_refused():
    with torch.device("meta"):
        model = timm.create_model("vit_relpos_small_patch16_224", pretrained=False)
    with pytest.raises(ValueError, match="on the meta device"):
        init_as_convolution(model)


def test_the_report_prints_a_line_for_each_layer():
    report = init_as_convolution(small("bias"), 3)
    lines = str(report).splitlines()
    assert len(lines) == 2 + len(report.layers) and "blocks.0.attn" in lines[2]
    assert report.layers[0].residual > 0.9  # six heads cannot be nine offsets (Lemma 3)


def test_one_encoding_for_all_ways():
    """The table that timm indexes by q - k holds the quadratic encoding's scores of k - q."""
    model = small("bias")
    (offsets, *_) = (layer.offsets for layer in init_as_convolution(model, 3).layers)
    table = model.blocks[0].attn.rel_pos.relative_position_bias_table.detach()
    scores = QuadraticEncoding.from_alpha(offsets.float(), 2.0).scores(torch.tensor([2, -1]))
    torch.testing.assert_close(table[(4 - 2) * 9 + (4 + 1)], scores)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vit_relpos_small_patch16_224", {"init_values": 0.0}),
        ("vit_tiny_patch16_224", {}),
        ("vit_small_patch16_rope_224", {"init_values": 1.0}),
    ],
)
def test_an_optimizer_made_before_the_start_trains_the_same_parameters(name, options):
    model = timm.create_model(name, img_size=64, depth=1, **options)
    before = dict(model.named_parameters())
    init_as_convolution(model)
    after = dict(model.named_parameters())
    assert before.keys() == after.keys()
    assert all(after[key] is parameter for key, parameter in before.items())
