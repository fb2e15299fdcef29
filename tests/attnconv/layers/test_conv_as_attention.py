"""Theorem 1 as a layer against torch's convolutions, over everything they can be."""

import copy
import pickle
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from helpers.memory import run_alone
from helpers.ways import WAYS, by_axes
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attnconv import (
    attention_probabilities,
    conv_to_attention,
    convert_back,
    convert_network,
    cost_of,
)
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory import attention
from attnconv.theory.theorem1 import softness_bound, sufficient_alpha
from companion.gaps import largest_gap

CONFIGURATIONS = 2500
BOUND = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
tried = set()


@st.composite
def convolutions(draw):
    """A random convolution, and an input that it accepts."""
    axes = draw(st.sampled_from([1, 2, 2]))
    per_axis = lambda strategy: tuple(draw(strategy) for _ in range(axes))  # noqa: E731
    kernel = per_axis(st.integers(1, 7))
    dilation = per_axis(st.integers(1, 3))
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
    """Return the sum of the terms' absolute values, the scale of rounding errors."""
    weights = {name: parameter.abs().double() for name, parameter in conv.named_parameters()}
    return torch.func.functional_call(conv, weights, x.abs().double()).abs().max().item() or 1.0


@settings(max_examples=CONFIGURATIONS, deadline=None)
@given(convolutions())
def any_convolution(case):
    conv, x = case
    with torch.no_grad():
        theirs = conv(x)
        layer = conv_to_attention(conv)
        ours = layer(x)
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert ours.is_contiguous()
        others = [by_axes(layer, x, way) for way in WAYS]
        # some processors' half-precision convolutions are wrong for some shapes, so the same
        # weights in float64 are the reference
        theirs = copy.deepcopy(conv).double()(x.double())
        bound = BOUND[x.dtype] * scale_of(conv, x)
        for found in (ours, *others):
            assert (found.double() - theirs).abs().max().item() <= bound, conv
    tried.add((repr(conv), x.shape, x.dtype))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_any_convolution():
    any_convolution()
    assert len(tried) >= 1800, "so many different convolutions and inputs must have been compared"


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
    conv = nn.Conv2d(2, 3, 3, padding=1).double()
    x = torch.randn(1, 2, 9, 9).double()
    gaps = [
        largest_gap(conv_to_attention(conv, alpha)(x).detach(), conv(x).detach())
        for alpha in (1.0, 5.0, 10.0, 20.0)
    ]
    assert gaps[0] > 0.1 and all(later < earlier / 10 for earlier, later in pairwise(gaps))


TOGETHER = 10  # convolutions of one example, as groups of one


@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(*[st.integers(1, 4)] * 6),
    alpha=st.floats(0.01, 40.0),
    largest=st.floats(0.01, 100.0),
)
def the_bound_holds(seed, sizes, alpha, largest):
    torch.manual_seed(seed)
    dim_in, dim_out, *kernel, height, width = sizes
    channels = TOGETHER * dim_in, TOGETHER * dim_out
    conv = nn.Conv2d(*channels, kernel, padding="same", groups=TOGETHER).double()
    # sums of products, whose rounding is not the heads' softness
    rounding = 1e-12 * (1 + largest * conv.weight.abs().sum().item())
    x = largest * torch.randn(1, channels[0], height, width).double().sign()
    if seed % 2:
        x *= torch.rand_like(x)
    with torch.no_grad():
        gap = (conv_to_attention(conv, alpha)(x) - conv(x)).abs().amax(dim=(0, 2, 3))
        kernel = conv.weight.permute(2, 3, 1, 0)
        assert (gap <= softness_bound(kernel, alpha, largest) + rounding).all()
        needed = sufficient_alpha(kernel, 1e-3, largest)
        gap = (conv_to_attention(conv, needed)(x) - conv(x)).abs().max()
        assert needed > 0 and gap < 1e-3 + rounding


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_the_bound_on_softness_holds():
    the_bound_holds()


