import math

import pytest
import torch
from helpers.encodings import kinds, sharp
from helpers.ways import WAYS, force, head_averages
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from attnconv import attention_probabilities, build_model, conv_to_attention
from attnconv.layers.attention import ContentAttention, PositionAttention, attend, attend_and_mix
from attnconv.layers.encodings import LearnedOffsetEmbedding, softmax_without_tails
from attnconv.theory import attention
from attnconv.theory.grid import relative_offsets
from companion.gaps import largest_gap


@pytest.mark.parametrize("name", list(kinds()))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_layer_equals_the_oracle_forward_and_backward(name, dtype, way, monkeypatch):
    force(monkeypatch, way)
    layer = PositionAttention(kinds(dtype)[name], 3, 5).to(dtype)
    X = torch.randn(2, 6, 7, 3, dtype=dtype, requires_grad=True)
    A = layer.encoding.position_scores(6, 7).reshape(4, 42, 42)
    W_val = layer.value.weight.unflatten(1, (4, 3)).permute(1, 2, 0)  # (N_h, D_in, D_out)
    W_out = torch.eye(5, dtype=dtype).repeat(4, 1)
    oracle = attention.multi_head_self_attention(
        A, X.flatten(1, 2), W_val, W_out, layer.value.bias
    ).unflatten(1, (6, 7))
    inputs = [X, *layer.parameters()]
    weight = torch.randn_like(oracle)
    ours, theirs = (
        torch.autograd.grad((output * weight).sum(), inputs) for output in (layer(X), oracle)
    )
    bound = 1e-12 if dtype == torch.float64 else 1e-5
    assert largest_gap(layer(X).detach(), oracle.detach()) < bound
    for our_gradient, their_gradient in zip(ours, theirs, strict=True):
        assert largest_gap(our_gradient, their_gradient) < bound


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_content_attention_equals_the_oracle_forward_and_backward(dtype):
    """The oracle: the first two terms of equation (8) with r_delta for each pair of pixels,
    softmax, equation (4)."""
    layer = ContentAttention(LearnedOffsetEmbedding(6, 7, dim=4), 3, 5, 2).to(dtype)
    X = torch.randn(2, 6, 7, 5, dtype=dtype, requires_grad=True)
    r = layer.embedding(relative_offsets(6, 7)).flatten(2, 3).flatten(0, 1)  # (T, T, D_k)
    tokens = X.flatten(1, 2)
    queries, keys = (
        (tokens @ m.weight.T + m.bias).unflatten(-1, (3, 8)).transpose(1, 2)
        for m in (layer.query, layer.key)
    )
    A = (
        torch.einsum("bhqd,bhkd->bhqk", queries, keys) + torch.einsum("bhqd,qkd->bhqk", queries, r)
    ) / 8**0.5
    W_val = layer.value.weight.unflatten(1, (3, 5)).permute(1, 2, 0)
    W_out = torch.eye(2, dtype=dtype).repeat(3, 1)
    oracle = attention.multi_head_self_attention(
        A, tokens, W_val, W_out, layer.value.bias
    ).unflatten(1, (6, 7))
    weight = torch.randn_like(oracle)
    inputs = [X, *layer.parameters()]
    ours, theirs = (
        torch.autograd.grad((output * weight).sum(), inputs) for output in (layer(X), oracle)
    )
    bound = 1e-12 if dtype == torch.float64 else 1e-5
    assert largest_gap(layer(X).detach(), oracle.detach()) < bound
    position = torch.einsum("bhqd,qkd->bhqk", queries, r).reshape(2, 3, 6, 7, 6, 7) / 8**0.5
    content, rows, columns = layer.score_parts(X)
    assert (
        largest_gap((rows.unsqueeze(-1) + columns.unsqueeze(-2)).detach(), position.detach())
        < bound
    )
    assert (
        largest_gap(
            (content.flatten(2, 3).flatten(-2) + position.flatten(2, 3).flatten(-2)).detach(),
            A.detach(),
        )
        < bound
    )
    assert (
        largest_gap(
            layer.probabilities(X).detach(), A.softmax(-1).reshape(2, 3, 6, 7, 6, 7).detach()
        )
        < bound
    )
    # the key bias is inert: its gradient is zero but for rounding
    scale = max(gradient.abs().max() for gradient in theirs)
    for our_gradient, their_gradient in zip(ours, theirs, strict=True):
        assert (our_gradient - their_gradient).abs().max() / scale < bound


