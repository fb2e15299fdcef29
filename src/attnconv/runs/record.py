"""Run records: what a run was, how it went and what its heads attend to. Written by the training,
read by the book.

`<folder>/<model>--<dataset>--seed<k>/` (in the small tier `<model>--<dataset>-small--seed<k>/`)
holds `run.json` (`RunInfo`), `metrics.csv` (one line an epoch, `METRICS`) and
`attention.safetensors` (see `RunRecord.attention`); beside some lies `weights.safetensors` (see
`weights.py`). `run.json` carries the version of the format and a digest of itself, and vouches for
`metrics.csv`; the others carry their own.
"""

import csv
import hashlib
import io
import math
import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from ..data import CIFAR10_COUNTS, CIFAR10_FINGERPRINT, DATASETS
from ..models import SPECS
from ..models.cnn import MIDDLE
from ..store import REPOSITORY, DamagedFile, read_tensors, write_file, write_tensors
from .history import ContentMaps, PositionHistory

#: The columns of `metrics.csv`.
METRICS = ("epoch", "lr", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "seconds")
# of the format. 1, still read, had no version, no digest of run.json and no tiers but the data
# sets' own.
VERSION = 2
#: In bytes, so that all rows and several seeds fit in git.
LARGEST_RECORD = 3_000_000
MEND = "restore it from git, or repeat the run"


class RunInfo(BaseModel):
    """The content of `run.json`. Times are in seconds."""

    model_config = ConfigDict(extra="forbid")

    version: int = 1
    status: Literal["running", "stopped", "finished"]
    # as in parameters.RunParameters, without the folders of the machine it ran on
    parameters: dict[str, Any]
    dataset: dict[str, Any]  # name, fingerprint of the whole, numbers of images used
    parameter_count: int
    epochs_done: int
    final_test_accuracy: float | None  # after the last epoch done
    # the best of all epochs, chosen by test accuracy as in the published code
    best_test_accuracy: float | None
    wall_seconds: float  # of training and evaluation, over all the times it was resumed
    images_per_second: float | None  # in training, over the epochs done, evaluation left out
    times_resumed: int
    git_commit: str | None  # None: not known; a commit with "+" had changes on top
    versions: dict[str, str]
    hardware: dict[str, Any]
    # of a run that started from another: from which, what was pruned or how it was turned
    parent: dict[str, Any] | None = None
    metrics_sha256: str
    sha256: str | None = None  # of this file without this field

    def sealed(self) -> "RunInfo":
        """With its digest."""
        bare = self.model_copy(update={"sha256": None})
        return self.model_copy(update={"sha256": hashlib.sha256(bare.as_file()).hexdigest()})

    def as_file(self) -> bytes:
        """What `run.json` holds."""
        return (
            self.model_dump_json(indent=2, exclude={"sha256"} if self.sha256 is None else None)
            + "\n"
        ).encode()


@dataclass(frozen=True)
class RunRecord:
    """A record as read: `attention` is empty while the run is under way."""

    folder: Path
    info: RunInfo
    metrics: list[dict[str, float]]

    @cached_property
    def attention(self) -> dict[str, Tensor]:
        """The file's tensors, which `history` and `content_maps` understand. DamagedFile when it is
        not what was written."""
        path = self.folder / "attention.safetensors"
        if self.info.status != "finished":
            return {}
        if not path.exists():
            raise DamagedFile(f"{path} is missing; {MEND}")
        try:
            return read_tensors(path)[0]
        except DamagedFile as error:
            raise DamagedFile(f"{error}; {MEND}") from None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def accuracy(self) -> float:
        """On the test images, after the last epoch; NaN before the first."""
        final = self.info.final_test_accuracy
        return math.nan if final is None else final

    @property
    def best_accuracy(self) -> float:
        """The best of all epochs, chosen by test accuracy as in the published code."""
        best = self.info.best_test_accuracy
        return math.nan if best is None else best

    @property
    def parent(self) -> dict[str, Any]:
        """Of a pruned run: what it started from, and what was pruned. ValueError for any other."""
        if self.info.parent is None:
            raise ValueError(f"{self.name} is not pruned; expected a run of sa-generalized-pruned")
        return self.info.parent

    @property
    def heads_left(self) -> tuple[int, ...] | None:
        """Of a pruned run: how many of nine heads each layer kept. None for any other run."""
        removed = (self.info.parent or {}).get("removed_heads")
        return removed and tuple(9 - len(heads) for heads in removed)

    @property
    def grid(self) -> tuple[int, int]:
        """H, W: the pixels that the attention layers see, after the down-sampling at the input. The
        layers of a network that was a CNN see several sizes: of its middle group's."""
        if SPECS[self.info.parameters["model"]].start:
            return MIDDLE, MIDDLE
        size = DATASETS[self.info.dataset["name"]].image_size // self.info.parameters["pooling"]
        return size, size

    @property
    def tier(self) -> str:
        """Which tier of the book it belongs to; on digits all is quick, the brief runs of chapters
        10 to 13 too."""
        return "quick" if self.info.dataset["name"] == "digits" else self.info.parameters["tier"]

    @property
    def is_whole(self) -> bool:
        """Whether it was trained and tested on all images of CIFAR-10."""
        data = self.info.dataset
        whole = {f"{split}_images": count for split, count in CIFAR10_COUNTS.items()}
        return data["fingerprint"] == CIFAR10_FINGERPRINT and whole.items() <= data.items()

    @property
    def source(self) -> str:
        """One line for a figure or a table: which run, how long, on what."""
        info = self.info
        seconds = info.wall_seconds
        time = f"{seconds / 60:.1f} min" if seconds >= 100 else f"{seconds:.0f} s"
        return (
            f"{self.tier} tier: {self.name}, {info.epochs_done} epochs, {time} on"
            f" {info.hardware['device']}"
        )

    @cached_property
    def history(self) -> PositionHistory:
        """The heads over the epochs; empty with content, without attention, and while the run is
        under way."""
        return PositionHistory.from_tensors({} if self.has_content else self.attention)

    @cached_property
    def content_maps(self) -> ContentMaps | None:
        """The maps of a model with content; None of any other, and while the run is under way."""
        return (
            ContentMaps.from_tensors(self.attention)
            if self.has_content and self.attention
            else None
        )

    @property
    def has_content(self) -> bool:
        """Whether what its heads attend to depends on the image."""
        return SPECS[self.info.parameters["model"]].encoding == "content"


