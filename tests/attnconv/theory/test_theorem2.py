"""Theorem 2 against attention with scores for each pair of pixels."""

import pytest
import torch
from helpers.encodings import H, W, kinds

from attnconv.theory.attention import image_self_attention
from attnconv.theory.theorem2 import attention_by_convolution
from companion.gaps import largest_gap


@pytest.mark.parametrize("name", list(kinds()))
def test_position_only_attention_is_a_normalised_convolution(name):
    encoding = kinds()[name]
    X = torch.randn(2, H, W, 3).double()
    for dense, by_offset in zip(
        encoding.position_scores(H, W), encoding.offset_scores(H, W), strict=True
    ):
        averages = image_self_attention(dense.expand(2, -1, -1, -1, -1), X, torch.eye(3).double())
        assert largest_gap(attention_by_convolution(X, by_offset), averages) < 1e-12
