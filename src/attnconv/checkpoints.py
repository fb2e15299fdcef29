"""Checkpoints of one run: the two newest are kept, so that a damaged one, or a full disk, never loses the run."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from .store import DamagedFile, read_tensors, write_tensors

KEPT = 2


class Checkpoints:
    """The checkpoints in a folder, `step-<number of steps>.safetensors`; they hold tensors and JSON, no code."""

    def __init__(self, folder: Path):
        self.folder = folder

    def paths(self) -> list[Path]:
        """The newest first."""
        return sorted(self.folder.glob("step-*.safetensors"), reverse=True)

    def read(self) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
        """The newest sound one: its path, tensors and metadata. Warns of damaged ones; None when there is no other."""
        for path in self.paths():
            try:
                return path, *read_tensors(path)
            except (DamagedFile, OSError) as error:
                warnings.warn(f"{error}; going back to the checkpoint before it", stacklevel=2)
        return None

    def write(self, steps: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> bool:
        """Write one and remove all but the two newest. False, with a warning, when it could not be written (a full disk)."""
        path = self.folder / f"step-{steps:09d}.safetensors"
        try:
            write_tensors(path, tensors, metadata)
        except OSError as error:
            last = next(iter(self.paths()), None)
            kept = f"the last one stays: {last}" if last else "there is none yet"
            warnings.warn(f"the checkpoint {path} could not be written ({error}); {kept}", stacklevel=2)
            return False
        for old in self.paths()[KEPT:]:
            old.unlink(missing_ok=True)
        return True

    def clear(self) -> None:
        for path in self.paths():
            path.unlink(missing_ok=True)
