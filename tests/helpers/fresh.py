"""Programs that run in a process which has imported torch and nothing else."""

import multiprocessing
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["torch"])  # once for all programs, since it takes seconds


class Finished(NamedTuple):
    """How a program ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def _run(program, *files):
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    exec(program, {"__name__": "__main__"})


def run_fresh(program: str) -> Finished:
    """Run a program as `python -c` does."""
    with TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        process = PROCESSES.Process(target=_run, args=(program, *files))
        process.start()
        process.join()
        return Finished(process.exitcode, *(file.read_text() for file in files))