def test_position_scores_stay_exact_under_autocast():
    for kind in ("quadratic", "generalized", "learned"):
        layer = PositionAttention(kinds(torch.float32)[kind], 3, 5).eval()
        X = torch.randn(2, 6, 7, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = head_averages(layer, X)
        assert largest_gap(low.float().detach(), head_averages(layer, X).detach()) < 2e-2


def test_dropout_acts_in_training_only():
    layer = PositionAttention(kinds(torch.float32)["quadratic"], 3, 5, dropout=0.5)
    X = torch.randn(1, 6, 7, 3)
    assert not torch.equal(layer(X), layer(X))
    assert torch.equal(layer.eval()(X), layer(X))
    content = ContentAttention(LearnedOffsetEmbedding(6, 7, dim=4), 3, 3, 2, dropout=0.5)
    assert not torch.equal(content(X), content(X))
    assert torch.equal(content.eval()(X), content(X))


def test_one_map_serves_the_whole_batch_also_with_dropout():
    layer = PositionAttention(kinds(torch.float32)["quadratic"], 3, 5, dropout=0.5)
    X = torch.randn(1, 6, 7, 3).expand(4, -1, -1, -1)
    output = layer(X)
    assert torch.equal(output[0], output[3])


def test_wrong_shapes_and_modules_are_refused():
    layer = PositionAttention(kinds(torch.float32)["quadratic"], 3, 5)
    with pytest.raises(ValueError, match=r"expected \(batch, height, width, 3\)"):
        layer(torch.randn(1, 3, 6, 7))
    with pytest.raises(TypeError, match="pass one of its layers"):
        attention_probabilities(build_model("sa-quadratic", num_layers=1), 4, 4)
    with pytest.raises(TypeError, match=r"use its method probabilities\(X\)"):
        attention_probabilities(
            ContentAttention(LearnedOffsetEmbedding(6, 7, dim=4), 3, 5, 2), 4, 4
        )
    assert attention_probabilities(layer, 4, 5).shape == (4, 4, 5, 4, 5)


# --- the arrangement of products ------------------------------------------------------------------


@pytest.mark.parametrize("dim_out", [2, 3, 5])  # `attend_and_mix`, or the averages first
@pytest.mark.parametrize("tokens_first", [False, True])
def test_images_may_lie_either_way_in_memory(dim_out, tokens_first):
    layer = PositionAttention(kinds(torch.float64)["quadratic"], 3, dim_out).double()
    X = (
        torch.randn(6, 7, 2, 3).double().permute(2, 0, 1, 3)
        if tokens_first
        else torch.randn(2, 6, 7, 3).double()
    )
    by_formula = torch.einsum("hijkl,bkld->bijhd", attention_probabilities(layer, 6, 7), X)
    assert largest_gap(head_averages(layer, X).detach(), by_formula.detach()) < 1e-12
    assert largest_gap(layer(X).detach(), layer.value(by_formula.flatten(-2)).detach()) < 1e-12
    assert not tokens_first or layer(X).permute(1, 2, 0, 3).is_contiguous(), (
        "given back as they came"
    )


def test_factors_are_the_dense_maps():
    rows, columns = torch.rand(4, 6, 6).double(), torch.rand(4, 7, 7).double()
    dense = torch.einsum("hik,hjl->hijkl", rows, columns)
    X = torch.randn(6, 7, 2, 3).double()
    by_head = torch.randn(4, 3, 5).double()
    assert largest_gap(attend((rows, columns), X), attend(dense, X)) < 1e-12
    assert largest_gap(attend(dense, X), torch.einsum("hijkl,klbd->hijbd", dense, X)) < 1e-12
    mixed = torch.einsum("hijkl,klbd,hde->ijbe", dense, X, by_head)
    assert largest_gap(attend_and_mix((rows, columns), X, by_head), mixed) < 1e-12
    assert largest_gap(attend_and_mix(dense, X, by_head), mixed) < 1e-12


# --- subnormal numbers ----------------------------------------------------------------------------

ALPHAS = torch.logspace(math.log10(0.1), math.log10(200), 25).tolist()


def is_subnormal(value):
    return (value != 0) & (value.abs() < torch.finfo(value.dtype).smallest_normal)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_no_probability_is_subnormal(dtype):
    literally = 0
    for alpha in ALPHAS:
        for encoding in sharp(alpha, dtype).values():
            probabilities = attention_probabilities(encoding, 12, 12)
            assert not is_subnormal(probabilities).any() and torch.isfinite(probabilities).all()
            literally += int(
                is_subnormal(attention.spatial_softmax(encoding.position_scores(12, 12))).sum()
            )
            if hasattr(encoding, "axis_probabilities"):
                assert not any(
                    is_subnormal(factor).any() for factor in encoding.axis_probabilities(12, 12)
                )
        layer = conv_to_attention(nn.Conv2d(2, 2, 3, dilation=2).to(dtype), alpha)
        assert not is_subnormal(layer.axis_probabilities(0, 12)).any()
    assert literally > 1000, "without the cut there are many"


class Products(TorchDispatchMode):
    """Counts the subnormal numbers that go into matrix products or come out of them."""

    def __init__(self):
        super().__init__()
        self.products = self.subnormal = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm):
            self.products += 1
            numbers = [value for value in (*args, result) if isinstance(value, torch.Tensor)]
            self.subnormal += sum(int(is_subnormal(value).sum()) for value in numbers)
        return result


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["quadratic", "generalized", "learned", "bias"])
def test_no_product_of_the_layer_is_subnormal(kind, way, monkeypatch):
    force(monkeypatch, way)

    def count(alpha):
        layer = PositionAttention(sharp(alpha, torch.float32)[kind], 4, 4)
        X = torch.randn(2, 12, 12, 4, requires_grad=True)
        with Products() as counted:
            layer(X).backward(torch.randn(2, 12, 12, 4))
        assert counted.products >= 6
        return counted.subnormal

    assert not any(map(count, ALPHAS))
    monkeypatch.setattr(
        "attnconv.layers.attention.softmax_without_tails", lambda scores, *n: scores.softmax(dim=-1)
    )
    monkeypatch.setattr(
        "attnconv.layers.encodings.softmax_without_tails",
        lambda scores: scores.softmax(dim=-1),
    )
    assert any(map(count, ALPHAS)), "without the cut there are some"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_what_is_cut_off_cannot_change_a_sum(dtype):
    eps = torch.finfo(dtype).eps
    for scale in (0.3, 3.0, 30.0, 300.0):
        scores = (scale * torch.randn(50, 64)).to(dtype)
        whole = scores.double().softmax(dim=-1)
        cut = softmax_without_tails(scores).double()
        dropped = torch.where(cut == 0, whole, 0.0)
        assert (dropped.sum(dim=-1) <= eps / 4 * whole.amax(dim=-1) * (1 + eps)).all()
        assert ((cut - whole).abs() <= 8 * eps * whole.amax(dim=-1, keepdim=True)).all()
    assert (dropped > 0).any()
