"""Evaluate a model on images, and write the record of a run."""

import math
import warnings
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnconv.networks import SelfAttentionNet

from ..accuracy import logits_by_batch
from ..data import PHOTOGRAPHS, Batches, Split, load_photograph
from ..heads import MEAN_IMAGES, SINGLE_IMAGES, content_maps
from ..runs.history import snapshot, stack_snapshots
from ..runs.parameters import Folders, RunParameters
from ..runs.record import RunRecord, provenance, write_run
from ..runs.weights import write_weights
from ..specs import SPECS
from ..studies.starts.measures import SHIFTS, shift_probabilities
from .checkpoint import Progress
from .machine import Processes, autocast

# in bytes; a larger history keeps a snapshot of the heads only every second or third epoch
SNAPSHOTS_SIZE = 2_000_000
TABLES_SIZE = 150_000  # for the biases of vision transformers, of which there are many runs


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Batches,
    precision: str = "float32",
    processes: Processes | None = None,
    first: int | None = None,
) -> tuple[float, float]:
    """Return the mean cross-entropy and the accuracy of a model on the images of `batches`.

    The accuracy is the share of images whose largest logit is that of the label. `first` limits the
    evaluation to that many images, from the start. If `processes` is given, the images are divided
    among the processes. At the end, the model is returned to its original mode.
    """
    device, count = batches.labels.device, first or len(batches)
    mine = torch.arange(count, device=device)
    mine = mine[processes.index :: processes.count] if processes else mine
    sums = torch.zeros(2, dtype=torch.float64, device=device)  # of the losses and the hits
    mixed = partial(autocast, device, precision)
    for logits, labels in logits_by_batch(model, batches, mine, mixed):
        loss = F.cross_entropy(logits, labels, reduction="sum")
        sums += torch.stack([loss, (logits.argmax(dim=1) == labels).sum()])
    sums = processes.total(sums) if processes else sums
    loss, accuracy = (sums / count).tolist()
    return loss, accuracy


def snapshot_interval(model: nn.Module, epochs: int) -> int:
    """Return the number of epochs between snapshots, chosen to limit the size of the record."""
    values = snapshot(model)
    size = sum(value.numel() * value.element_size() for value in values.values())
    limit = TABLES_SIZE if "layer1.table" in values else SNAPSHOTS_SIZE
    return max(1, math.ceil(size * (epochs + 1) / limit))


class Recorder:
    """Writes the record of a run, but only in the first process."""

    def __init__(
        self, parameters: RunParameters, data: Split, processes: Processes, model: nn.Module
    ):
        self.parameters, self.data, self.model = parameters, data, model
        self.writes = processes.is_main
        self.provenance = provenance(processes.device, processes.count)

    def partial(self, status: str, progress: Progress) -> None:
        """Write an unfinished run's record, without attention, and warn if writing fails.

        `status` is "running" or "stopped".
        """
        if not self.writes:
            return
        try:
            self._write(status, progress, None)
        except OSError as error:  # such as a full disk: the run can still succeed
            folder = self.parameters.record_folder
            text = f"the partial record in {folder} could not be written ({error})"
            warnings.warn(text, stacklevel=2)

    def finish(self, progress: Progress) -> RunRecord:
        """Write the complete record and, for some runs, the weights; return the record."""
        if self.parameters.keeps_weights:
            # the accuracy on a few images, with which a reader can verify the weights
            count = min(1000, len(self.data.test))
            _, accuracy = evaluate(self.model, self.data.test, first=count)
            check = {"first_test_images": count, "accuracy": accuracy}
            write_weights(self.parameters.record_folder, self.model, check)
        return self._write("finished", progress, self._attention(progress))

    def _write(
        self, status: str, progress: Progress, attention: dict[str, Tensor] | None
    ) -> RunRecord:
        done, seconds = len(progress.metrics) * len(self.data.train), progress.training_seconds
        dataset = {name: getattr(self.data.dataset, name) for name in ("name", "fingerprint")}
        dataset |= {"train_images": len(self.data.train), "test_images": len(self.data.test)}
        info = {
            "status": status,
            "parameters": self.parameters.model_dump(exclude=Folders.names()),
            "dataset": dataset,
            "parameter_count": sum(parameter.numel() for parameter in self.model.parameters()),
            "wall_seconds": round(progress.seconds, 3),
            "images_per_second": round(done / seconds, 1) if seconds else None,
            "times_resumed": progress.times_resumed,
            "parent": progress.parent,
        }
        folder = self.parameters.record_folder
        return write_run(folder, info | self.provenance, progress.metrics, attention)

    def _attention(self, progress: Progress) -> dict[str, Tensor]:
        """Return the attention to be recorded: snapshots or, with content, maps of some images."""
        test, spec = self.data.test, SPECS[self.parameters.model]
        index = torch.arange(min(MEAN_IMAGES, len(test)), device=test.labels.device)
        images, _ = test.plain(index)
        if spec.encoding != "content":
            tensors = stack_snapshots(progress.snapshots)
            return tensors | ({SHIFTS: shift_probabilities(self.model, images)} if spec.vit else {})
        single = {"image": images[:SINGLE_IMAGES]}
        if images.shape[1] == 3:
            height, width = images.shape[2:]
            photographs = [load_photograph(name, (height, width)) for name in PHOTOGRAPHS]
            pixels = (torch.stack(photographs) * 255).round().to(torch.uint8)
            single["photograph"] = self.data.dataset.normalise(pixels).to(images.device)
        return content_maps(cast(SelfAttentionNet, self.model), images, single).to_tensors()