def write_run(
    folder: Path,
    info: dict[str, Any],
    metrics: list[dict[str, float]],
    attention: dict[str, Tensor] | None = None,
) -> RunRecord:
    """Write a record, or a partial one without `attention`: each file whole, `run.json`, which
    vouches for them, last."""
    table = io.StringIO()
    writer = csv.DictWriter(table, list[str](METRICS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(metrics)
    content = table.getvalue().encode()
    accuracies = [entry["test_accuracy"] for entry in metrics]
    sealed = RunInfo(
        **info,
        version=VERSION,
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
    return RunRecord(folder, sealed, metrics)


def load_run(folder: str | Path) -> RunRecord:
    """Read a record, its snapshots too. FileNotFoundError when there is none, DamagedFile when it
    is not what was written."""
    folder = Path(folder)
    if not (folder / "run.json").exists():
        raise FileNotFoundError(f"there is no run record in {folder} (run.json is missing)")
    try:
        info = _read_info(folder / "run.json")
        content = (folder / "metrics.csv").read_bytes()
        if hashlib.sha256(content).hexdigest() != info.metrics_sha256:
            raise DamagedFile(f"{folder / 'metrics.csv'} does not match run.json; {MEND}")
        rows = csv.DictReader(io.StringIO(content.decode()))
        metrics = [
            {name: int(row[name]) if name == "epoch" else float(row[name]) for name in METRICS}
            for row in rows
        ]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DamagedFile(
            f"{folder / 'run.json'} is damaged: {where} {first['msg']}; {MEND}"
        ) from None
    except (OSError, KeyError, UnicodeDecodeError) as error:
        raise DamagedFile(f"{folder} is incomplete or damaged ({error!r}); {MEND}") from None
    record = RunRecord(folder, info, metrics)
    _ = record.attention
    return record


def _read_info(path: Path) -> RunInfo:
    content = path.read_bytes()
    info = RunInfo.model_validate_json(content)
    if info.version == 1 and info.sha256 is None:
        data = info.dataset.get("name")
        return info.model_copy(
            update={
                "parameters": {"tier": "paper" if data == "cifar10" else "quick"} | info.parameters
            }
        )
    if info.version != VERSION:
        raise DamagedFile(
            f"{path} is of version {info.version} of the format, expected 1 or {VERSION}; use a"
            f" newer attnconv, or {MEND}"
        )
    if info.sealed().as_file() != content:
        raise DamagedFile(f"{path} is damaged: its content does not match its digest; {MEND}")
    return info


def find_runs(folder: str | Path | None = None) -> tuple[list[RunRecord], dict[str, str]]:
    """All records of a folder (default: the repository's `data/runs`), by name, and for the name of
    each damaged one what is wrong. The snapshots are checked too, not only the metrics.
    FileNotFoundError for a folder that is named but not there.
    """
    if folder and not Path(folder).is_dir():
        raise FileNotFoundError(f"there is no folder {folder}, expected one that holds run records")
    folder = Path(folder) if folder else REPOSITORY / "data" / "runs"
    records, problems = [], {}
    for path in sorted(path for path in folder.glob("*--*--seed*") if path.is_dir()):
        try:
            records.append(load_run(path))
        except (DamagedFile, FileNotFoundError) as error:
            problems[path.name] = str(error).replace(f"{folder}{os.sep}", "")
    return records, problems


def results_table(records: list[RunRecord]) -> str:
    """A Markdown table of records."""
    head = (
        "| run | status | epochs | test accuracy, last | best | images/s | hours | on"
        " |\n|---|---|---|---|---|---|---|---|\n"
    )
    lines = []
    for record in records:
        info = record.info
        last, best = (
            f"{value:.4f}" if value is not None else "-"
            for value in (info.final_test_accuracy, info.best_test_accuracy)
        )
        speed = f"{info.images_per_second:,.0f}" if info.images_per_second else "-"
        epochs = f"{info.epochs_done} of {info.parameters['epochs']}"
        cells = (
            record.folder.name,
            info.status,
            epochs,
            last,
            best,
            speed,
            f"{info.wall_seconds / 3600:.2f}",
        )
        lines.append("| " + " | ".join((*cells, str(info.hardware["device"]))) + " |\n")
    return head + "".join(lines) if lines else "no run records\n"
