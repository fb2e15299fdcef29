"""Test accuracy: evaluation of a model on images, and statistics over the runs of a model."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnconv.layers.mode import evaluation_mode

from .data import Batches
from .runs.record import RunRecord


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return a context in which models compute in bfloat16 if `precision` is `bfloat16`."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


@torch.no_grad()
def logits_by_batch(
    model: nn.Module,
    batches: Batches,
    index: Tensor | None = None,
    precision: str = "float32",
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
            with autocast(device, precision):
                logits = model(images.flip(3) if mirrored else images).float()
            yield logits, labels


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Batches,
    precision: str = "float32",
    first: int | None = None,
    share: slice = slice(None),
    total: Callable[[Tensor], Tensor] | None = None,
) -> tuple[float, float]:
    """Return the mean cross-entropy and the accuracy of a model on the images of `batches`.

    The accuracy is the share of images whose largest logit is that of the label. `first` limits the
    evaluation to that many images, from the start. If several processes divide the images among
    themselves, `share` selects those of this process, and `total` sums a tensor over all processes.
    At the end, the model is returned to its original mode.
    """
    device = batches.labels.device
    count = first or len(batches)
    mine = torch.arange(count, device=device)[share]
    sums = torch.zeros(2, dtype=torch.float64, device=device)  # of the losses and the hits
    for logits, labels in logits_by_batch(model, batches, mine, precision):
        loss = F.cross_entropy(logits, labels, reduction="sum")
        sums += torch.stack([loss, (logits.argmax(dim=1) == labels).sum()])
    loss, accuracy = ((total(sums) if total else sums) / count).tolist()
    return loss, accuracy


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


def with_seeds(runs: Sequence[RunRecord]) -> str:
    """Return the accuracy of a model's runs and their number as text, or "not run"."""
    return f"{Accuracy.of(runs)} (n = {len(runs)})" if runs else "not run"
