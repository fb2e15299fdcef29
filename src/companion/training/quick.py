"""Quick training runs on digits, one per model and version of the code, shared by all chapters.

Run as a script, this module trains the models that are not trained yet, as `make book` does first.
"""

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
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import torch
from filelock import FileLock
from torch import nn

from ..runs.parameters import RunParameters
from ..runs.record import RunRecord, processor
from ..runs.select import Records
from ..specs import MODELS
from ..store import REPOSITORY
from .loop import train
from .machine import device_type
from .origin import earlier_run

#: The code in `src` that determines no run's numbers and record.
NOT_COMPUTING = {
    *("claims", "claims.py", "cli.py", "display.py", "explorer", "figures", "figures.py"),
    *("contrasts.py", "readme.py", "tables.py"),
}


def quick_run(model: str, seed: int = 0) -> RunRecord:
    """Return the record of a model's quick run on digits.

    If this version of the code has already created the record on this machine, it is read.
    Otherwise, the model is trained.
    """
    parameters = _parameters(model, seed)
    remove_old_runs()
    if parent := MODELS[model].parent:
        quick_run(parent, seed)
    with _alone(parameters):
        record = earlier_run(parameters)[0] or train(parameters).record
    assert record, "of a single process"
    return record


def quick_runs(models: Sequence[str], seed: int = 0) -> list[RunRecord]:
    """Return several models' quick runs, computing two at a time if there are two cores."""
    missing = [model for model in models if not earlier_run(_parameters(model, seed))[0]]
    if missing:  # importing torch in two processes takes longer than reading records
        cores = min(2, os.cpu_count() or 1)
        with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
            # the last of MODELS takes longest, so it starts first
            list(pool.map(quick_run, reversed(missing), repeat(seed)))
    return [quick_run(model, seed) for model in models]


def best_run(records: Records, model: str, seed: int = 0) -> RunRecord:
    """Return a model's first run in `records`, or its quick run if there is none."""
    return next(iter(records.of(model)), None) or quick_run(model, seed)


def quick_model(model: str, seed: int = 0) -> nn.Module:
    """Return the model trained by a quick run, loaded on the CPU.

    Raises ValueError for a model whose recipe stores no checkpoints.
    """
    quick_run(model, seed)
    parameters = _parameters(model, seed)
    if not parameters.checkpoint_every:
        raise ValueError(
            f"the weights of {model}'s quick run are not kept; give it checkpoint_every in its spec"
        )
    with _alone(parameters):
        run = train(parameters)
        trained = run.model or train(parameters.model_copy(update={"resume": False})).model
    assert trained, "a run that starts afresh has one"
    return trained


def _parameters(model: str, seed: int) -> RunParameters:
    given = {"model": model, "dataset": "digits", "tier": "brief", "seed": seed, "resume": True}
    folders = {name: str(_folder() / name) for name in ("runs", "checkpoints")}
    parameters = RunParameters.check(given | folders)
    return parameters.on(device_type(parameters.device))


def _folder() -> Path:
    return REPOSITORY / "data" / "cache" / f"quick-{DIGEST}"


def remove_old_runs() -> None:
    """Remove quick runs by other versions of the code that are more than a day old."""
    for other in _folder().parent.glob("quick-*"):
        if other != _folder() and time.time() - other.stat().st_mtime > 86_400:
            shutil.rmtree(other, ignore_errors=True)


@contextmanager
def _alone(parameters: RunParameters) -> Iterator[None]:
    """Hold the lock of a run while computing on one thread and printing nothing.

    Chapters are executed side by side, and a run would otherwise print the names of local folders.
    Small arrays do not benefit from a second thread, and the numbers must not depend on the number
    of threads.
    """
    lock = Path(parameters.runs).parent / f"{parameters.name}.lock"
    threads = torch.get_num_threads()
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock), redirect_stdout(io.StringIO()):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def digest(source: Path) -> str:
    """Return a hash of the library versions, the processor and the code that computes runs.

    `source` is the folder of the packages.
    """
    libraries = ("torch", "torchvision", "numpy", "scikit-learn", "accelerate")
    versions = [f"{name} {metadata.version(name)}" for name in libraries]
    whole = hashlib.sha256(repr((versions, sys.version_info[:2], processor())).encode())
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source)
        if not NOT_COMPUTING.intersection(name.parts):
            whole.update(str(name).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


DIGEST = digest(Path(__file__).parents[2])  # computed at import; the code on disk may change later


if __name__ == "__main__":
    quick_runs(list(MODELS))
