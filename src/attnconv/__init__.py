"""Self-attention and convolution, checked in code: the companion of Cordonnier, Loukas and Jaggi (ICLR 2020)."""

from .construction import attention_to_conv, conv_to_attention, convert_network, hard_alpha
from .cost import cost_of
from .data import load_dataset
from .expressivity import expresses_convolution
from .layers import attention_probabilities
from .models import build_model, prune_degenerate_heads
from .weights import load_model

__all__ = [
    "attention_probabilities",
    "attention_to_conv",
    "build_model",
    "conv_to_attention",
    "convert_network",
    "cost_of",
    "expresses_convolution",
    "hard_alpha",
    "load_dataset",
    "load_model",
    "prune_degenerate_heads",
]
