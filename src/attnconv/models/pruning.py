"""Pruning the degenerate heads of a generalised quadratic model: appendix E."""

import copy
from typing import cast

import torch
from torch import Tensor, nn

from ..layers.attention import PositionAttention
from ..theory.encodings import GeneralizedQuadraticEncoding
from .networks import SelfAttentionNet

#: Of appendix E; the defaults are the published code's.
PAPER_CRITERION = {"max_condition": 1e5, "min_eigenvalue": 1e-5}


def degenerate_heads(
    encoding: GeneralizedQuadraticEncoding, max_condition: float = 1e3, min_eigenvalue: float = 1e-5
) -> Tensor:
    """Which heads attend to a thin stripe (condition number of `Sigma^-1` above `max_condition`) or
    to everything alike (largest eigenvalue below `min_eigenvalue`, one over pixels squared):
    `(N_h,)` booleans. Appendix E; see `prune_degenerate_heads`.
    """
    # their squares are the eigenvalues of S S^T
    singular = torch.linalg.svdvals(encoding.root.detach().double())
    largest, smallest = singular[:, 0].square(), singular[:, 1].square()
    return (largest < min_eigenvalue) | (largest > max_condition * smallest)


def prune_degenerate_heads(
    model: SelfAttentionNet, max_condition: float = 1e3, min_eigenvalue: float = 1e-5
) -> tuple[SelfAttentionNet, list[list[int]]]:
    """A copy of a generalised quadratic model without its degenerate heads, and which heads each
    layer lost (from 0).

    The heads that are left see what they saw, through the values that they had; b_out stays. The
    default criterion is the published code's; `PAPER_CRITERION` is the text's. TypeError for a
    model of another encoding.
    """
    encodings = [
        getattr(attention, "encoding", None) for attention in getattr(model, "attentions", [])
    ]
    if not encodings or not all(
        isinstance(encoding, GeneralizedQuadraticEncoding) for encoding in encodings
    ):
        raise TypeError(
            f"got {type(model).__name__}, expected a network with the generalised quadratic"
            " encoding (sa-generalized)"
        )
    pruned, removed = copy.deepcopy(model), []
    for attention in cast(list[PositionAttention], pruned.attentions):
        encoding = cast(GeneralizedQuadraticEncoding, attention.encoding)
        degenerate = degenerate_heads(encoding, max_condition, min_eigenvalue)
        kept = (~degenerate).nonzero().flatten()
        value = (
            attention.value.weight.detach().unflatten(1, (-1, attention.dim_in))[:, kept].flatten(1)
        )
        attention.encoding = encoding.select(kept)
        attention.value.in_features = value.shape[1]
        attention.value.weight = nn.Parameter(value.clone())
        removed.append(degenerate.nonzero().flatten().tolist())
    return pruned, removed
