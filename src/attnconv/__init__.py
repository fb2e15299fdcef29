"""An executable companion to a paper on the relationship between self-attention and convolution.

The paper is by Cordonnier, Loukas and Jaggi (ICLR 2020). The subpackages `theory`, `layers` and
`models` need only torch, except that the model `resnet18` also needs torchvision and vision
transformers need timm. `inspect_attention`, `load_dataset` and `load_model` need the extra `lab`,
whose packages are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .layers.attention import attention_probabilities
from .layers.conv import conv_to_attention, convert_network
from .layers.converse import attention_to_conv
from .layers.convert_back import convert_back
from .models import build_model, cost_of, prune_degenerate_heads
from .theory.expressivity import expresses_convolution
from .theory.theorem1 import hard_alpha
from .vit.start import init_as_convolution

if TYPE_CHECKING:
    from .data import load_dataset
    from .measures.inspection import inspect_attention
    from .runs.weights import load_model

__all__ = [
    "attention_probabilities",
    "attention_to_conv",
    "build_model",
    "conv_to_attention",
    "convert_back",
    "convert_network",
    "cost_of",
    "expresses_convolution",
    "hard_alpha",
    "init_as_convolution",
    "inspect_attention",
    "load_dataset",
    "load_model",
    "prune_degenerate_heads",
]


#: The public names that need the extra `lab`, each with the module that defines it.
LAZY = {
    "inspect_attention": ".measures.inspection",
    "load_dataset": ".data",
    "load_model": ".runs.weights",
}


def __getattr__(name: str):
    if name not in LAZY:
        raise AttributeError(f"module 'attnconv' has no attribute {name!r}")
    try:
        return getattr(import_module(LAZY[name], __name__), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"attnconv.{name} needs {error.name}: pip install 'attnconv[lab]'"
        ) from error
