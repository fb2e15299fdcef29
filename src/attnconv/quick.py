"""The quick tier's runs: each model on digits, trained once while the book builds and read by the chapters that show it."""

import hashlib
import io
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import torch
from filelock import FileLock

from .config import QUICK_MODEL_RECIPES, QUICK_RECIPE, RunParameters
from .data import REPOSITORY
from .runs import RunRecord
from .train import launch


def quick_run(model: str, seed: int = 0) -> RunRecord:
    """The record of a model's quick run: read if this very code made it on this machine, else trained now."""
    folder = REPOSITORY / "data" / "cache" / f"quick-{_digest()}"
    places = {"runs": str(folder / "runs"), "checkpoints": str(folder / "checkpoints"), "resume": True}
    values = QUICK_RECIPE | QUICK_MODEL_RECIPES.get(model, {}) | places
    parameters = RunParameters.check({"model": model, "seed": seed} | values)
    for other in folder.parent.glob("quick-*"):
        if other != folder:  # of other code
            shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    if model == "sa-generalized-pruned":
        quick_run("sa-generalized", seed)
    # chapters are executed side by side; what a run says names folders of this machine
    with FileLock(folder / f"{parameters.name}.lock"), redirect_stdout(io.StringIO()), _one_thread():
        return launch(parameters).record


def quick_runs(models: Sequence[str], seed: int = 0) -> list[RunRecord]:
    """The quick runs of several models, two at a time where there are two cores."""
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        runs = {model: pool.submit(quick_run, model, seed) for model in reversed(models)}  # the longest is the last in MODELS
        return [runs[model].result() for model in models]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small arrays gain nothing from a second thread, and the numbers do not depend on how many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@cache
def _digest() -> str:
    """Of this package's files and of what computes: a run of other code is not this one's."""
    whole = hashlib.sha256(f"{torch.__version__} {sys.version_info[:2]}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]
