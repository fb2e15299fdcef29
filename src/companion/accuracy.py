"""Test accuracy: the evaluation loop, and statistics over the runs of a model."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnconv.layers.mode import evaluation_mode

from .data import Batches
from .runs.record import RunRecord


@torch.no_grad()
def logits_by_batch(
    model: nn.Module,
    batches: Batches,
    index: Tensor | None = None,
    autocast: Callable[[], AbstractContextManager] = nullcontext,
    mirrored: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits `(B, classes)` and labels `(B,)` of each batch, in evaluation mode.

    The logits are float32. `index` selects the images (by default, all of them), and `mirrored`
    replaces them with their mirror images. At the end, the model is returned to its original mode.
    """
    device = batches.labels.device
    index = torch.arange(len(batches), device=device) if index is None else index
    with evaluation_mode(model):
        for part in index.split(500 if device.type == "cuda" else 100):
            images, labels = batches.plain(part)
            torch.compiler.cudagraph_mark_step_begin()
            with autocast():
                logits = model(images.flip(3) if mirrored else images).float()
            yield logits, labels


@dataclass(frozen=True)
class Accuracy:
    """The mean test accuracy of a model over its runs, and its spread.

    `last` is the mean accuracy after the last epoch, `spread` is the sample standard deviation of
    the accuracy over the runs (None for a single run), and `best` is the mean of each run's best
    accuracy. `seeds` is the number of runs, and `epochs` is the number of training epochs, such as
    "20" or "20 or 60".
    """

    last: float
    spread: float | None
    best: float
    seeds: int
    epochs: str

    @classmethod
    def of(cls, runs: Sequence[RunRecord]) -> "Accuracy":
        """Summarise the accuracy of one or more runs of a model."""
        last = [record.accuracy for record in runs]
        return cls(
            last=statistics.mean(last),
            spread=statistics.stdev(last) if len(runs) > 1 else None,
            best=statistics.mean(record.best_accuracy for record in runs),
            seeds=len(runs),
            epochs=" or ".join(map(str, sorted({record.info.epochs_done for record in runs}))),
        )

    @property
    def conditions(self) -> str:
        """The number of seeds and epochs as text, such as "3 seeds, 20 epochs"."""
        return f"{self.seeds} seed{'s' * (self.seeds > 1)}, {self.epochs} epochs"

    @property
    def deviation(self) -> str:
        """The standard deviation as text, such as "± 0.0041"; empty for a single run."""
        return "" if self.spread is None else f"± {self.spread:.4f}"

    def __str__(self) -> str:
        return f"{self.last:.4f} {self.deviation}".rstrip()