def test_the_bound_on_softness_is_not_vacuous():
    """The largest gap there can be, of one head on a large flat image with one pixel of the other
    sign, is nearly the bound."""
    conv = nn.Conv2d(1, 1, 1, bias=False).double()
    x = torch.ones(1, 1, 9, 9).double()
    x[0, 0, 4, 4] = -1
    gap = (conv_to_attention(conv, 10.0)(x) - conv(x)).abs().max()
    kernel = conv.weight.permute(2, 3, 1, 0)
    bound = softness_bound(kernel, 10.0, 1.0)
    assert 0.99 * bound < gap.detach() <= bound


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
    layer = conv_to_attention(conv)
    x = torch.randn(1, 2, 6, 7).double().requires_grad_()
    weight = torch.randn(1, 4, 3, 4).double()
    by_conv = torch.autograd.grad((conv(x) * weight).sum(), [x, conv.bias])
    by_attention = torch.autograd.grad((layer(x) * weight).sum(), [x, layer.bias])
    assert all(largest_gap(a, b) < 1e-12 for a, b in zip(by_attention, by_conv, strict=True))


def test_the_default_device_does_not_matter():
    """As after `torch.set_default_device("cuda")`; "meta" stands for a device other than x's."""
    layer = conv_to_attention(nn.Conv2d(2, 3, 3, padding=1))
    x = torch.randn(1, 2, 6, 6)
    with torch.device("meta"):
        there = layer(x)
    assert torch.equal(there, layer(x))


def test_soft_heads_can_be_trained_after_inference_mode():
    layer = conv_to_attention(nn.Conv2d(2, 3, 3, padding=1), alpha=2.0)
    x = torch.randn(1, 2, 6, 6)
    with torch.inference_mode():
        before = layer(x)
    after = layer(x.requires_grad_())
    after.sum().backward()
    assert torch.equal(before, after) and x.grad.abs().sum() > 0


LAST = torch.channels_last


@pytest.mark.parametrize("alpha", [None, 2.0])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("options", "x"),
    [
        ({}, torch.randn(1, 4, 9, 7)),
        ({}, torch.randn(3, 4, 9, 7)),
        ({}, torch.randn(1, 4, 9, 7).to(memory_format=LAST)),
        ({}, torch.randn(3, 4, 9, 7).to(memory_format=LAST)),
        ({}, torch.randn(3, 4, 11, 9).to(memory_format=LAST)[:, :, 2:, 2:]),
        ({}, torch.randn(9, 7, 4).permute(2, 0, 1)),  # a picture, rows first
        ({"padding_mode": "circular"}, torch.randn(3, 4, 9, 7).to(memory_format=LAST)),
        ({"in_channels": 1}, torch.randn(3, 1, 9, 7).to(memory_format=LAST)),
        ({"kernel_size": 1, "padding": 0}, torch.randn(1, 4, 1, 1)),
    ],
)
def test_the_output_has_the_strides_of_the_convolutions(options, x, bias, alpha):
    usual = {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "stride": 2, "padding": 1}
    conv = nn.Conv2d(**usual | options, bias=bias)
    layer = conv_to_attention(conv, alpha)
    x = x.requires_grad_()
    outputs = layer(x), *(by_axes(layer, x, way) for way in WAYS)
    assert {output.stride() for output in outputs} == {conv(x).stride()}
    expected = torch.autograd.grad(conv(x).relu_().sum(), x)[0]
    for output in outputs if alpha is None else ():  # and it can be changed in place
        assert largest_gap(torch.autograd.grad(output.relu_().sum(), x)[0], expected) < 1e-5


def test_the_cache_of_a_used_layer_is_not_saved():
    layer = conv_to_attention(nn.Conv1d(1, 1, 9, padding=4), 2.0)
    before = len(pickle.dumps(layer))
    layer(torch.zeros(1, 1, 1000))
    assert layer._known and len(pickle.dumps(layer)) == before
    assert copy.deepcopy(layer)._known is None


