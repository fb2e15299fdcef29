"""Numerical checks of the theorems in `proofs/`, for real numbers and any rounding.

Both sides of each theorem are computed in plain torch from the definitions of its statement.
"""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnconv import attention_probabilities, conv_to_attention, hard_alpha
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.theorem1 import softness_bound, sufficient_alpha

SHIFTS = list(itertools.product((-1, 0, 1), repeat=2))  # of a 3 x 3 kernel
# the exponents of the smallest positive numbers, and the alphas, of `hard_alphas`
FORMATS = {
    torch.float64: (-1074, 746),
    torch.float32: (-149, 104),
    torch.bfloat16: (-133, 93),
    torch.float16: (-24, 18),
}


def pixels(height, width):
    return torch.cartesian_prod(torch.arange(height), torch.arange(width)).double()


def checkerboard(height, width):
    return (-1) ** pixels(height, width).sum(1).reshape(height, width)


def literal_conv(weight, x, q):
    """The convolution at one query `q` of `x` `(H, W, C_in)`, with `weight` `(9, C_in, C_out)`."""
    return sum(x[q[0] + i, q[1] + j] @ w for (i, j), w in zip(SHIFTS, weight, strict=True))


@pytest.mark.parametrize("side", range(2, 33))
@pytest.mark.parametrize("alpha", [0.3, 3.7])
def test_absolute_positions_make_the_quadratic_maps(side, alpha):
    """`eq_7_quadratic`: (1, i, j, i^2 + j^2) per pixel, queries and keys of three numbers."""
    k = pixels(side, side)
    p = torch.cat([torch.ones(len(k), 1).double(), k, k.square().sum(1, keepdim=True)], 1)
    key = torch.zeros(4, 3).double()
    key[3, 0] = -alpha
    key[1, 1] = 2 * alpha
    key[2, 2] = 2 * alpha
    for center in [(0.0, 0.0), (1.0, -1.0), (-1.0, 1.0)]:
        query = torch.zeros(4, 3).double()
        query[0] = torch.tensor([1.0, *center])
        query[1, 1] = 1
        query[2, 2] = 1
        maps = torch.softmax((p @ query) @ (p @ key).T, dim=1)
        encoding = QuadraticEncoding.from_alpha(torch.tensor([center]).double(), alpha)
        wanted = attention_probabilities(encoding, side, side)[0].reshape(side**2, side**2)
        torch.testing.assert_close(maps, wanted.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [4.0, 7.0, 10.0])
def test_a_checkerboard_reaches_the_bound(alpha):
    """`bound_is_sharp`: between the share that is proved and the bound; 0.99 of it at alpha 10."""
    generator = torch.Generator().manual_seed(0)
    conv = nn.Conv2d(2, 1, 3, bias=False).double()
    sizes = torch.rand(1, 2, 3, 3, generator=generator).double() + 0.1
    conv.weight = nn.Parameter(sizes * checkerboard(3, 3))
    x = 1.5 * checkerboard(9, 9).expand(1, 2, 9, 9)
    with torch.no_grad():
        gap = float((conv_to_attention(conv, alpha)(x) - conv(x)).abs().max())
    bound = float(softness_bound(conv.weight.permute(2, 3, 1, 0), alpha, 1.5))
    e = math.exp(-alpha)
    assert ((1 - e) / (1 + e)) ** 2 * bound <= gap <= bound
    if alpha == 10:
        assert gap >= 0.99 * bound


def test_no_smaller_constant_serves():
    """`alpha_constant_refuted`: with ln(1 + c B M / eps) and c = 7.9 a gap exceeds eps."""
    conv = nn.Conv2d(1, 1, 1, bias=False).double()
    conv.weight = nn.Parameter(torch.ones(1, 1, 1, 1).double())
    x = checkerboard(3, 3)[None, None]
    for eps in (1e-3, 1e-5):
        gaps = {}
        alphas = {7.9: math.log1p(7.9 / eps), 8.0: sufficient_alpha(conv.weight, eps, largest=1.0)}
        for c, alpha in alphas.items():
            layer = conv_to_attention(conv, alpha)
            gaps[c] = float((layer(x) - conv(x)).detach().abs()[0, 0, 1, 1])
        assert gaps[7.9] > eps > gaps[8.0]


