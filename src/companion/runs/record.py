"""Run records: the parameters, environment, metrics and attention of a run.

Training writes records, and the book reads them. The folder `<model>--<dataset>--seed<k>/`
(`<model>--<dataset>-<tier>--seed<k>/` for tiers other than the data set's first one) contains
`run.json` (`RunInfo`), `metrics.csv` (one line per epoch, `METRICS`) and `attention.safetensors`
(`RunRecord.attention`), and for some runs `weights.safetensors` (see `weights.py`). `run.json`
contains the format version and digests of itself and of `metrics.csv`; the other files contain
their own digests.
"""

import csv
import hashlib
import io
import math
import os
import platform
import re
import subprocess
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from attnconv.networks import NUM_HEADS

from ..data import CIFAR10_COUNTS, CIFAR10_FINGERPRINT, DATASETS
from ..specs import SPECS
from ..store import (
    REPOSITORY,
    DamagedFile,
    read_json,
    read_tensors,
    user_path,
    write_file,
    write_tensors,
)
from ..tiers import TIERS
from .history import ContentMaps, PositionHistory

#: The columns of `metrics.csv`.
METRICS = ("epoch", "lr", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "seconds")
#: Largest size of a record in bytes, so that all models with several seeds fit in git.
LARGEST_RECORD = 3_000_000
MEND = "restore it from git, or repeat the run"


class RunInfo(BaseModel):
    """The content of `run.json`, with times in seconds."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[2]  # of the format; records of version 1 did not state it
    status: Literal["running", "stopped", "finished"]
    # as in parameters.RunParameters, without the folders of the machine
    parameters: dict[str, Any]
    dataset: dict[str, Any]  # name, fingerprint of the whole data set, numbers of images used
    parameter_count: int
    epochs_done: int
    final_test_accuracy: float | None  # after the last completed epoch
    # best of all epochs, selected by test accuracy as in the published code
    best_test_accuracy: float | None
    wall_seconds: float  # of training and evaluation, over all parts of a resumed run
    images_per_second: float | None  # in training, over the completed epochs
    times_resumed: int
    git_commit: str | None  # None: unknown; "+" marks a commit with uncommitted changes
    versions: dict[str, str]
    hardware: dict[str, Any]
    # if the run started from another: that run, and how its model was changed
    parent: dict[str, Any] | None = None
    metrics_sha256: str
    sha256: str | None = None  # digest of this file without this field

    def sealed(self) -> "RunInfo":
        """Return a copy with a digest of the content, by which damage can be detected."""
        bare = self.model_copy(update={"sha256": None})
        return self.model_copy(update={"sha256": hashlib.sha256(bare.as_file()).hexdigest()})

    def as_file(self) -> bytes:
        """Return the bytes of `run.json`."""
        left_out = {"sha256"} if self.sha256 is None else None
        return (self.model_dump_json(indent=2, exclude=left_out) + "\n").encode()


@dataclass(frozen=True)
class RunRecord:
    """A run record read from its folder.

    `attention` holds the tensors that `history` and `content_maps` interpret; it is empty until the
    run is finished.
    """

    folder: Path
    info: RunInfo
    metrics: list[dict[str, float]]
    attention: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the record's folder."""
        return self.folder.name

    @property
    def accuracy(self) -> float:
        """The test accuracy after the last completed epoch, or NaN if there is none."""
        final = self.info.final_test_accuracy
        return math.nan if final is None else final

    @property
    def best_accuracy(self) -> float:
        """The best test accuracy of any epoch, which the published code reports."""
        best = self.info.best_test_accuracy
        return math.nan if best is None else best

    @property
    def parent(self) -> dict[str, Any]:
        """The run from which this one started, if any, and how its model was changed."""
        return self.info.parent or {}

    @property
    def heads_left(self) -> tuple[int, ...] | None:
        """The number of heads left in each layer of a pruned model; None for other models."""
        removed = self.parent.get("removed_heads")
        return removed and tuple(NUM_HEADS - len(heads) for heads in removed)

    @property
    def grid(self) -> tuple[int, int]:
        """The input size (H, W) of the attention layers, after down-sampling.

        The layers of a converted CNN have inputs of several sizes; for such a model, this is the
        input size of the second of the CNN's three groups of layers.
        """
        parameters = self.info.parameters
        tokens = DATASETS[parameters["dataset"]].image_size // parameters["pooling"]
        size = SPECS[parameters["model"]].grid or tokens
        return size, size

    @property
    def tier(self) -> str:
        """The tier of the run; every run on digits belongs to the quick tier."""
        return "quick" if self.info.dataset["name"] == "digits" else self.info.parameters["tier"]

    @property
    def is_whole(self) -> bool:
        """Return whether the run used all CIFAR-10 images that its tier trains and tests on."""
        data = self.info.dataset
        whole = {f"{split}_images": count for split, count in CIFAR10_COUNTS.items()}
        if (tier := TIERS.get(self.tier)) and "train_images" in tier.recipe:
            whole["train_images"] = tier.recipe["train_images"]
        return data["fingerprint"] == CIFAR10_FINGERPRINT and whole.items() <= data.items()

    @property
    def source(self) -> str:
        """A line for figures and tables that states the run's name, length and hardware."""
        info = self.info
        seconds = info.wall_seconds
        time = f"{seconds / 60:.1f} min" if seconds >= 100 else f"{seconds:.0f} s"
        return (
            f"{self.tier} tier: {self.name}, {info.epochs_done} epochs, {time} on"
            f" {info.hardware['device']}"
        )

    @cached_property
    def history(self) -> PositionHistory:
        """The position-only heads at the saved steps of training.

        The history is empty for models with content-based attention or without attention, and until
        the run is finished.
        """
        return PositionHistory.from_tensors(self.attention)

    @cached_property
    def content_maps(self) -> ContentMaps | None:
        """The attention maps of a content-based model; None for other models or unfinished runs."""
        is_content = "mean_maps" in self.attention
        return ContentMaps.from_tensors(self.attention) if is_content else None