def test_a_layer_is_called_with_the_names_of_a_convolution():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return self.conv(input=x)

    network = Network()
    x = torch.randn(2, 3, 8, 8)
    soft = convert_network(network, alpha=2.0)
    assert largest_gap(convert_network(network)(x), network(x)) < 1e-5
    assert largest_gap(convert_back(soft, 8, 8)(x), soft(x)) < 1e-5
    assert cost_of(soft, 8).flops_paper == cost_of(network, 8).flops_paper


@pytest.mark.parametrize("alpha", [None, 2.0])
@pytest.mark.parametrize("groups", [1, 2])
def test_function_transforms(alpha, groups):
    """`torch.func` gives the derivatives of equation (4), whose attention is along the axes."""
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=groups).double()
    layer = conv_to_attention(conv, alpha)
    x = torch.randn(3, 4, 6, 5, dtype=torch.float64)
    weight = layer.weight.detach()

    def loss(weight, x):
        return torch.func.functional_call(layer, {"weight": weight}, x).pow(3).sum()

    def expected(transform, *inputs):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(layer), "shifts", lambda self, sizes: None)
            return transform(*inputs)

    for_each_image = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    several = torch.stack([weight, 2 * weight])
    for transform, inputs in (
        (torch.func.grad(loss, argnums=(0, 1)), (weight, x)),
        (for_each_image, (weight, x)),
        (torch.func.vmap(loss, in_dims=(0, None)), (several, x)),
        (torch.func.hessian(loss), (weight, x[:1])),
        (torch.func.jacfwd(loss, argnums=(0, 1)), (weight, x)),
    ):
        found = transform(*inputs)
        reference = expected(transform, *inputs)
        for ours, theirs in zip(found, reference, strict=True):
            assert largest_gap(ours, theirs) < 1e-12
    assert largest_gap(layer(x), expected(layer, x)) < 1e-12  # no state of a transform is left


def test_an_empty_batch_stays_empty():
    assert conv_to_attention(nn.Conv2d(3, 4, 3, padding=1))(torch.zeros(0, 3, 8, 8)).shape == (
        0,
        4,
        8,
        8,
    )


def test_bad_inputs_are_refused():
    layer = conv_to_attention(nn.Conv2d(3, 4, 5))
    with pytest.raises(ValueError, match=r"expected \(\[batch,\] 3, height, width\)"):
        layer(torch.randn(1, 4, 8, 8))
    with pytest.raises(ValueError, match="the dilated kernel's 5"):
        layer(torch.randn(1, 3, 4, 8))
    with pytest.raises(TypeError, match="the layer of a Conv1d, expected one for images"):
        attention_probabilities(conv_to_attention(nn.Conv1d(1, 1, 3)), 4, 4)


# --- ways to multiply -----------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [None, 20.0, 2.0, 0.1])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("channels", [4, 96])
def test_all_ways_give_the_same_numbers_and_gradients(channels, groups, alpha):
    """Heads as shifts of one, and as heads of any place, whole and in tiles; twice derived."""
    conv = nn.Conv2d(channels, 8, (3, 2), stride=(2, 1), dilation=(1, 2), groups=groups).double()
    layer = conv_to_attention(conv, alpha)
    x = torch.randn(2, channels, 9, 8).double().requires_grad_()
    assert layer.shifts(x.shape[2:]) is not None
    found = {}
    for way in ("shifts", *WAYS):
        y = layer(x) if way == "shifts" else by_axes(layer, x, way)
        first = torch.autograd.grad(y.pow(3).sum(), [x, layer.weight], create_graph=True)
        found[way] = y, *first, *torch.autograd.grad(first[0].square().sum(), [x, layer.weight])
    for other in WAYS:
        assert all(map(lambda a, b: largest_gap(a, b) < 1e-12, found["shifts"], found[other]))


