"""What a run leaves: a partial record while it is under way, the whole one at its end, and of some
the weights."""

import math
import warnings
from contextlib import suppress
from typing import cast

import torch
from torch import Tensor, nn

from ..data import PHOTOGRAPHS, Split, load_photograph
from ..measures.grid import as_convolutions
from ..measures.heads import MEAN_IMAGES, SINGLE_IMAGES, content_maps
from ..models import SPECS, SelfAttentionNet, snapshot
from ..runs.history import stack_snapshots
from ..runs.parameters import Folders, RunParameters
from ..runs.record import RunRecord, load_run, provenance, write_run
from ..runs.weights import named_weights, write_weights
from ..store import DamagedFile
from .checkpoint import Checkpoints, Progress
from .evaluation import evaluate
from .lineage import epochs_to_keep
from .processes import Processes

# bytes: where a snapshot every epoch would be more, every second or third is kept
SNAPSHOTS_SIZE = 2_000_000


class Recorder:
    """Writes the record of a run; of several processes the first does."""

    def __init__(
        self,
        parameters: RunParameters,
        data: Split,
        processes: Processes,
        model: nn.Module,
        progress: Progress,
    ):
        self.parameters, self.data, self.model, self.progress = parameters, data, model, progress
        self.writes, self.device = processes.is_main, processes.device
        self.provenance = provenance(processes.device, processes.count)
        self.finished_before = progress.epoch == parameters.epochs
        size = sum(value.numel() * value.element_size() for value in snapshot(model).values())
        self.snapshot_every = max(1, math.ceil(size * (parameters.epochs + 1) / SNAPSHOTS_SIZE))

    def take_snapshot(self) -> None:
        """Of the heads as they are now, if this epoch's is kept; and of the weights, if another run
        may start from them."""
        epoch = self.progress.epoch
        if self.writes and epoch in epochs_to_keep(self.parameters):
            kept = Checkpoints(self.parameters.checkpoint_folder)
            kept.keep_weights(epoch, named_weights(self.model), self.parameters.identity())
        if epoch % self.snapshot_every == 0 or epoch == self.parameters.epochs:
            self.progress.snapshots[epoch] = snapshot(self.model)

    def partial(self, status: str) -> None:
        """A record without attention, "running" or "stopped"; a warning where there is no room for
        it."""
        if not self.writes:
            return
        try:
            self._write(status, None)
        except OSError as error:  # a full disk: the run can still end well
            warnings.warn(
                f"the partial record in {self.parameters.record_folder} could not be written"
                f" ({error})",
                stacklevel=2,
            )

    def finish(self) -> RunRecord | None:
        """The whole record, written by the first process unless it is there; None on the others."""
        if not self.writes:
            return None
        # then the record that is there is this run's, and tells where it was trained
        if self.finished_before:
            with suppress(FileNotFoundError, DamagedFile):
                record = load_run(self.parameters.record_folder)
                if record.info.status == "finished":
                    return record
        start = SPECS[self.parameters.model].start
        if start and start.heads and self.progress.parent is not None:
            self.progress.parent |= self._nearest_convolutions()
        if self.parameters.keeps_weights:
            write_weights(self.parameters.record_folder, self.model, self._first_test_images())
        return self._write("finished", self._attention())

    def _write(self, status: str, attention: dict[str, Tensor] | None) -> RunRecord:
        progress = self.progress
        done = len(progress.metrics) * len(self.data.train)
        info = {
            "status": status,
            "parameters": self.parameters.model_dump(exclude=Folders.names()),
            "dataset": {
                "name": self.data.dataset.name,
                "fingerprint": self.data.dataset.fingerprint,
                "train_images": len(self.data.train),
                "test_images": len(self.data.test),
            },
            "parameter_count": sum(parameter.numel() for parameter in self.model.parameters()),
            "wall_seconds": round(progress.seconds, 3),
            "images_per_second": (
                round(done / progress.training_seconds, 1) if progress.training_seconds else None
            ),
            "times_resumed": progress.times_resumed,
            "parent": progress.parent,
        }
        return write_run(
            self.parameters.record_folder, info | self.provenance, progress.metrics, attention
        )

    def _first_test_images(self) -> dict[str, float]:
        """How many of the first test images the trained model gets right: what a reader of its
        weights can check quickly."""
        count = min(1000, len(self.data.test))
        _, accuracy = evaluate(self.model, self.data.test, first=count)
        return {"first_test_images": count, "accuracy": accuracy}

    def _nearest_convolutions(self) -> dict[str, float | list[float]]:
        """Of heads that may have moved: how far each layer is from its nearest convolution, and the
        accuracy with these in their places."""
        cnn, distances = as_convolutions(self.model)
        accuracy = evaluate(cnn, self.data.test)[1]
        return {"distances": distances, "test_accuracy_as_convolutions": accuracy}

    def _attention(self) -> dict[str, Tensor]:
        """What the figures need: the snapshots over the epochs or, with content, maps of test
        images and photographs."""
        if SPECS[self.parameters.model].encoding != "content":
            return stack_snapshots(self.progress.snapshots)
        images = self.data.test.plain(
            torch.arange(min(MEAN_IMAGES, len(self.data.test)), device=self.device)
        )[0]
        single = {"image": images[:SINGLE_IMAGES]}
        if images.shape[1] == 3:
            photographs = torch.stack(
                [load_photograph(name, (images.shape[2], images.shape[3])) for name in PHOTOGRAPHS]
            )
            pixels = (photographs * 255).round().to(torch.uint8)
            single["photograph"] = self.data.dataset.normalise(pixels).to(self.device)
        return content_maps(cast(SelfAttentionNet, self.model), images, single).to_tensors()
