"""Which heads are one-hot, and which are shifts of one another."""

import pytest
import torch
from torch import nn

from attnconv import conv_to_attention
from attnconv.layers import shifts
from attnconv.layers.encodings import QuadraticEncoding, softmax_without_tails
from attnconv.layers.shifts import is_one_hot
from attnconv.theory.theorem1 import DTYPES, hard_alpha
from companion.gaps import largest_gap


def test_what_is_no_shift_is_not_taken_for_one():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    x = torch.randn(1, 2, 8, 8)
    assert conv_to_attention(conv).shifts((10, 10)).probabilities == [None, None]
    assert None not in conv_to_attention(conv, alpha=2.0).shifts((10, 10)).probabilities
    layer = conv_to_attention(conv)
    layer(x)
    with torch.no_grad():
        layer.encoding.centers[4] += 0.5  # half-way between two pixels: what was known is forgotten
    assert layer.shifts((10, 10)) is None and largest_gap(layer(x), conv(x)) > 0.01
    with torch.no_grad():
        layer.encoding.centers[4] += 1.5  # two pixels further than the kernel reaches
    assert layer.shifts((10, 10)) is None and largest_gap(layer(x), conv(x)) > 0.01
    layer = conv_to_attention(conv, alpha=2.0)
    with torch.no_grad():
        layer.encoding.spread[4] *= 2  # not as wide as the others
    assert layer.shifts((10, 10)) is None
    layer = conv_to_attention(conv)
    layer.encoding.requires_grad_()
    layer(x).sum().backward()
    assert layer.encoding.centers.grad is not None


def test_an_edit_that_counts_as_no_new_version_is_seen():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    x = torch.randn(1, 2, 8, 8)
    layer = conv_to_attention(conv)
    assert largest_gap(layer(x), conv(x)) < 1e-5
    layer.encoding.centers.data[4] += 0.5
    assert layer.shifts((10, 10)) is None and largest_gap(layer(x), conv(x)) > 0.01


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [2, 3, 8, 33, 400, 20_000])
def test_one_hot_heads_are_told_by_their_alpha(size, dtype):
    """As their probabilities tell: in the middle, where a query has two neighbours."""
    hard = hard_alpha(dtype)
    found = set()
    for alpha in (*range(1, 60), hard - 1, hard, hard + 1):
        encoding = QuadraticEncoding.from_alpha(torch.zeros(1, 1).to(dtype), alpha)
        shifts = torch.arange(size) - size // 2
        probabilities = softmax_without_tails(encoding.axis_scores(0, shifts)[0])
        one_hot = bool(probabilities.max() == 1) and int(probabilities.count_nonzero()) == 1
        assert is_one_hot(encoding.alpha, size) == one_hot, alpha
        found.add((one_hot, alpha >= hard))
    assert (True, True) in found and (False, True) not in found and (False, False) in found


@pytest.mark.parametrize("by_ranges", [False, True], ids=["products", "ranges"])
@pytest.mark.parametrize("channels", [(4, 6, 1), (4, 6, 2), (4, 4, 4), (4, 12, 4)])
@pytest.mark.parametrize("stride", [1, (2, 3)])
@pytest.mark.parametrize("kernel", [(3, 2), 1])
@pytest.mark.parametrize("bias", [True, False])
def test_both_ways_to_add_shifted_images_equal_the_convolution(
    by_ranges, channels, stride, kernel, bias, monkeypatch
):
    inputs, outputs, groups = channels
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=1, groups=groups, bias=bias).double()
    layer = conv_to_attention(conv)
    monkeypatch.setattr(shifts, "_uses_ranges", lambda *_: by_ranges)
    monkeypatch.setattr(shifts, "IN_CACHE", 50)  # a few images at a time
    for batch in (0, 1, 3):
        x = torch.randn(batch, inputs, 8, 9).double().requires_grad_()
        for images in (x, x.contiguous(memory_format=torch.channels_last)):
            layer(images).relu_()  # an in-place operation may follow
            output = layer(images)
            assert output.stride() == conv(images).stride()
            assert torch.allclose(output, conv(images), rtol=0, atol=1e-12)
            weights = torch.randn_like(output)
            ours, theirs = (
                torch.autograd.grad((f(images) * weights).sum(), [x, f.weight])
                for f in (layer, conv)
            )
            assert all(
                torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(ours, theirs, strict=True)
            )
