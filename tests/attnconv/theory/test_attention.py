"""The oracle against torch's own layers and against loops."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnconv.theory import attention
from companion.gaps import check_gap, largest_gap

DTYPES = [torch.float64, torch.float32, torch.bfloat16]
BOUND = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}


@pytest.mark.parametrize("dtype", DTYPES)
def test_self_attention_equals_torch(dtype):
    X, W_qry, W_key, W_val = (
        torch.randn(*shape).to(dtype) for shape in ((2, 7, 5), (5, 4), (5, 4), (5, 6))
    )
    theirs = F.scaled_dot_product_attention(X @ W_qry, X @ W_key, X @ W_val, scale=1.0)
    assert largest_gap(attention.self_attention(X, W_qry, W_key, W_val), theirs) < BOUND[dtype]


def test_multi_head_self_attention_equals_torch():
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_bias.zero_()
        theirs.out_proj.bias.normal_()
    W_qry, W_key, W_val = theirs.in_proj_weight.reshape(3, 3, 4, 12).mT
    X = torch.randn(2, 7, 12).double()
    A = attention.attention_scores(X.unsqueeze(1), W_qry / 2, W_key)
    ours = attention.multi_head_self_attention(
        A, X, W_val, theirs.out_proj.weight.T, theirs.out_proj.bias
    )
    assert largest_gap(ours.detach(), theirs(X, X, X, need_weights=False)[0].detach()) < 1e-12


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (3, 5), (4, 2)])
def test_convolution_equals_torch(dtype, kernel):
    conv = nn.Conv2d(3, 4, kernel, padding="same").to(dtype)
    X = torch.randn(2, 8, 9, 3).to(dtype)
    ours = attention.convolution(X, conv.weight.permute(2, 3, 1, 0), conv.bias)
    assert largest_gap(ours, conv(X.movedim(-1, 1)).movedim(1, -1)) < BOUND[dtype]


def test_image_attention_is_token_attention():
    X, W_qry, W_key, W_val = torch.randn(4, 5, 3).double(), *torch.randn(3, 3, 3).double()
    A = attention.attention_scores(X.reshape(20, 3), W_qry, W_key)
    on_image = attention.image_self_attention(A.reshape(4, 5, 4, 5), X, W_val)
    assert largest_gap(on_image.reshape(20, 3), A.softmax(-1) @ X.reshape(20, 3) @ W_val) < 1e-14


def test_absolute_terms_match_loops_and_their_sum():
    X, P = torch.randn(2, 6, 3).double()
    W_qry, W_key = torch.randn(2, 3, 4).double()
    M = W_qry @ W_key.T
    terms = attention.absolute_score_terms(X, P, W_qry, W_key)
    for q in range(6):
        for k in range(6):
            expected = [a[q] @ M @ b[k] for a, b in ((X, X), (X, P), (P, X), (P, P))]
            assert torch.allclose(
                torch.stack([term[q, k] for term in terms]), torch.stack(expected)
            )
    assert largest_gap(sum(terms), attention.attention_scores(X, W_qry, W_key, P)) < 1e-12


def test_relative_terms_match_loops():
    T, D_in, D_k, D_p = 6, 3, 4, 5
    X = torch.randn(T, D_in).double()
    r = torch.randn(T, T, D_p).double()
    W_qry, W_key, W_key_hat = (torch.randn(D_k, d).double() for d in (D_in, D_in, D_p))
    u, v = torch.randn(2, D_k).double()
    terms = attention.relative_score_terms(X, r, W_qry, W_key, W_key_hat, u, v)
    for q in range(T):
        for k in range(T):
            expected = [
                X[q] @ W_qry.T @ W_key @ X[k],
                X[q] @ W_qry.T @ W_key_hat @ r[q, k],
                u @ W_key @ X[k],
                v @ W_key_hat @ r[q, k],
            ]
            ours = [term.expand(T, T)[q, k] for term in terms]
            assert torch.allclose(torch.stack(ours), torch.stack(expected))


def test_check_gap_fails_on_differences_and_nan(capsys):
    one = torch.ones(2)
    assert check_gap("equal", one, one, 1e-12) == 0
    assert "largest gap 0.0e+00" in capsys.readouterr().out
    for wrong in (1.1 * one, one * torch.nan):
        with pytest.raises(AssertionError, match="above the bound"):
            check_gap("different", wrong, one, 1e-3)
    with pytest.raises(ValueError, match="expected equal"):
        largest_gap(one, torch.ones(3))


def test_shapes_in_annotations_are_enforced():
    X = torch.randn(2, 7, 3)
    W = torch.randn(3, 4)
    attention.attention_scores(X, W, W)
    with pytest.raises(TypeError, match="W_key"):
        attention.attention_scores(X, W, torch.randn(4, 4))
    with pytest.raises(TypeError, match=r"D_in"):
        attention.self_attention(X, W, W, torch.randn(4, 3))
