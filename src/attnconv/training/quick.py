"""The brief runs: each model on digits, trained once while the book builds and read by the chapters
that show it."""

import hashlib
import io
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

import torch
from filelock import FileLock
from torch import nn

from ..models import MODELS
from ..runs.parameters import RunParameters
from ..runs.record import RunRecord, processor
from ..runs.select import Records
from ..store import REPOSITORY
from .launch import launch


def quick_run(model: str, seed: int = 0) -> RunRecord:
    """The record of a model's quick run: read if this very code made it on this machine, else
    trained now."""
    parameters = _parameters(model, seed)
    remove_old_runs()
    if parent := MODELS[model].parent:
        quick_run(parent, seed)
    with _alone(parameters):
        record = launch(parameters).record
    assert record, "of a single process"
    return record


def best_run(records: Records, model: str, seed: int = 0) -> RunRecord:
    """A model's first run among the records; where there is none, its quick run on digits, read or
    trained now."""
    return next(iter(records.of(model)), None) or quick_run(model, seed)


def quick_model(model: str, seed: int = 0) -> nn.Module:
    """The trained model of a quick run, on the CPU. ValueError for one whose recipe keeps no
    checkpoint."""
    quick_run(model, seed)
    parameters = _parameters(model, seed)
    if not parameters.checkpoint_every:
        raise ValueError(
            f"the weights of {model}'s quick run are not kept; give it checkpoint_every in its spec"
        )
    with _alone(parameters):
        run = launch(parameters)
        trained = run.model or launch(parameters.model_copy(update={"resume": False})).model
    assert trained, "a run that starts afresh has one"
    return trained


def _parameters(model: str, seed: int) -> RunParameters:
    folder = _folder()
    places = {
        "runs": str(folder / "runs"),
        "checkpoints": str(folder / "checkpoints"),
        "resume": True,
    }
    return RunParameters.check(
        {"model": model, "dataset": "digits", "tier": "brief", "seed": seed} | places
    )


def _folder() -> Path:
    return REPOSITORY / "data" / "cache" / f"quick-{DIGEST}"


def remove_old_runs() -> None:
    """Of other code, and of another day."""
    for other in _folder().parent.glob("quick-*"):
        if other != _folder() and time.time() - other.stat().st_mtime > 86_400:
            shutil.rmtree(other, ignore_errors=True)


@contextmanager
def _alone(parameters: RunParameters) -> Iterator[None]:
    """Chapters are executed side by side, so one at a time; and quietly: what a run says names
    folders of this machine."""
    lock = Path(parameters.runs).parent / f"{parameters.name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock), redirect_stdout(io.StringIO()), _one_thread():
        yield


def quick_runs(models: Sequence[str], seed: int = 0) -> list[RunRecord]:
    """The quick runs of several models, two at a time where there are two cores."""
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        # the longest is the last in MODELS
        runs = {model: pool.submit(quick_run, model, seed) for model in reversed(models)}
        return [runs[model].result() for model in models]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small arrays gain nothing from a second thread, and the numbers do not depend on how many
    cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def digest(folder: Path) -> str:
    """Of this package's files, the versions that compute, and the machine: another's runs are not
    this one's."""
    versions = [
        f"{name} {metadata.version(name)}"
        for name in ("torch", "torchvision", "numpy", "scikit-learn", "accelerate")
    ]
    whole = hashlib.sha256(repr((versions, sys.version_info[:2], processor())).encode())
    for path in sorted(folder.rglob("*.py")):
        whole.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


DIGEST = digest(Path(__file__).parents[1])  # when imported: what is on the disk later is other code
