"""The models of Table 4 and beyond it: specs, networks, pruning and cost."""

from .cnn import SmallCNN
from .cost import cost_of
from .networks import SelfAttentionNet, build_model, heads_per_layer, snapshot
from .pruning import PAPER_CRITERION, degenerate_heads, prune_degenerate_heads
from .specs import ARMS, BEYOND, MODELS, PUBLISHED_HEADS_LEFT, SPECS, TIERS, recipe, tiers_of