@pytest.mark.parametrize("way", WAYS)
def test_trained_heads_have_the_gradients_of_equation_4(way):
    conv = nn.Conv2d(2, 3, 3, stride=2, padding=1).double()
    layer = conv_to_attention(conv, 3.0)
    layer.encoding.requires_grad_()
    with torch.no_grad():
        layer.encoding.centers += 0.7 * torch.randn(9, 2).double()
        layer.encoding.spread *= 1 + 0.2 * torch.rand(9).double()
    x = torch.randn(1, 2, 12, 11).double().requires_grad_()
    padded = F.pad(x, (1, 1, 1, 1)).movedim(1, -1)
    A = layer.encoding.position_scores(14, 13).reshape(9, 14 * 13, 14 * 13)
    literal = attention.multi_head_self_attention(
        A, padded.flatten(1, 2), layer.value_matrices(), torch.eye(3).double().repeat(9, 1)
    )
    literal = literal.unflatten(1, (14, 13))[:, 1:-1:2, 1:-1:2].movedim(-1, 1)
    inputs = [x, layer.weight, *layer.encoding.parameters()]
    weight = torch.randn_like(literal)
    ours = by_axes(layer, x, way) - layer.bias.view(-1, 1, 1)
    for a, b in zip(
        (ours, *torch.autograd.grad((ours * weight).sum(), inputs)),
        (literal, *torch.autograd.grad((literal * weight).sum(), inputs)),
        strict=True,
    ):
        assert largest_gap(a.detach(), b.detach()) < 1e-12


def test_soft_heads_are_the_convolution_of_an_averaged_image():
    """Compute the effect of softness: one average of the padded image, then the convolution."""
    conv = nn.Conv2d(2, 3, 3).double()
    x = torch.randn(1, 2, 9, 8).double()
    layer = conv_to_attention(conv, alpha=1.5)
    one = QuadraticEncoding.from_alpha(torch.zeros(1, 2).double(), alpha=1.5)
    averaged = torch.einsum("ijkl,bckl->bcij", attention_probabilities(one, 9, 8)[0], x)
    assert largest_gap(layer(x).detach(), conv(averaged).detach()) < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_no_more_than_one_product_does(dtype):
    conv = nn.Conv2d(64, 32, 7, bias=False).to(dtype)
    x = torch.randn(1, 64, 24, 24).to(dtype)
    layer = conv_to_attention(conv)
    exact = copy.deepcopy(conv).double()(x.double())
    shifted, separable = (
        (y.double() - exact).abs().mean() for y in (layer(x), by_axes(layer, x, "whole"))
    )
    assert shifted <= 1.2 * separable


@pytest.mark.parametrize(("groups", "alpha"), [(1, None), (2, None), (1, 2.0)])
def test_under_autocast_it_is_the_same_function(groups, alpha):
    layer = conv_to_attention(nn.Conv2d(64, 64, 3, padding=1, groups=groups), alpha)
    x = torch.randn(2, 64, 8, 8, requires_grad=True)
    exact = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = layer(x)
    assert rounded.dtype == torch.bfloat16  # as from a convolution
    assert not torch.equal(rounded.float(), exact)  # it is rounded
    assert largest_gap(rounded.detach().float(), exact.detach()) < BOUND[torch.bfloat16]
    of = [x, layer.weight, layer.bias]
    for ours, theirs in zip(
        *(torch.autograd.grad(y.sum(), of) for y in (rounded, exact)), strict=True
    ):
        assert largest_gap(ours.float(), theirs) < BOUND[torch.bfloat16]


