"""The models of Table 4 and beyond it: networks, pruning, cost, and one spec for each."""

from .cnn import SmallCNN
from .cost import cost_of
from .networks import SelfAttentionNet, build_model, snapshot
from .pruning import PAPER_CRITERION, degenerate_heads, prune_degenerate_heads
from .specs import ARMS, BEYOND, MODELS, PUBLISHED_HEADS_LEFT, SPECS, recipe

__all__ = [
    "ARMS",
    "BEYOND",
    "MODELS",
    "PAPER_CRITERION",
    "PUBLISHED_HEADS_LEFT",
    "SPECS",
    "SelfAttentionNet",
    "SmallCNN",
    "build_model",
    "cost_of",
    "degenerate_heads",
    "prune_degenerate_heads",
    "recipe",
    "snapshot",
]
