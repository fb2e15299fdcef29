"""The converse: position-only attention against its convolutions."""

import pytest
import torch
from helpers.encodings import kinds
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attnconv import attention_probabilities, attention_to_conv
from attnconv.layers.attention import PositionAttention
from attnconv.layers.encodings import QuadraticEncoding, RelativeBias
from companion.gaps import largest_gap


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
