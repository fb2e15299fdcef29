"""Prune the degenerate heads of a generalised quadratic model (appendix E)."""

import copy
from typing import cast

import torch
from torch import Tensor, nn

from ..layers.attention import PositionAttention
from ..theory.encodings import GeneralizedQuadraticEncoding
from .networks import SelfAttentionNet

#: The criterion that appendix E states; the default arguments are the published code's.
PAPER_CRITERION = {"max_condition": 1e5, "min_eigenvalue": 1e-5}


def degenerate_heads(
    encoding: GeneralizedQuadraticEncoding, max_condition: float = 1e3, min_eigenvalue: float = 1e-5
) -> Tensor:
    """Return which heads are degenerate, `(N_h,)` booleans (appendix E).

    A degenerate head attends to a thin stripe (condition number of `Sigma^-1` above
    `max_condition`) or to all pixels alike (largest eigenvalue below `min_eigenvalue`, in one over
    pixels squared).
    """
    # the squared singular values of S are the eigenvalues of S S^T
    singular = torch.linalg.svdvals(encoding.root.detach().double())
    largest, smallest = singular[:, 0].square(), singular[:, 1].square()
    return (largest < min_eigenvalue) | (largest > max_condition * smallest)


def prune_degenerate_heads(
    model: SelfAttentionNet, max_condition: float = 1e3, min_eigenvalue: float = 1e-5
) -> tuple[SelfAttentionNet, list[list[int]]]:
    """Return a copy without the degenerate heads, and the heads that each layer lost (from 0).

    The heads that are left keep their scores and values; b_out stays. The default criterion is the
    published code's, `PAPER_CRITERION` the text's. TypeError unless the model has the generalised
    quadratic encoding.
    """
    encodings = [getattr(layer, "encoding", None) for layer in getattr(model, "attentions", [])]
    if not encodings or not all(isinstance(e, GeneralizedQuadraticEncoding) for e in encodings):
        raise TypeError(
            f"got {type(model).__name__}, expected a network with the generalised quadratic"
            " encoding (sa-generalized)"
        )
    pruned, removed = copy.deepcopy(model), []
    for attention in cast(list[PositionAttention], pruned.attentions):
        encoding = cast(GeneralizedQuadraticEncoding, attention.encoding)
        degenerate = degenerate_heads(encoding, max_condition, min_eigenvalue)
        kept = (~degenerate).nonzero().flatten()
        by_head = attention.value.weight.detach().unflatten(1, (-1, attention.dim_in))
        value = by_head[:, kept].flatten(1)
        attention.encoding = encoding.select(kept)
        attention.value.in_features = value.shape[1]
        attention.value.weight = nn.Parameter(value.clone())
        removed.append(degenerate.nonzero().flatten().tolist())
    return pruned, removed
