"""Write what a run leaves behind: checkpoints, weights and the record."""

import math
import warnings
from typing import Any, cast

import torch
from torch import Tensor, nn

from attnconv.networks import SelfAttentionNet

from ..accuracy import evaluate
from ..data import PHOTOGRAPHS, load_photograph
from ..heads import MEAN_IMAGES, SINGLE_IMAGES, content_maps
from ..runs.history import snapshot, stack_snapshots
from ..runs.parameters import Folders
from ..runs.record import RunRecord, provenance, write_run
from ..runs.weights import named_weights, write_weights
from ..specs import SPECS
from ..store import remove_temporary
from ..studies.freed.measures import as_convolutions
from ..studies.freed.network import attention_layers
from ..studies.starts.measures import SHIFTS, shift_probabilities
from .checkpoint import Checkpoints
from .learner import Learner
from .origin import epochs_to_keep

# in bytes; a larger history keeps a snapshot of the heads only every second or third epoch
SNAPSHOTS_SIZE = 2_000_000
TABLES_SIZE = 150_000  # for the biases of vision transformers, of which there are many runs


class Recorder:
    """Writes the files of a run, but only in the first process.

    At the start, it removes unfinished files and, unless the run resumes, its earlier checkpoints.
    """

    def __init__(self, learner: Learner):
        parameters = learner.parameters
        self.learner = learner
        self.parameters = parameters
        self.data = learner.data
        self.model = learner.model
        self.progress = learner.progress
        self.writes = learner.processes.is_main
        self.provenance = provenance(learner.device, learner.processes.count)
        self.checkpoints = Checkpoints(parameters.checkpoint_folder)
        self.snapshot_every = snapshot_interval(learner.model, parameters.epochs)
        self.keep_after = epochs_to_keep(parameters)
        if self.writes:
            remove_temporary(parameters.checkpoint_folder)
            remove_temporary(parameters.record_folder)
            if not parameters.resume:
                self.checkpoints.clear()

    # --- during training ---

    def keep_state(self) -> None:
        """Store a snapshot of the heads and, for other runs, the weights, if they are due."""
        epoch = self.progress.epoch
        if epoch in self.keep_after and self.writes:
            identity = self.parameters.identity()
            self.checkpoints.keep_weights(epoch, named_weights(self.model), identity)
        if epoch % self.snapshot_every == 0 or epoch == self.parameters.epochs:
            self.progress.snapshots[epoch] = snapshot(self.model)

    def is_checkpoint_due(self) -> bool:
        """Return whether a checkpoint is to be written after the last completed epoch."""
        epoch = self.progress.epoch
        every = self.parameters.checkpoint_every
        return every > 0 and (epoch % every == 0 or epoch == self.parameters.epochs)

    def write_checkpoint(self) -> bool:
        """Write a checkpoint; return False if writing failed."""
        checkpoint = self.learner.checkpoint()  # by all processes together
        return not self.writes or self.checkpoints.write(checkpoint)

    def write_partial(self, status: str) -> None:
        """Write an unfinished run's record, without attention, and warn if writing fails.

        `status` is "running" or "stopped".
        """
        if not self.writes:
            return
        try:
            self._write_record(status, None)
        except OSError as error:  # such as a full disk: the run can still succeed
            folder = self.parameters.record_folder
            text = f"the partial record in {folder} could not be written ({error})"
            warnings.warn(text, stacklevel=2)

    # --- at the end ---

    def finish(self) -> RunRecord:
        """Write the complete record and, for some runs, the weights; return the record."""
        if measured := self._measures_as_convolutions():
            self.progress.parent = {**(self.progress.parent or {}), **measured}
        if self.parameters.keeps_weights:
            # the accuracy on a few images, with which a reader can verify the weights
            count = min(1000, len(self.data.test))
            _, accuracy = evaluate(self.model, self.data.test, first=count)
            check = {"first_test_images": count, "accuracy": accuracy}
            write_weights(self.parameters.record_folder, self.model, check)
        return self._write_record("finished", self._attention())

    def _measures_as_convolutions(self) -> dict[str, Any]:
        """Return the measures of a CNN whose convolutions were replaced by attention (chapter 15).

        These are each layer's distance from its nearest convolution, and the accuracy with these
        convolutions in place of the layers. Other networks have none.
        """
        if not attention_layers(self.model):
            return {}
        cnn, distances = as_convolutions(self.model)
        accuracy = evaluate(cnn, self.data.test)[1]
        return {"distances": distances, "test_accuracy_as_convolutions": accuracy}

    def _attention(self) -> dict[str, Tensor]:
        """Return what the record contains of the model's attention; see `ModelSpec`."""
        test = self.data.test
        kind = SPECS[self.parameters.model].attention
        first = torch.arange(min(MEAN_IMAGES, len(test)), device=test.labels.device)
        images, _ = test.plain(first)
        if kind == "maps":
            return self._content_maps(images)
        tensors = stack_snapshots(self.progress.snapshots)
        if kind == "heads and shifts":
            tensors[SHIFTS] = shift_probabilities(self.model, images)
        return tensors

    def _content_maps(self, images: Tensor) -> dict[str, Tensor]:
        single = {"image": images[:SINGLE_IMAGES]}
        if images.shape[1] == 3:
            height, width = images.shape[2:]
            photographs = [load_photograph(name, (height, width)) for name in PHOTOGRAPHS]
            pixels = (torch.stack(photographs) * 255).round().to(torch.uint8)
            single["photograph"] = self.data.dataset.normalise(pixels).to(images.device)
        return content_maps(cast(SelfAttentionNet, self.model), images, single).to_tensors()

    def _write_record(self, status: str, attention: dict[str, Tensor] | None) -> RunRecord:
        progress = self.progress
        dataset = self.data.dataset
        done = len(progress.metrics) * len(self.data.train)
        seconds = progress.training_seconds
        info = {
            "status": status,
            "parameters": self.parameters.model_dump(exclude=Folders.names()),
            "dataset": {
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                "train_images": len(self.data.train),
                "test_images": len(self.data.test),
            },
            "parameter_count": sum(parameter.numel() for parameter in self.model.parameters()),
            "wall_seconds": round(progress.seconds, 3),
            "images_per_second": round(done / seconds, 1) if seconds else None,
            "times_resumed": progress.times_resumed,
            "parent": progress.parent,
        }
        folder = self.parameters.record_folder
        return write_run(folder, info | self.provenance, progress.metrics, attention)


def snapshot_interval(model: nn.Module, epochs: int) -> int:
    """Return the number of epochs between snapshots, chosen to limit the size of the record."""
    values = snapshot(model)
    size = sum(value.numel() * value.element_size() for value in values.values())
    limit = TABLES_SIZE if "layer1.table" in values else SNAPSHOTS_SIZE
    return max(1, math.ceil(size * (epochs + 1) / limit))
