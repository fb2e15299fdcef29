"""The models of Table 4: networks, pruning, cost, and one spec for each."""

from .cost import cost_of
from .networks import SelfAttentionNet, build_model, snapshot
from .pruning import PAPER_CRITERION, degenerate_heads, prune_degenerate_heads
from .specs import MODELS, PUBLISHED_HEADS_LEFT, recipe

__all__ = [
    "MODELS",
    "PAPER_CRITERION",
    "PUBLISHED_HEADS_LEFT",
    "SelfAttentionNet",
    "build_model",
    "cost_of",
    "degenerate_heads",
    "prune_degenerate_heads",
    "recipe",
    "snapshot",
]
