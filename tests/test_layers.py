import pytest
import torch
from test_encodings import kinds

from attnconv import attention, attention_probabilities, build_model
from attnconv.checks import largest_gap
from attnconv.layers import PositionAttention


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
        assert largest_gap(our_gradient, their_gradient) < 10 * bound


def test_dropout_acts_in_training_only():
    layer = PositionAttention(kinds(torch.float32)["quadratic"], 3, 5, dropout=0.5)
    X = torch.randn(1, 6, 7, 3)
    assert not torch.equal(layer(X), layer(X))
    assert torch.equal(layer.eval()(X), layer(X))


def test_wrong_shapes_and_modules_are_refused():
    layer = PositionAttention(kinds(torch.float32)["quadratic"], 3, 5)
    with pytest.raises(ValueError, match=r"expected \(batch, height, width, 3\)"):
        layer(torch.randn(1, 3, 6, 7))
    with pytest.raises(TypeError, match="pass one of its layers"):
        attention_probabilities(build_model("sa-quadratic", num_layers=1), 4, 4)
    assert attention_probabilities(layer, 4, 5).shape == (4, 4, 5, 4, 5)
