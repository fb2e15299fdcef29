"""How much memory a step touches at a time: on a CPU that is what takes the time."""

import ctypes
import math
from contextlib import suppress

from torch import nn

from ..data import DATASETS
from ..models import SelfAttentionNet
from ..runs.parameters import RunParameters
from .processes import Processes

LARGEST_BLOCK = 32 * 2**20  # bytes
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def heads_per_layer(model: nn.Module) -> list[int]:
    """Empty for a model without attention."""
    attentions = model.attentions if isinstance(model, SelfAttentionNet) else []
    return [attention.num_heads for attention in attentions]


def micro_batch(model: nn.Module, parameters: RunParameters, processes: Processes) -> int:
    """How many images of a batch to take at a time, in about equal parts.

    On a CPU as many as keep a layer's largest tensor, the values of all heads, below 32 MiB:
    beyond, memory is what takes the time. Elsewhere, and where the images of a batch share what is
    random or measured (dropout of the attention, batch normalisation), all.
    """
    whole = math.ceil(parameters.batch_size / processes.count)
    if (
        processes.device.type != "cpu"
        or parameters.attention_dropout
        or not isinstance(model, SelfAttentionNet)
    ):
        return whole
    pixels = (DATASETS[parameters.dataset].image_size // parameters.pooling) ** 2
    fit = max(
        1, LARGEST_BLOCK // (4 * max(1, *heads_per_layer(model)) * pixels * parameters.hidden)
    )
    return math.ceil(whole / math.ceil(whole / fit))


def keep_freed_memory() -> None:
    """Have glibc keep the memory of freed tensors for the next step. As it is set up it gives large
    blocks back to the system, and asks for them again page by page, which took about a quarter of a
    step where it was measured. No other C library has the call."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, 2**30)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
