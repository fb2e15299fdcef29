"""Theorem 1 as the paper proves it, against convolutions."""

import math

import pytest
import torch
import torch.nn.functional as F

from attnconv import attention_probabilities, hard_alpha
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.attention import convolution
from attnconv.theory.grid import offset_set
from attnconv.theory.theorem1 import (
    DTYPES,
    convolution_by_attention,
    heads_for,
    quadratic_scores,
    softness_bound,
    sufficient_alpha,
)
from companion.gaps import largest_gap

BOUND = {torch.float64: 1e-12, torch.float32: 1e-5}
KERNELS = [(1, 1), (3, 3), (3, 5), (4, 2)]


def example(kernel, dtype=torch.float64):
    """Two images, a kernel and a bias; all pixels are at most 1 in size."""
    X = 2 * torch.rand(2, 7, 6, 3).to(dtype) - 1
    return X, torch.randn(*kernel, 3, 4).to(dtype), torch.randn(4).to(dtype)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize("kernel", KERNELS)
def test_hard_heads_are_the_convolution(kernel, dtype):
    X, W, b = example(kernel, dtype)
    ours = convolution_by_attention(X, W, b)
    assert largest_gap(ours, convolution(X, W, b)) < BOUND[dtype]
    by_torch = F.conv2d(X.movedim(-1, 1), W.permute(3, 2, 0, 1), b, padding="same").movedim(1, -1)
    assert largest_gap(ours, by_torch) < BOUND[dtype]
    assert largest_gap(convolution_by_attention(X[0], W), convolution(X[0], W)) < BOUND[dtype]


@pytest.mark.parametrize("alpha", [0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_soft_heads_are_within_the_bound(kernel, alpha):
    X, W, b = example(kernel)
    gap = (convolution_by_attention(X, W, b, alpha) - convolution(X, W, b)).abs()
    assert (gap.amax(dim=(0, 1, 2)) <= softness_bound(W, alpha, largest=1.0) + 1e-12).all()
    assert alpha > 5 or gap.max() > 1e-4, "they are not the convolution"
    enough = sufficient_alpha(W, 1e-3, largest=1.0)
    assert (convolution_by_attention(X, W, b, enough) - convolution(X, W, b)).abs().max() < 1e-3


def test_the_parameters_are_those_of_the_proof():
    """Head h: its centre at the h-th shift, W_val^(h) W_out^(h) the kernel's matrix there, and in
    the middle of an image all of its attention at that shift."""
    _, W, _ = example((3, 5))
    heads = heads_for(W)
    assert torch.equal(heads.centers, offset_set((3, 5)).double())
    W_out = heads.W_out.unflatten(0, (15, -1))
    probabilities = quadratic_scores(heads.v, 5, 7).softmax(dim=-1)[:, 2 * 7 + 3].view(-1, 5, 7)
    for h, (row, column) in enumerate(offset_set((3, 5)).tolist()):
        assert torch.equal(heads.W_val[h] @ W_out[h], W[row + 1, column + 2])
        assert probabilities[h, 2 + row, 3 + column] == 1 and probabilities[h].sum() == 1


@pytest.mark.parametrize("dtype", list(DTYPES))
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


def test_other_dtypes_are_refused():
    with pytest.raises(TypeError, match="expected one of"):
        hard_alpha(torch.int64)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_bounds_refuse_numbers_that_are_no_bounds(bad):
    kernel = torch.ones(3, 3, 1, 1)
    with pytest.raises(ValueError, match=f"largest is {bad}, expected a finite number, 0 or more"):
        sufficient_alpha(kernel, 1e-3, largest=bad)
    with pytest.raises(ValueError, match=f"alpha is {bad}, expected a finite number, 0 or more"):
        softness_bound(kernel, bad, largest=1.0)
    for gap in (bad, 0.0):
        with pytest.raises(ValueError, match=f"gap is {gap}, expected a finite number above 0"):
            sufficient_alpha(kernel, gap, largest=1.0)
    with pytest.raises(ValueError, match="infinite or NaN weights, expected finite ones"):
        softness_bound(kernel * math.nan, 1.0, largest=1.0)
