"""Checkpoints of one run: the two newest are kept, so that a damaged one, or a full disk, never
loses the run."""

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ..store import DamagedFile, by_prefix, read_tensors, write_tensors

KEPT = 2


@dataclass
class Progress:
    """How far a run is. Times in seconds, over all the times it was resumed; `snapshots` by number
    of epochs done."""

    epoch: int = 0  # done
    step: int = 0  # done, of the next epoch
    metrics: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    training_seconds: float = 0.0
    times_resumed: int = 0
    parent: dict[str, Any] | None = None  # of a run that started from another: from which, and how
    snapshots: dict[int, dict[str, Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """Everything that the rest of a run depends on."""

    parameters: dict[str, Any]  # the run's identity
    progress: Progress
    weights: dict[str, Tensor]
    optimizer: dict[int, dict[str, Tensor]]  # by number of parameter
    # of the epoch's steps and, `hits`, of its images that were right, over all processes
    losses: Tensor
    hits: Tensor
    heads: list[int] | None = None  # per layer, of a pruned model
    path: Path | None = None

    @property
    def is_finished(self) -> bool:
        return self.progress.epoch == self.parameters["epochs"]

    def to_file(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """As tensors by name and JSON."""
        tensors = {f"model.{name}": value for name, value in self.weights.items()}
        tensors |= {"epoch.losses": self.losses, "epoch.hits": self.hits}
        tensors |= {
            f"optimizer.{i}.{name}": value
            for i, entry in self.optimizer.items()
            for name, value in entry.items()
        }
        for epoch, entry in self.progress.snapshots.items():
            tensors |= {f"snapshot.{epoch}.{name}": value for name, value in entry.items()}
        metadata = vars(self.progress) | {"snapshots": list(self.progress.snapshots)}
        return tensors, metadata | {"parameters": self.parameters, "heads": self.heads}

    @classmethod
    def from_file(
        cls, path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]
    ) -> "Checkpoint":
        parts = by_prefix(tensors)
        snapshots = by_prefix(parts.get("snapshot", {}))
        optimizer = by_prefix(parts.get("optimizer", {}))
        parameters, heads = metadata.pop("parameters"), metadata.pop("heads")
        metadata["snapshots"] = {
            epoch: snapshots.get(str(epoch), {}) for epoch in metadata["snapshots"]
        }
        by_number = {int(i): entry for i, entry in optimizer.items()}
        return cls(
            parameters,
            Progress(**metadata),
            parts["model"],
            by_number,
            **parts["epoch"],
            heads=heads,
            path=path,
        )


class Checkpoints:
    """The checkpoints in a folder, `step-<number of steps>.safetensors`; they hold tensors and
    JSON, no code."""

    def __init__(self, folder: Path):
        self.folder = folder

    def paths(self) -> list[Path]:
        """The newest first."""
        return sorted(self.folder.glob("step-*.safetensors"), reverse=True)

    def read(self) -> Checkpoint | None:
        """The newest sound one. Warns of damaged ones; None when there is no other."""
        for path in self.paths():
            try:
                return Checkpoint.from_file(path, *read_tensors(path))
            except (DamagedFile, OSError) as error:
                warnings.warn(f"{error}; going back to the checkpoint before it", stacklevel=2)
        return None

    def write(self, steps: int, checkpoint: Checkpoint) -> bool:
        """Write one and remove all but the two newest. False, with a warning, when it could not be
        written (a full disk)."""
        path = self.folder / f"step-{steps:09d}.safetensors"
        written = self._try_to_write(path, *checkpoint.to_file())
        for old in self.paths()[KEPT:] if written else []:
            old.unlink(missing_ok=True)
        return written

    def _try_to_write(self, path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> bool:
        try:
            write_tensors(path, tensors, about)
        except OSError as error:
            last = next(iter(self.paths()), None)
            kept = f"the last one stays: {last}" if last else "there is none yet"
            warnings.warn(
                f"the checkpoint {path} could not be written ({error}); {kept}", stacklevel=3
            )
            return False
        return True

    def weights_path(self, epoch: int) -> Path:
        """Of the weights after so many epochs, for runs that start from them."""
        return self.folder / f"epoch-{epoch:04d}.safetensors"

    def keep_weights(
        self, epoch: int, weights: dict[str, Tensor], parameters: dict[str, Any]
    ) -> bool:
        """Write the weights after so many epochs, to stay. False, with a warning, on a full
        disk."""
        return self._try_to_write(self.weights_path(epoch), weights, {"parameters": parameters})

    def clear(self) -> None:
        for path in [*self.paths(), *self.folder.glob("epoch-*.safetensors")]:
            path.unlink(missing_ok=True)
