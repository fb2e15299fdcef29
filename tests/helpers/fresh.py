"""Code that runs in a process of its own without importing torch again."""

import multiprocessing
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

FORK = multiprocessing.get_context("fork")
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["torch"])  # once for all programs, since it takes seconds


class Finished(NamedTuple):
    """How a program ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def _run(files, function, *arguments):
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout = os.fdopen(1, "w")  # pytest's own write elsewhere
    sys.stderr = os.fdopen(2, "w")
    function(*arguments)


def _finished(context, *call):
    with TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        process = context.Process(target=_run, args=(files, *call))
        process.start()
        process.join()
        return Finished(process.exitcode, *(file.read_text() for file in files))


def run_fresh(program: str) -> Finished:
    """Run a program as `python -c` does, in a process that has imported torch alone."""
    return _finished(FRESH, exec, program, {"__name__": "__main__"})


def run_forked(function, *arguments) -> Finished:
    """Call a function in a fork of this process."""
    return _finished(FORK, function, *arguments)
