"""The models of Table 4 and of the book's later chapters: specs, networks, pruning and cost."""

from .cnn import SmallCNN
from .cost import cost_of
from .networks import (
    PAPER_CRITERION,
    SelfAttentionNet,
    build_model,
    degenerate_heads,
    heads_per_layer,
    prune_degenerate_heads,
    snapshot,
)
from .specs import ARMS, BEYOND, MODELS, PUBLISHED_HEADS_LEFT, SPECS, TIERS, recipe, tiers_of
