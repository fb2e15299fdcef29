"""Theorem 1 against torch's convolutions, over everything they can be; and the converse."""

import copy
import math
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from helpers.encodings import kinds
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune

from attnconv import (
    attention_probabilities,
    attention_to_conv,
    build_model,
    conv_to_attention,
    convert_network,
    hard_alpha,
)
from attnconv.checks import largest_gap
from attnconv.theory import attention
from attnconv.theory.encodings import QuadraticEncoding, RelativeBias
from attnconv.theory.layers import PositionAttention

CONFIGURATIONS = 2500
BOUND = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
tried = set()


@st.composite
def convolutions(draw):
    """A random convolution, and an input that it accepts."""
    axes = draw(st.sampled_from([1, 2, 2]))
    per_axis = lambda strategy: tuple(draw(strategy) for _ in range(axes))  # noqa: E731
    kernel, dilation = per_axis(st.integers(1, 7)), per_axis(st.integers(1, 3))
    mode = draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
    padding = draw(st.sampled_from(["valid", "same", "numbers", "numbers"]))
    stride = (1,) * axes if padding == "same" else per_axis(st.integers(1, 4))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    added = [(r - 1) // 2 if padding == "same" else 0 for r in reach]
    largest = [r // 2 for r in reach] if padding == "same" else added
    if padding == "numbers":
        padding = added = largest = per_axis(st.integers(0, 4))
    sizes = tuple(
        max(1, r - 2 * a, p + 1) + draw(st.integers(0, 4))
        for r, a, p in zip(reach, added, largest, strict=True)
    )
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    options = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "padding_mode": mode,
    }
    options["bias"] = draw(st.booleans())
    dtype = draw(st.sampled_from(list(BOUND)))
    batch = draw(st.sampled_from([(), (1,), (2,)]))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    conv = (nn.Conv1d if axes == 1 else nn.Conv2d)(*channels, kernel, **options).to(dtype)
    return conv, torch.randn(*batch, channels[0], *sizes).to(dtype)


def scale_of(conv, x):
    """What the terms of the sum add up to without their signs: rounding errors are relative to
    this."""
    weights = {name: parameter.abs().double() for name, parameter in conv.named_parameters()}
    return torch.func.functional_call(conv, weights, x.abs().double()).abs().max().item() or 1.0


@settings(max_examples=CONFIGURATIONS, deadline=None)
@given(convolutions())
def any_convolution(case):
    conv, x = case
    with torch.no_grad():
        theirs, ours = conv(x), conv_to_attention(conv)(x)
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        # some processors' half-precision convolutions are wrong for some shapes, so the same
        # weights in float64 are the reference
        theirs = copy.deepcopy(conv).double()(x.double())
        assert (ours.double() - theirs).abs().max().item() <= BOUND[x.dtype] * scale_of(conv, x), (
            conv
        )
    tried.add((repr(conv), x.shape, x.dtype))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_any_convolution():
    any_convolution()
    assert len(tried) >= 2000, "so many different convolutions and inputs must have been compared"


@pytest.mark.parametrize("alpha", [None, 0.3, 30.0])
def test_the_layer_is_the_literal_equation_4(alpha):
    conv = nn.Conv2d(
        4, 6, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2), groups=2
    ).double()
    layer = conv_to_attention(conv, alpha)
    x = torch.randn(2, 4, 7, 8).double()
    padded = F.pad(x, (1, 1, 2, 2)).movedim(1, -1)  # (B, H, W, C)
    height, width = padded.shape[1:3]
    A = layer.encoding.position_scores(height, width).reshape(6, height * width, height * width)
    W_out = torch.eye(6).double().repeat(6, 1)
    literal = attention.multi_head_self_attention(
        A, padded.flatten(1, 2), layer.value_matrices(), W_out, layer.bias
    )
    # crop what the kernel cannot centre on, keep every 2nd row
    literal = literal.unflatten(1, (height, width))[:, 1:-1:2, 0:-2]
    assert largest_gap(layer(x).detach(), literal.movedim(-1, 1).detach()) < 1e-12


def test_a_soft_head_is_not_the_convolution_and_the_gap_falls_with_alpha():
    conv, x = nn.Conv2d(2, 3, 3, padding=1).double(), torch.randn(1, 2, 9, 9).double()
    gaps = [
        largest_gap(conv_to_attention(conv, alpha)(x).detach(), conv(x).detach())
        for alpha in (1.0, 5.0, 10.0, 20.0)
    ]
    assert gaps[0] > 0.1 and all(later < earlier / 10 for earlier, later in pairwise(gaps))


@pytest.mark.parametrize("dtype", list(BOUND))
def test_hard_alpha_is_one_hot(dtype):
    alpha = hard_alpha(dtype)
    encoding = QuadraticEncoding.from_alpha(torch.tensor([[1.0, -2.0]]).to(dtype), alpha)
    p = attention_probabilities(encoding, 9, 9)[0, 4, 4]
    assert p.max() == 1 and p.count_nonzero() == 1 and p[5, 2] == 1
    smallest = (
        math.log(torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps)
        if dtype != torch.float64
        else -744.44
    )
    assert alpha - 1 <= math.log(2) - smallest <= alpha


