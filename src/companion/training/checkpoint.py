"""Checkpoints from which a training run can be resumed.

The two newest are kept, so that the run survives a damaged file or a full disk.
"""

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ..store import DamagedFile, by_prefix, read_tensors, write_tensors

KEPT = 2


@dataclass
class Progress:
    """A run's progress and results so far, with times in seconds that include all resumed parts."""

    epoch: int = 0  # epochs completed
    step: int = 0  # steps completed in the current epoch
    metrics: list[dict[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    training_seconds: float = 0.0
    times_resumed: int = 0
    parent: dict[str, Any] | None = None  # the run from which this one started, and how
    snapshots: dict[int, dict[str, Tensor]] = field(default_factory=dict)  # by epochs completed

    def add_training(self, seconds: float) -> None:
        """Add the time of a training step."""
        self.seconds += seconds
        self.training_seconds += seconds


@dataclass(frozen=True)
class Checkpoint:
    """The complete state of a run, from which it can continue."""

    parameters: dict[str, Any]  # those that identify the run
    progress: Progress
    weights: dict[str, Tensor]
    optimizer: dict[int, dict[str, Tensor]]  # by parameter number
    losses: Tensor  # of each step in the epoch, summed over all processes
    hits: Tensor  # correctly classified images in the epoch, over all processes
    heads: list[int] | None = None  # heads in each layer of a pruned model
    path: Path | None = None

    @property
    def is_finished(self) -> bool:
        """Return whether the last epoch of the run is complete."""
        return self.progress.epoch == self.parameters["epochs"]

    @property
    def steps_done(self) -> int:
        """The number of steps since the start of the run."""
        return self.progress.epoch * len(self.losses) + self.progress.step

    def to_file(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the contents of the checkpoint file: tensors by name, and JSON metadata."""
        snapshots = self.progress.snapshots
        parts = {"model": self.weights, "epoch": {"losses": self.losses, "hits": self.hits}}
        parts |= {f"optimizer.{number}": entry for number, entry in self.optimizer.items()}
        parts |= {f"snapshot.{epoch}": entry for epoch, entry in snapshots.items()}
        tensors = {f"{part}.{name}": value for part in parts for name, value in parts[part].items()}
        metadata = vars(self.progress) | {"snapshots": list(snapshots)}
        return tensors, metadata | {"parameters": self.parameters, "heads": self.heads}

    @classmethod
    def read(cls, path: Path) -> "Checkpoint":
        """Read a checkpoint file; raise DamagedFile if it is damaged or not a checkpoint."""
        tensors, about = read_tensors(path)
        parts = by_prefix(tensors)
        optimizer = by_prefix(parts.get("optimizer", {}))
        # the snapshots of some models are empty, and empty snapshots are not stored
        stored = by_prefix(parts.get("snapshot", {}))
        try:
            heads = about.pop("heads")
            parameters = about.pop("parameters")
            about["snapshots"] = {n: stored.get(str(n), {}) for n in about["snapshots"]}
            state = {int(number): entry for number, entry in optimizer.items()}
            run = parameters, Progress(**about), parts["model"], state
            return cls(*run, **parts["epoch"], heads=heads, path=path)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFile(f"{path} is not a checkpoint of this version: {error!r}") from None


class Checkpoints:
    """A run's checkpoint files, `step-<number of steps>.safetensors`, which contain no code."""

    def __init__(self, folder: Path):
        self.folder = folder

    def paths(self) -> list[Path]:
        """Return the paths of the checkpoint files, newest first."""
        return sorted(self.folder.glob("step-*.safetensors"), reverse=True)

    def read(self) -> Checkpoint | None:
        """Return the newest intact checkpoint, or None if none exists; warn about damaged ones."""
        paths = self.paths()
        for path in paths:
            try:
                return Checkpoint.read(path)
            except (DamagedFile, OSError) as error:
                instead = "using the previous checkpoint instead"
                instead = "there is no earlier checkpoint" if path == paths[-1] else instead
                warnings.warn(f"{error}; {instead}", stacklevel=2)
        return None

    def write(self, checkpoint: Checkpoint) -> bool:
        """Write a checkpoint, and remove all but the two newest.

        Returns whether writing succeeded; a failure, such as a full disk, only causes a warning.
        """
        path = self.folder / f"step-{checkpoint.steps_done:09d}.safetensors"
        written = self._try_to_write(path, *checkpoint.to_file())
        for old in self.paths()[KEPT:] if written else []:
            old.unlink(missing_ok=True)
        return written

    def _try_to_write(self, path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> bool:
        try:
            write_tensors(path, tensors, about)
        except OSError as error:
            last = next(iter(self.paths()), None)
            kept = f"the previous one remains: {last}" if last else "there is no earlier one"
            text = f"the checkpoint {path} could not be written ({error}); {kept}"
            warnings.warn(text, stacklevel=3)
            return False
        return True

    def weights_path(self, epoch: int) -> Path:
        """Return the path of the weights stored after an epoch, from which other runs can start."""
        return self.folder / f"epoch-{epoch:04d}.safetensors"

    def keep_weights(self, epoch: int, weights: dict[str, Tensor], run: dict[str, Any]) -> None:
        """Store the weights after an epoch, and the parameters of the run; warn if this fails."""
        self._try_to_write(self.weights_path(epoch), weights, {"parameters": run})

    def clear(self) -> None:
        """Remove all checkpoints and stored weights from the folder."""
        for path in [*self.paths(), *self.folder.glob("epoch-*.safetensors")]:
            path.unlink(missing_ok=True)
