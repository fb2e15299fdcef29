"""The evaluation loop: the logits of a network on all images of a split."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from ..data import Batches


@torch.no_grad()
def logits_by_batch(
    model: nn.Module,
    batches: Batches,
    index: Tensor | None = None,
    autocast: Callable[[], AbstractContextManager] = nullcontext,
    mirrored: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits `(B, classes)`, float32, and labels `(B,)`, in evaluation mode.

    `index`: the images to use, by default all; `mirrored`: their mirror images instead. The model's
    mode is restored at the end.
    """
    training, device = model.training, batches.labels.device
    model.eval()
    index = torch.arange(len(batches), device=device) if index is None else index
    for part in index.split(500 if device.type == "cuda" else 100):
        images, labels = batches.plain(part)
        torch.compiler.cudagraph_mark_step_begin()
        with autocast():
            logits = model(images.flip(3) if mirrored else images).float()
        yield logits, labels
    model.train(training)
