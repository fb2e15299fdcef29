"""An executable companion to a paper on the relationship between self-attention and convolution.

The paper is by Cordonnier, Loukas and Jaggi (ICLR 2020). This package needs only torch, except that
the model `resnet18` also needs torchvision and vision transformers need timm. `theory` is the paper
translated literally into code, `layers` computes the same quickly, and `vit` starts and reads
vision transformers.

`load_dataset`, `load_model`, `figures` and the command line come from the book's laboratory, the
package `companion`, which needs the extra `lab`; it is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .ablation import ablate_attention
from .cost import cost_of
from .inspection import inspect_attention
from .layers.attention import attention_probabilities
from .layers.convert import conv_to_attention, convert_network
from .layers.convert_back import attention_to_conv, convert_back
from .networks import build_model, prune_degenerate_heads
from .theory.expressivity import expresses_convolution
from .theory.theorem1 import hard_alpha
from .vit.start import init_as_convolution

if TYPE_CHECKING:
    from companion.data import load_dataset
    from companion.runs.weights import load_model

__all__ = [
    "ablate_attention",
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
LAZY = {"load_dataset": "companion.data", "load_model": "companion.runs.weights"}


def __getattr__(name: str):
    if name not in LAZY:
        raise AttributeError(f"module 'attnconv' has no attribute {name!r}")
    try:
        return getattr(import_module(LAZY[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"attnconv.{name} needs {error.name}: pip install 'attnconv[lab]'"
        ) from error
