"""The weights of torch's fused attention, which it does not return itself."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnconv.vit.interception import Interception, fused_weights

HEADS, TOKENS, FEATURES = 4, 6, 3
CASES = {
    "plain": {},
    "scale": {"scale": 0.3},
    "bool mask": {"attn_mask": torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu()},
    "float mask": {
        "attn_mask": torch.linspace(-2, 2, TOKENS, dtype=torch.float64).outer(
            torch.arange(TOKENS).double()
        )
    },
    "blocked queries, bool": {"attn_mask": torch.arange(TOKENS).outer(torch.ones(TOKENS)) > 1},
    "blocked queries, float": {
        "attn_mask": torch.zeros(TOKENS, TOKENS, dtype=torch.float64).index_fill(
            0, torch.tensor([2, 3]), -torch.inf
        )
    },
    "causal": {"is_causal": True},
    "grouped": {"enable_gqa": True},
    "causal, grouped, scale": {"is_causal": True, "enable_gqa": True, "scale": 2.0},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_fused_weights_are_torchs_output_for_identity_values(options):
    generator = torch.Generator().manual_seed(0)
    heads = HEADS // 2 if "enable_gqa" in options else HEADS
    random = {"generator": generator, "dtype": torch.float64}
    query = torch.randn(2, HEADS, TOKENS, FEATURES, **random)
    key = torch.randn(2, heads, TOKENS, FEATURES, **random)
    identity = torch.eye(TOKENS, dtype=torch.float64).expand(2, heads, -1, -1)
    recorded = []
    with Interception(recorded.append):
        expected = scaled_dot_product_attention(query, key, identity, **options)
    weights = fused_weights(query, key, identity, **options)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(recorded[-1].weights, expected)
    assert not recorded[-1].problem