# --- numbers that a dtype does not have -----------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "kernel", "dilation"),
    [
        (torch.bfloat16, 3, 255),
        (torch.bfloat16, 3, 256),
        (torch.bfloat16, 3, 301),
        (torch.bfloat16, 3, 512),
        (torch.bfloat16, 511, 1),
        (torch.bfloat16, 513, 1),
        (torch.float16, 3, 2047),
        (torch.float16, 3, 2048),
    ],
)
def test_pixels_that_a_dtype_cannot_tell_apart_are_refused(dtype, kernel, dilation):
    """bfloat16 has no 257, and float16 has no 2049."""
    conv = nn.Conv1d(1, 4, kernel, dilation=dilation, padding="same")
    x = torch.randn(1, 1, 300).to(dtype)
    reach = dilation * (kernel // 2)
    converted = conv_to_attention(conv).to(dtype)
    conv = conv.to(dtype)
    if reach in (255, 2047):
        exact = copy.deepcopy(conv).double()(x.double())
        for layer in (converted, conv_to_attention(conv)):
            for y in (layer(x), by_axes(layer, x, "whole")):
                assert largest_gap(y.double(), exact) < BOUND[dtype] * scale_of(conv, x)
        return
    reason = f"kernel reaches {reach} pixels, but {dtype} .* only at distances below (256|2048)"
    with pytest.raises(TypeError, match=f"cannot turn Conv1d into attention: its {reason}"):
        conv_to_attention(conv)
    with pytest.raises(ValueError, match=reason):
        converted(x)


LONG = """
import torch
from attnconv import conv_to_attention
conv, x = torch.nn.Conv1d(1, 4, 3, padding=1), torch.randn(1, 1, 16_000)
with torch.no_grad():
    print(float((conv_to_attention(conv)(x) - conv(x)).abs().max()))
"""


@pytest.mark.slow
def test_a_long_sequence_fits_in_1_gb():
    (gap,), peak = run_alone(LONG)
    assert float(gap) < 1e-5 and peak < 1, f"peak memory {peak} GiB"


def test_soft_heads_far_from_the_query_are_shifts_of_one():
    """Their average is computed around the query, where a dtype tells pixels apart."""
    conv = nn.Conv1d(1, 4, 3, dilation=255, padding="same")
    x = torch.randn(1, 1, 600)
    conv = conv.bfloat16()
    x = x.bfloat16()
    layer = conv_to_attention(conv, alpha=1.0)
    exact = copy.deepcopy(layer).double()(x.double())
    assert largest_gap(layer(x).double(), exact) < BOUND[x.dtype] * scale_of(conv, x)


@pytest.mark.parametrize("alpha", [None, 2.0])
@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(4, 4, 1),
        nn.Conv2d(4, 6, 3, padding=1, stride=2, padding_mode="reflect"),
        nn.Conv2d(4, 4, 3, groups=4),
        nn.ConvTranspose2d(4, 4, 3, stride=2),
        nn.Conv1d(4, 4, 3, padding=1),
    ],
)
def test_the_gradient_has_the_memory_format_of_the_input(conv, alpha):
    layer = conv_to_attention(conv, alpha)
    axes = len(conv.kernel_size)
    for layout in [torch.contiguous_format, torch.channels_last][:axes]:
        x = torch.randn(1, 4, *(9, 8)[:axes]).contiguous(memory_format=layout).requires_grad_()
        strides = []
        between = x * 1  # a leaf's gradient would be stored in the leaf's own format
        between.register_hook(lambda gradient, found=strides: found.append(gradient.stride()))
        layer(between).square().sum().backward()
        assert strides == [between.stride()]


def test_a_single_image_trains_a_batch_normalisation_before_the_layer():
    network = nn.Sequential(nn.Conv2d(2, 2, 5, padding=2), nn.BatchNorm2d(2), nn.Conv2d(2, 3, 1))
    networks = [network.double(), convert_network(network.double())]
    x = torch.randn(1, 2, 64, 64).double()
    for each in networks:
        each(x).abs().mean().backward()
    theirs, ours = (list(each.parameters()) for each in networks)
    largest = max(float(p.grad.abs().max()) for p in theirs)
    for p, q in zip(theirs, ours, strict=True):
        assert (q.grad - p.grad).abs().max() < 1e-12 * largest
