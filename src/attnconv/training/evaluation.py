"""How well a model does on images that it was not trained on."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from ..data import Batches
from ..measures.evaluation import logits_by_batch
from .processes import Processes


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Batches,
    autocast: Callable[[], AbstractContextManager] = nullcontext,
    processes: Processes | None = None,
    first: int | None = None,
) -> tuple[float, float]:
    """Mean cross-entropy, and the share of images whose largest logit is at the label. Leaves the
    model's mode as it was.

    `first`: of so many images alone. With `processes` each takes its share.
    """
    device, count = batches.labels.device, first or len(batches)
    mine = torch.arange(count, device=device)
    mine = mine[processes.index :: processes.count] if processes else mine
    sums = torch.zeros(2, dtype=torch.float64, device=device)  # of the losses, of the hits
    for logits, labels in logits_by_batch(model, batches, mine, autocast):
        sums += torch.stack(
            [
                F.cross_entropy(logits, labels, reduction="sum"),
                (logits.argmax(dim=1) == labels).sum(),
            ]
        )
    sums = processes.total(sums) if processes else sums
    loss, accuracy = (sums / count).tolist()
    return loss, accuracy