def numbered(shifts):
    """A numbering of Z^2: each integer as a natural number, and Cantor's pairs."""
    a, b = torch.where(shifts >= 0, 2 * shifts, -2 * shifts - 1).unbind(-1)
    return (a + b) * (a + b + 1) / 2 + b


@pytest.mark.parametrize("alpha", [0.5, 2.0, 20.0])
def test_two_numbers_place_the_attention(alpha):
    """`lemma_2_two_numbers`: at least 1 - 2 e^-alpha, on images of any size."""
    for side, center in itertools.product((3, 7, 20), SHIFTS):
        shifts = pixels(side, side) - torch.tensor([1.0, 1.0])
        n = numbered(shifts)
        own = numbered(torch.tensor(center).double())
        assert len(n.unique()) == len(n)
        r = torch.stack([n.square(), n], 1)
        v = -alpha * torch.stack([own**0, -2 * own])
        p = torch.softmax(r @ v, dim=0)
        at = int((shifts == torch.tensor(center)).all(1).nonzero())
        assert p[at] >= 1 - 2 * math.exp(-alpha) - 1e-12


def test_one_number_does_not():
    """`lemma_2_one_number_refuted`: of three pixels one never gets more than half."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        r = torch.randn(9, generator=generator).double()
        v = torch.logspace(-2, 3, 60).double()
        p = torch.softmax(torch.cat([v, -v])[:, None] * r, dim=1)
        assert p[:, :3].max(dim=0).values.min() <= 0.5


def test_a_margin_is_enough():
    """`lemma_2_margin`: any scores, here drawn, whose largest leads by alpha."""
    generator = torch.Generator().manual_seed(2)
    for size, alpha in itertools.product((2, 10, 100), (0.0, 1.0, 8.0)):
        scores = torch.randn(size, generator=generator).double()
        scores[0] = scores[1:].max() + alpha
        assert torch.softmax(scores, 0)[0] >= 1 - (size - 1) * math.exp(-alpha) - 1e-12


def turned(x, omega, at):
    """Pairs `(n, 2)`, each turned by its angle at the pixel `at`, as complex numbers."""
    return torch.polar(torch.ones(len(omega)).double(), omega @ at) * torch.view_as_complex(x)


def rotary_map(omega, query, key, q, k):
    """The attention of the query `q` over the pixels `k`, `(T, 2)`, with constant pairs."""
    product = turned(query, omega, q) * torch.stack([turned(key, omega, p) for p in k]).conj()
    return torch.softmax(product.real.sum(1), dim=0)


def rotary_head(omega, a, alpha, center):
    """The query and key, `(n, 2)`, of a head with amplitudes `a` and the shift `center`."""
    key = torch.stack([a.sqrt(), torch.zeros_like(a)], 1)
    return alpha * torch.view_as_real(turned(key, omega, center)), key


def smallest_gap(omega, a, height, width):
    u = pixels(2 * height - 1, 2 * width - 1) - torch.tensor([height - 1.0, width - 1.0])
    u = u[(u != 0).any(1)]
    return float(((1 - torch.cos(u @ omega.T)) @ a).min())


AXIAL = torch.tensor([[1.0, 0], [0.2, 0], [0, 0.9], [0, 0.3]], dtype=torch.float64)
MIXED = torch.tensor([[1.0, 0.3], [0.2, -0.4], [0.5, 0.9]], dtype=torch.float64)


@pytest.mark.parametrize(("omega", "is_axial"), [(AXIAL, True), (MIXED, False)])
@pytest.mark.parametrize("sharpness", [1.0, 4.0, 12.0])
def test_a_rotary_head_attends_to_one_shift(omega, is_axial, sharpness):
    """`rotary_attention`: at least 1 - T e^-(alpha gamma), here with alpha gamma = `sharpness`."""
    height, width = 5, 7
    q = torch.tensor([2.0, 3.0]).double()
    a = torch.linspace(0.5, 1.5, len(omega)).double()
    gamma = smallest_gap(omega, a, height, width)
    others = height + width - 2 if is_axial else height * width - 1
    k = pixels(height, width)
    for center in torch.tensor(SHIFTS).double():
        query, key = rotary_head(omega, a, sharpness / gamma, center)
        p = rotary_map(omega, query, key, q, k)
        share = float(p[(k == q + center).all(1)])
        assert share >= 1 - others * math.exp(-sharpness)
        if sharpness == 12:  # the bound is no empty one, and the sign matters
            assert share > 0.9995
            p = rotary_map(omega, *rotary_head(omega, a, sharpness / gamma, -center), q, k)
            assert float(p[(k == q + center).all(1)]) <= 0.5 or not center.any()


def test_a_common_period_leaves_at_most_half():
    """`rotary_common_period` and `rotary_one_pair_refuted`, for drawn queries and keys."""
    generator = torch.Generator().manual_seed(3)
    q = torch.tensor([2.0, 2.0]).double()
    k = pixels(5, 5)
    turns = torch.tensor([[2 * math.pi / 3, 0], [0, 1.0]], dtype=torch.float64)  # period (3, 0)
    rows = torch.tensor([[1.0, 0]], dtype=torch.float64)  # columns look alike: period (0, 1)
    for omega, u in ((turns, (3, 0)), (rows, (0, 1))):
        for _ in range(20):
            query, key = 9 * torch.randn(2, len(omega), 2, generator=generator).double()
            p = rotary_map(omega, query, key, q, k).reshape(5, 5)
            torch.testing.assert_close(p[: 5 - u[0], : 5 - u[1]], p[u[0] :, u[1] :])
            assert p[: 5 - u[0], : 5 - u[1]].max() <= 0.5 + 1e-12


def test_slow_frequencies_have_no_common_period():
    """`slow_frequencies_separate`: beside fast ones that repeat on every pixel."""
    height, width = 6, 9
    slow = torch.tensor([[6.28 / (height - 1), 0], [0, 6.28 / (width - 1)]], dtype=torch.float64)
    fast = torch.tensor([[2 * math.pi, 0], [0, 2 * math.pi]], dtype=torch.float64)
    ones = torch.ones(4).double()
    assert smallest_gap(torch.cat([slow, fast]), ones, height, width) > 1e-6
    assert smallest_gap(fast, ones[:2], height, width) < 1e-12


@pytest.mark.parametrize("rank", [0, 1, 2, 4])
def test_rank_plus_one_heads_are_exact(rank):
    """`rank_plus_one_heads`: finite scores that depend on the shift, on images of one size."""
    generator = torch.Generator().manual_seed(rank)
    shares = torch.randn(9, rank, generator=generator).double()
    parts = torch.randn(rank, 2, 3, generator=generator).double()
    weight = torch.einsum("dj,jio->dio", shares, parts)
    assert torch.linalg.matrix_rank(weight.flatten(1)) == rank
    c = 1 / (1 + shares.abs().sum())
    side = 5
    x = torch.randn(side, side, 2, generator=generator).double()
    for q in itertools.product(range(1, side - 1), repeat=2):
        scores = torch.zeros(rank + 1, side, side).double()
        for (i, j), share in zip(SHIFTS, shares, strict=True):
            scores[:rank, q[0] + i, q[1] + j] = torch.log1p(c * share)
        assert scores.isfinite().all()
        p = torch.softmax(scores.flatten(1), dim=1)
        totals = side**2 + c * shares.sum(0)
        values = torch.cat([totals[:, None, None] / c * parts, -(side**2) / c * parts.sum(0)[None]])
        blends = p @ x.reshape(-1, 2)
        out = torch.einsum("hi,hio->o", blends, values)
        torch.testing.assert_close(out, literal_conv(weight, x, q), rtol=0, atol=1e-10)


def test_fewer_heads_than_the_rank_stay_away():
    """`K2_heads_needed`: eight heads, with the best values there are, miss a kernel of rank 9."""
    generator = torch.Generator().manual_seed(3)
    unfolding = torch.eye(9).double()  # nine shifts, three input and three output channels
    for _ in range(20):
        maps = torch.softmax(torch.randn(9, 8, generator=generator).double(), dim=0)
        values = torch.linalg.lstsq(maps, unfolding).solution
        assert (maps @ values - unfolding).abs().max() > 1 / 9 - 1e-12
    maps = torch.softmax(torch.randn(9, 9, generator=generator).double(), dim=0)
    values = torch.linalg.lstsq(maps, unfolding).solution
    torch.testing.assert_close(maps @ values, unfolding)


def test_torch_computes_the_queries_of_the_theorem():
    """`hyper_parameters_torch`: how many there are, and which pixels each reads."""
    x = torch.randn(1, 1, 8, 11, generator=torch.Generator().manual_seed(4)).double()
    weight = torch.randn(1, 1, 3, 2, generator=torch.Generator().manual_seed(5)).double()
    for stride, dilation, padding in itertools.product((1, 2, 3), (1, 2), (0, 1)):
        wanted = F.conv2d(x, weight, stride=stride, dilation=dilation, padding=padding)[0, 0]
        padded = F.pad(x, [padding] * 4)[0, 0]
        sizes = [
            (n - dilation * (k - 1) - 1) // stride + 1
            for n, k in zip(padded.shape, weight.shape[2:], strict=True)
        ]
        assert list(wanted.shape) == sizes
        for q in itertools.product(*map(range, sizes)):
            read = sum(
                padded[stride * q[0] + dilation * i, stride * q[1] + dilation * j]
                * weight[0, 0, i, j]
                for i, j in itertools.product(range(3), range(2))
            )
            torch.testing.assert_close(read, wanted[q])


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_numbers_of_hard_alpha(dtype):
    """`hard_alphas`, as it is proved: in whole numbers, with 13700 / 5040 < e."""
    tiny, alpha = FORMATS[dtype]
    info = torch.finfo(dtype)
    assert math.log2(info.smallest_normal) + math.log2(info.eps) == tiny
    assert hard_alpha(dtype) == alpha
    assert 13700**alpha > 2 ** (1 - tiny) * 5040**alpha


def rounded_softmax(alpha, center, side, dtype):
    """Each operation rounded to `dtype`: the scores, the largest subtracted, exponentials, a sum in
    the order of the pixels, a division."""
    away = pixels(side, side).to(dtype) - torch.tensor(center, dtype=dtype)
    scores = -(
        torch.tensor(alpha, dtype=dtype) * (away[:, 0] * away[:, 0] + away[:, 1] * away[:, 1])
    )
    e = (scores - scores.max()).exp()
    total = torch.zeros((), dtype=dtype)
    for number in e:
        total = total + number
    return e / total


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_in_floating_point_the_layer_is_the_convolution(dtype):
    """`float_one_hot` and `float_layer_is_convolution`, at each whole alpha around `hard_alpha`."""
    tiny, hard = FORMATS[dtype]
    generator = torch.Generator().manual_seed(6)
    side = 5
    q = (2, 2)
    x = torch.randn(side, side, 2, generator=generator).to(dtype)
    weight = torch.randn(9, 2, 3, generator=generator).to(dtype)

    def summed(read):
        out = torch.zeros(3, dtype=dtype)
        for h, i in itertools.product(range(9), range(2)):
            out = out + read(h)[i] * weight[h, i]
        return out

    convolution = summed(lambda h: x[q[0] + SHIFTS[h][0], q[1] + SHIFTS[h][1]])
    soft = 0
    for alpha in range(hard // 2, hard + 40):
        heads = []
        for shift in SHIFTS:
            center = [a + b for a, b in zip(q, shift, strict=True)]
            p = rounded_softmax(alpha, center, side, dtype)
            one_hot = torch.zeros(side**2, dtype=dtype)
            one_hot[center[0] * side + center[1]] = 1
            assert alpha < hard or torch.equal(p, one_hot)
            soft += not torch.equal(p, one_hot)
            blend = torch.zeros(2, dtype=dtype)
            for number, pixel in zip(p, x.reshape(-1, 2), strict=True):
                blend = blend + number * pixel
            heads.append(blend)
        assert alpha < hard or torch.equal(summed(heads.__getitem__), convolution)
        assert (math.exp(-alpha) < 2.0 ** (tiny - 1)) == (alpha >= hard)
    assert soft > 0
