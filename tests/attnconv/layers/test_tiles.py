"""The support of heads, and that a layer computes the same from it alone."""

import pytest
import torch
from helpers.encodings import sharp
from helpers.memory import run_alone
from helpers.ways import WAYS, force

from attnconv import attention_probabilities
from attnconv.layers.attention import PositionAttention, maps_of_tiles
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.layers.tiles import SIDES, banded_matmul, best_tiles, support_of_scores, tiles_of
from companion.gaps import largest_gap

KINDS = ("quadratic", "generalized", "learned", "bias")


@pytest.mark.parametrize("alpha", [0.5, 5.0, 100.0])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_outside_of_the_support_has_a_weight(kind, alpha):
    encoding = sharp(alpha, torch.float64)[kind]
    nonzero = attention_probabilities(encoding, 9, 11).ne(0).any(dim=0)  # (H, W, H, W)
    rows, columns = nonzero.any(dim=(1, 3)), nonzero.any(dim=(0, 2))
    support = support_of_scores(encoding.offset_scores(9, 11))
    assert not (rows & ~support[0]).any() and not (columns & ~support[1]).any()


def test_the_support_of_a_sharp_head_is_small():
    encoding = QuadraticEncoding.from_alpha(torch.tensor([[1.0, -2.0]]), alpha=4.0)
    rows, columns = maps_of_tiles(encoding, 40, 40)[0]
    assert rows[20].nonzero().flatten().tolist() == [19, 20, 21, 22, 23]  # 21 + 2 either way
    assert columns[20].nonzero().flatten().tolist() == [16, 17, 18, 19, 20]
    # from the scores of offsets: also the keys of a query at the border, whose centre is outside
    at_most = support_of_scores(encoding.offset_scores(40, 40))
    assert all(set(range(18, 21)) <= set(mask[20].nonzero().flatten().tolist()) for mask in at_most)
    assert all(mask.sum(dim=1).max() <= 9 for mask in at_most)


@pytest.mark.parametrize("alpha", [0.5, 5.0, 100.0])
@pytest.mark.parametrize("kind", KINDS)
def test_maps_of_tiles_are_parts_of_the_whole(kind, alpha):
    encoding = sharp(alpha, torch.float64)[kind]
    whole = attention_probabilities(encoding, 9, 11)
    support, maps = maps_of_tiles(encoding, 9, 11)
    for rows in tiles_of(support[0], 4):
        for columns in tiles_of(support[1], 4):
            of_tile = maps(rows, columns)
            if isinstance(of_tile, tuple):
                of_tile = torch.einsum("hik,hjl->hijkl", *of_tile)
            part = whole[:, rows.queries, columns.queries][..., rows.keys, columns.keys]
            assert largest_gap(of_tile.detach(), part.detach()) < 1e-12


@pytest.mark.parametrize("dim_out", [2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_tiles_give_the_same_numbers_and_gradients(kind, dim_out):
    layer = PositionAttention(sharp(3.0, torch.float64)[kind], 3, dim_out).double()
    X = torch.randn(2, 12, 11, 3).double().requires_grad_()
    found = {}
    for way in WAYS:
        with pytest.MonkeyPatch.context() as patch:
            force(patch, way)
            Y = layer(X)
        found[way] = Y, *torch.autograd.grad(Y.pow(3).sum(), [X, *layer.parameters()])
    assert all(map(lambda a, b: largest_gap(a, b) < 1e-12, *found.values()))


def test_tiles_are_all_queries_and_the_keys_of_their_support():
    support = torch.zeros(7, 9, dtype=torch.bool)
    for query, key in enumerate((3, 2, 4, 8, 5, 0, 6)):
        support[query, key] = True
    tiles = [(tile.queries, tile.keys) for tile in tiles_of(support, 3)]
    assert tiles == [
        (slice(0, 3), slice(2, 5)),
        (slice(3, 6), slice(0, 9)),
        (slice(6, 7), slice(6, 7)),
    ]


def test_tiles_are_taken_where_they_cost_less():
    far = (torch.arange(64) - torch.arange(64).unsqueeze(1)).abs()
    narrow, wide = (far <= 3, far <= 3), (far <= 30, far <= 30)
    assert best_tiles(wide, 10_000, separable=True) is None
    assert best_tiles(narrow, 1, separable=True) is None, "so few products that tiles do not pay"
    for separable in (True, False):
        rows, columns = best_tiles(narrow, 10_000, separable)
        assert len(rows) == len(columns) and rows[0].queries.stop in SIDES


def test_a_banded_product_is_the_product():
    (rows, _) = _one_head(100).axis_probabilities(100, 1)
    X = torch.randn(2, 100, 3).double()
    assert largest_gap(banded_matmul(rows[0], X), torch.einsum("qk,nkd->nqd", rows[0], X)) < 1e-12
    X = X.requires_grad_()
    assert torch.autograd.gradcheck(lambda X: banded_matmul(rows[0], X), X)
    assert torch.autograd.gradgradcheck(lambda X: banded_matmul(rows[0], X).square(), X)


def _one_head(size):
    return QuadraticEncoding.from_alpha(torch.tensor([[size / 10, 0.3]]).double(), alpha=2.0)


LARGE = """
import torch
from attnconv import conv_to_attention
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.layers.attention import PositionAttention
torch.manual_seed(0)
layer = PositionAttention(QuadraticEncoding.from_alpha(3 * torch.rand(9, 2), 2.0), 16, 16)
conv = torch.nn.Conv2d(16, 16, 3, padding=1)
with torch.no_grad():
    layer(torch.randn(1, 512, 512, 16))
    x = torch.randn(1, 16, 512, 512)
    soft, hard = conv_to_attention(conv, 2.0)(x), conv_to_attention(conv)(x)
    print(float((hard - conv(x)).abs().max()))
"""


@pytest.mark.slow
def test_images_of_512_pixels_fit_in_2_gb():
    (gap,), peak = run_alone(LARGE)
    assert float(gap) < 1e-4 and peak < 2, f"gap {gap}, peak memory {peak} GiB"