def write_run(
    folder: Path,
    info: dict[str, Any],
    metrics: list[dict[str, float]],
    attention: dict[str, Tensor] | None = None,
) -> RunRecord:
    """Write a record (a partial one if `attention` is None), read it back and return it.

    Each file is written atomically; `run.json`, with the digest of `metrics.csv`, comes last.
    """
    table = io.StringIO()
    writer = csv.DictWriter(table, list[str](METRICS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(metrics)
    content = table.getvalue().encode()
    accuracies = [entry["test_accuracy"] for entry in metrics]
    sealed = RunInfo(
        **info,
        version=2,
        epochs_done=len(metrics),
        final_test_accuracy=accuracies[-1] if accuracies else None,
        best_test_accuracy=max(accuracies, default=None),
        metrics_sha256=hashlib.sha256(content).hexdigest(),
    ).sealed()
    if attention is not None:
        write_tensors(folder / "attention.safetensors", attention, {})
        size = (folder / "attention.safetensors").stat().st_size
        if size > LARGEST_RECORD:
            warnings.warn(
                f"{folder} takes {size:,} bytes, more than the {LARGEST_RECORD:,} of a record",
                stacklevel=2,
            )
    write_file(folder / "metrics.csv", content)
    write_file(folder / "run.json", sealed.as_file())
    return load_run(folder)


def load_run(folder: str | Path) -> RunRecord:
    """Read and verify the run record in a folder, including its attention tensors.

    Raises FileNotFoundError if the folder holds no record, and DamagedFile if the record's content
    is not what was written.
    """
    folder = user_path(folder)
    if not (folder / "run.json").exists():
        raise FileNotFoundError(f"there is no run record in {folder} (run.json is missing)")
    try:
        info = _read_info(folder / "run.json")
        metrics = _read_metrics(folder / "metrics.csv", info.metrics_sha256)
        finished = info.status == "finished"
        attention = read_tensors(folder / "attention.safetensors")[0] if finished else {}
    except DamagedFile as error:
        raise DamagedFile(f"{error}; {MEND}") from None
    except OSError as error:
        raise DamagedFile(f"{folder} is incomplete or damaged ({error}); {MEND}") from None
    return RunRecord(folder, info, metrics, attention)


def _read_info(path: Path) -> RunInfo:
    info = read_json(path, RunInfo)
    if info.sealed().as_file() != path.read_bytes():
        raise DamagedFile(f"{path} is damaged: its content does not match its digest")
    return info


def _read_metrics(path: Path, digest: str) -> list[dict[str, float]]:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise DamagedFile(f"{path} does not match run.json")
    rows = csv.DictReader(io.StringIO(content.decode()))
    return [
        {name: int(text) if name == "epoch" else float(text) for name, text in row.items()}
        for row in rows
    ]


def find_runs(folder: str | Path | None = None) -> tuple[list[RunRecord], dict[str, str]]:
    """Read all run records in a folder, by default the repository's `data/runs`, sorted by name.

    Returns the intact records, and a description of what is wrong with each damaged one, by name.
    Raises FileNotFoundError if the given folder does not exist.
    """
    given = bool(folder)
    folder = user_path(folder or REPOSITORY / "data" / "runs")
    if given and not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}, expected one that holds run records")
    records, problems = [], {}
    for path in sorted(path for path in folder.glob("*--*--seed*") if path.is_dir()):
        try:
            records.append(load_run(path))
        except (DamagedFile, FileNotFoundError) as error:
            problems[path.name] = str(error).replace(f"{folder}{os.sep}", "")
    return records, problems


# --- where and how a run was computed -------------------------------------------------------------


def provenance(device: torch.device, processes: int) -> dict[str, Any]:
    """Return the `git_commit`, `versions` and `hardware` of this process for a run record.

    Preloaded libraries (book/train.md) are included, because they may round differently.
    """
    packages = "attnconv", "torch", "torchvision", "numpy", "accelerate", "safetensors", "pydantic"
    versions = {"python": platform.python_version()}
    hardware = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if paths := os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        hardware["preloaded"] = ":".join(Path(path).name for path in paths)
    return {
        "git_commit": os.environ.get("ATTNCONV_COMMIT") or _git_commit(),
        "versions": versions | {name: _version(name) for name in packages},
        "hardware": hardware,
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # used from a checkout without installation
        return "not installed"


def _git_commit() -> str | None:
    describe = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        run = subprocess.run(describe, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return run.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def processor() -> str:
    """Return the name of this machine's processor."""
    file = Path("/proc/cpuinfo")  # only Linux has it
    found = re.search(r"model name\s*:\s*(.+)", file.read_text() if file.exists() else "")
    return found[1].strip() if found else platform.processor() or "CPU"
