import pytest
import torch
from test_encodings import kinds

from attnconv import attention, attention_probabilities, build_model
from attnconv.checks import largest_gap
from attnconv.encodings import LearnedShiftEmbedding
from attnconv.grid import relative_shifts
from attnconv.layers import ContentAttention, PositionAttention


@pytest.mark.parametrize("name", list(kinds()))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_layer_equals_the_oracle_forward_and_backward(name, dtype):
    layer = PositionAttention(kinds(dtype)[name], 3, 5).to(dtype)
    X = torch.randn(2, 6, 7, 3, dtype=dtype, requires_grad=True)
    A = layer.encoding.position_scores(6, 7).reshape(4, 42, 42)
    W_val = layer.value.weight.unflatten(1, (4, 3)).permute(1, 2, 0)  # (N_h, D_in, D_out)
    W_out = torch.eye(5, dtype=dtype).repeat(4, 1)
    oracle = attention.multi_head_self_attention(A, X.flatten(1, 2), W_val, W_out, layer.value.bias).unflatten(1, (6, 7))
    inputs = [X, *layer.parameters()]
    weight = torch.randn_like(oracle)
    ours, theirs = (torch.autograd.grad((output * weight).sum(), inputs) for output in (layer(X), oracle))
    bound = 1e-12 if dtype == torch.float64 else 1e-5
    assert largest_gap(layer(X).detach(), oracle.detach()) < bound
    for our_gradient, their_gradient in zip(ours, theirs, strict=True):
        assert largest_gap(our_gradient, their_gradient) < bound


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_content_attention_equals_the_oracle_forward_and_backward(dtype):
    """The oracle: the first two terms of equation (8) with r_delta for each pair of pixels, softmax, equation (4)."""
    layer = ContentAttention(LearnedShiftEmbedding(6, 7, dim=4), 3, 5, 2).to(dtype)
    X = torch.randn(2, 6, 7, 5, dtype=dtype, requires_grad=True)
    r = layer.embedding(relative_shifts(6, 7)).flatten(2, 3).flatten(0, 1)  # (T, T, D_k)
    tokens = X.flatten(1, 2)
    queries, keys = ((tokens @ m.weight.T + m.bias).unflatten(-1, (3, 8)).transpose(1, 2) for m in (layer.query, layer.key))
    A = (torch.einsum("bhqd,bhkd->bhqk", queries, keys) + torch.einsum("bhqd,qkd->bhqk", queries, r)) / 8**0.5
    W_val = layer.value.weight.unflatten(1, (3, 5)).permute(1, 2, 0)
    W_out = torch.eye(2, dtype=dtype).repeat(3, 1)
    oracle = attention.multi_head_self_attention(A, tokens, W_val, W_out, layer.value.bias).unflatten(1, (6, 7))
    weight = torch.randn_like(oracle)
    inputs = [X, *layer.parameters()]
    ours, theirs = (torch.autograd.grad((output * weight).sum(), inputs) for output in (layer(X), oracle))
    bound = 1e-12 if dtype == torch.float64 else 1e-5
    assert largest_gap(layer(X).detach(), oracle.detach()) < bound
    position = torch.einsum("bhqd,qkd->bhqk", queries, r).reshape(2, 3, 6, 7, 6, 7) / 8**0.5
    content, rows, columns = layer.score_parts(X)
    assert largest_gap((rows.unsqueeze(-1) + columns.unsqueeze(-2)).detach(), position.detach()) < bound
    assert largest_gap((content.flatten(2, 3).flatten(-2) + position.flatten(2, 3).flatten(-2)).detach(), A.detach()) < bound
    assert largest_gap(layer.probabilities(X).detach(), A.softmax(-1).reshape(2, 3, 6, 7, 6, 7).detach()) < bound
    scale = max(gradient.abs().max() for gradient in theirs)  # the key bias is inert: its gradient is zero but for rounding
    for our_gradient, their_gradient in zip(ours, theirs, strict=True):
        assert (our_gradient - their_gradient).abs().max() / scale < bound


def test_position_scores_stay_exact_under_autocast():
    for kind in ("quadratic", "generalized", "learned"):
        layer = PositionAttention(kinds(torch.float32)[kind], 3, 5).eval()
        X = torch.randn(2, 6, 7, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = layer.head_averages(X)
        assert largest_gap(low.float().detach(), layer.head_averages(X).detach()) < 2e-2
    far = PositionAttention(kinds(torch.float32)["generalized"], 1, 1)
    with torch.no_grad():
        far.encoding.centers[0] = torch.tensor([15.3, -14.6])
    X = torch.zeros(1, 6, 7, 1)
    X[0, 5, 0] = 1.0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = far.head_averages(X)
    assert largest_gap(low.float().detach(), far.head_averages(X).detach()) < 1e-2


def test_dropout_acts_in_training_only():
    layer = PositionAttention(kinds(torch.float32)["quadratic"], 3, 5, dropout=0.5)
    X = torch.randn(1, 6, 7, 3)
    assert not torch.equal(layer(X), layer(X))
    assert torch.equal(layer.eval()(X), layer(X))
    content = ContentAttention(LearnedShiftEmbedding(6, 7, dim=4), 3, 3, 2, dropout=0.5)
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
        attention_probabilities(ContentAttention(LearnedShiftEmbedding(6, 7, dim=4), 3, 5, 2), 4, 4)
    assert attention_probabilities(layer, 4, 5).shape == (4, 4, 5, 4, 5)