def test_conversion_keeps_what_a_module_has():
    conv = nn.Conv2d(2, 3, 3).eval().requires_grad_(False)
    before = conv.weight.clone()
    layer = conv_to_attention(conv)
    assert not layer.training and not any(p.requires_grad for p in layer.parameters())
    with torch.no_grad():
        layer.weight.zero_()
    assert torch.equal(conv.weight, before)
    trainable = conv_to_attention(nn.Conv2d(2, 3, 3))
    trainable(torch.randn(1, 2, 5, 5)).sum().backward()
    assert trainable.weight.grad is not None and trainable.encoding.centers.grad is None


def test_gradients_are_those_of_the_convolution():
    conv = nn.Conv2d(2, 4, 3, padding=1, groups=2, stride=2).double()
    layer, x = conv_to_attention(conv), torch.randn(1, 2, 6, 7).double().requires_grad_()
    weight = torch.randn(1, 4, 3, 4).double()
    by_conv = torch.autograd.grad((conv(x) * weight).sum(), [x, conv.bias])
    by_attention = torch.autograd.grad((layer(x) * weight).sum(), [x, layer.bias])
    assert all(largest_gap(a, b) < 1e-12 for a, b in zip(by_attention, by_conv, strict=True))


def whole_numbered():
    conv = nn.Conv2d(1, 1, 1, bias=False)
    conv.weight = nn.Parameter(torch.ones(1, 1, 1, 1, dtype=torch.int8), requires_grad=False)
    return conv


class Customised(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.ConvTranspose2d(2, 2, 3), "transposed"),
        (nn.LazyConv2d(2, 3), "lazy"),
        (nn.Conv3d(1, 1, 1), "not a 1D or 2D"),
        (nn.Linear(2, 2), "not a 1D or 2D"),
        (Customised(1, 1, 1), "something else"),
        (whole_numbered(), "int8"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_the_reason(module, reason):
    with pytest.raises(TypeError, match=reason):
        conv_to_attention(module)
    if not isinstance(module, nn.Linear):
        network = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sequential(module))
        with pytest.raises(TypeError, match=rf"1\.0 .*{reason}"):
            convert_network(network)
        assert type(network[0]) is nn.Conv2d


def test_an_empty_batch_stays_empty():
    assert conv_to_attention(nn.Conv2d(3, 4, 3, padding=1))(torch.zeros(0, 3, 8, 8)).shape == (
        0,
        4,
        8,
        8,
    )


def test_weights_made_by_a_hook_are_refused():
    model = nn.Sequential(nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 2, 3)))
    x = torch.randn(1, 2, 5, 5)
    assert largest_gap(convert_network(model)(x).detach(), model(x).detach()) < 1e-5
    pruned = prune.random_unstructured(nn.Conv2d(2, 2, 3), "weight", 0.5)
    with pytest.raises(TypeError, match=r"cannot convert 0 \(Conv2d\): a hook changes it"):
        convert_network(nn.Sequential(pruned))


def test_conversion_draws_no_random_numbers():
    conv, state = nn.Conv2d(1, 1, 3), torch.random.get_rng_state()
    conv_to_attention(conv)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("alpha", [float("nan"), -1, 0, float("inf"), 1e39])
def test_bad_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match="positive finite number"):
        conv_to_attention(nn.Conv2d(1, 1, 3), alpha)


def test_bad_inputs_are_refused():
    layer = conv_to_attention(nn.Conv2d(3, 4, 5))
    with pytest.raises(ValueError, match=r"expected \(\[batch,\] 3, height, width\)"):
        layer(torch.randn(1, 4, 8, 8))
    with pytest.raises(ValueError, match="kernel's reach of 5"):
        layer(torch.randn(1, 3, 4, 8))
    with pytest.raises(TypeError, match="expected one of"):
        hard_alpha(torch.int64)
    with pytest.raises(TypeError, match="the layer of a Conv1d, expected one for images"):
        attention_probabilities(conv_to_attention(nn.Conv1d(1, 1, 3)), 4, 4)


# --- networks -------------------------------------------------------------------------------------


def test_resnet18_cifar_form():
    model = build_model("resnet18").eval()
    recast = convert_network(model)
    assert not any(isinstance(m, nn.modules.conv._ConvNd) for m in recast.modules())
    assert any(isinstance(m, nn.Conv2d) for m in model.modules())
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        logits, ours = model(x), recast(x)
    assert largest_gap(ours, logits) < 1e-4
    assert torch.equal(ours.argmax(1), logits.argmax(1))


RESNET = """
import resource, torch, torchvision, attnconv
torch.manual_seed(0)
model = torchvision.models.resnet18().eval()
x = torch.randn(1, 3, 224, 224)
with torch.no_grad():
    logits, ours = model(x), attnconv.convert_network(model)(x)
print(float((ours - logits).abs().max()), bool(ours.argmax() == logits.argmax()))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
def test_resnet18_at_224_pixels_in_less_than_4_gb():
    run = subprocess.run([sys.executable, "-c", RESNET], capture_output=True, text=True, check=True)
    gap, same, peak = run.stdout.split()
    assert float(gap) < 1e-4 and same == "True"
    assert float(peak) < 4, f"peak memory {peak} GiB"


def test_networks_keep_sharing_and_a_lone_convolution_is_a_network():
    shared = nn.Conv2d(3, 3, 3, padding=1)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    recast = convert_network(model)
    assert recast[0] is recast[2] and model[0] is shared
    x = torch.randn(1, 3, 6, 6)
    assert largest_gap(recast(x).detach(), model(x).detach()) < 1e-5
    assert largest_gap(convert_network(shared)(x).detach(), shared(x).detach()) < 1e-5


# --- the converse ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(kinds()))
@settings(max_examples=15, deadline=None)
@given(height=st.integers(1, 6), width=st.integers(1, 7), seed=st.integers(0, 2**31))
def test_the_converse_is_exact(name, height, width, seed):
    torch.manual_seed(seed)
    encoding = (
        RelativeBias(3 * torch.randn(4, 2 * height - 1, 2 * width - 1))
        if name == "bias"
        else kinds()[name]
    )
    layer = PositionAttention(encoding, 3, 5).double()
    X = torch.randn(2, height, width, 3).double()
    dense = layer.value(
        torch.einsum("hijkl,bkld->bijhd", attention_probabilities(layer, height, width), X).flatten(
            -2
        )
    )
    assert largest_gap(attention_to_conv(layer, height, width)(X).detach(), dense.detach()) < 1e-12


def test_the_converse_refuses_what_it_cannot_do():
    sharp = PositionAttention(
        QuadraticEncoding.from_alpha(torch.tensor([[3.0, 0.0]]), alpha=100.0), 3, 4
    )
    with pytest.raises(ValueError, match="border factor of head 1"):
        attention_to_conv(sharp, 8, 8)
    undefined = PositionAttention(RelativeBias(torch.full((1, 9, 9), torch.nan)), 3, 4)
    with pytest.raises(ValueError, match="border factor of head 1 falls to nan"):
        attention_to_conv(undefined, 5, 5)
    with pytest.raises(TypeError, match="expected a PositionAttention layer"):
        attention_to_conv(nn.Linear(2, 2), 8, 8)
    module = attention_to_conv(PositionAttention(QuadraticEncoding(4), 3, 4), 5, 6)
    with pytest.raises(ValueError, match=r"expected \(batch, 5, 6, channels\)"):
        module(torch.randn(1, 6, 5, 3))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("channels", [4, 96])
def test_both_ways_give_the_same_numbers_and_gradients(channels, groups):
    """One-hot heads as shifts of the image, and as heads of any width."""
    conv = nn.Conv2d(channels, 8, (3, 2), stride=(2, 1), dilation=(1, 2), groups=groups).double()
    layer = conv_to_attention(conv)
    x = torch.randn(2, channels, 9, 8).double().requires_grad_()
    found = {}
    for way in ("shifted", "dense"):
        corners = layer.corners(x.shape[2:])
        y = layer.by_shifts(x, corners) if way == "shifted" else layer.along_axes(x)
        found[way] = y, *torch.autograd.grad(y.square().sum(), [x, layer.weight])
    assert all(map(lambda a, b: largest_gap(a, b) < 1e-12, *found.values()))


def test_soft_and_trained_heads_are_not_taken_for_shifts():
    conv, x = nn.Conv2d(2, 3, 3, padding=1), torch.randn(1, 2, 8, 8)
    assert conv_to_attention(conv).corners((10, 10)) is not None
    assert conv_to_attention(conv, alpha=2.0).corners((10, 10)) is None
    layer = conv_to_attention(conv)
    layer(x)
    with torch.no_grad():
        layer.encoding.centers[4] += 0.5  # half-way between two pixels: what was known is forgotten
    assert layer.corners((10, 10)) is None and largest_gap(layer(x), conv(x)) > 0.01
    layer = conv_to_attention(conv)
    layer.encoding.requires_grad_()
    layer(x).sum().backward()
    assert layer.encoding.centers.grad is not None


def test_an_edit_that_counts_as_no_new_version_is_seen():
    conv, x = nn.Conv2d(2, 3, 3, padding=1), torch.randn(1, 2, 8, 8)
    layer = conv_to_attention(conv)
    assert largest_gap(layer(x), conv(x)) < 1e-5
    layer.encoding.centers.data[4] += 0.5
    assert layer.corners((10, 10)) is None and largest_gap(layer(x), conv(x)) > 0.01


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_no_more_than_one_product_does(dtype):
    conv, x = nn.Conv2d(64, 32, 7, bias=False).to(dtype), torch.randn(1, 64, 24, 24).to(dtype)
    layer, exact = conv_to_attention(conv), copy.deepcopy(conv).double()(x.double())
    shifted, separable = (
        (y.double() - exact).abs().mean() for y in (layer(x), layer.along_axes(x))
    )
    assert shifted <= 1.2 * separable
