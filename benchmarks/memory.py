"""Measure the peak memory of each chapter while its notebook is executed.

Notebooks run one after the other. Remove data/cache/quick-* first, so that chapter 8 trains its
quick runs. The peak is the largest sum of the resident memory of a kernel and its child processes,
sampled every 50 milliseconds. Prints a Markdown table; with --write it also stores the numbers in
benchmarks/results/NAME.json, which keeps the numbers of other notebooks. Such a file tells the
book which chapters it can offer on Binder (book/ext/hosting.py).

Usage: python benchmarks/memory.py [--write NAME] [NOTEBOOK ...]
"""

import argparse
import json
import threading
import time
from pathlib import Path

import nbformat
import psutil
import torch
from nbclient import NotebookClient

from companion.runs.record import provenance

ROOT = Path(__file__).parents[1]
EVERY = 0.05  # seconds


def resident(process):
    """Return the bytes of resident memory of a process and its children."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # it has ended in the meantime
    return total


def measure(path):
    """Execute a notebook; return its peak memory in MiB and the seconds that it took."""
    client = NotebookClient(
        nbformat.read(path, as_version=4),
        timeout=1200,
        resources={"metadata": {"path": str(path.parent)}},
    )
    peak, done, start = 0, threading.Event(), time.perf_counter()

    def sample(process):
        nonlocal peak
        while not done.wait(EVERY):
            peak = max(peak, resident(process))

    with client.setup_kernel():
        kernel = psutil.Process(client.km.provisioner.pid)
        sampler = threading.Thread(target=sample, args=[kernel], daemon=True)
        sampler.start()
        try:
            for number, cell in enumerate(client.nb.cells):
                client.execute_cell(cell, number)
        finally:
            done.set()
            sampler.join()
    return {"peak_mib": round(peak / 2**20), "seconds": round(time.perf_counter() - start)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--write", metavar="NAME")
    options = parser.parse_args()
    paths = options.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb"))
    file = Path(__file__).parent / "results" / f"{options.write}.json"
    chapters = json.loads(file.read_text())["chapters"] if file.exists() else {}
    print("| chapter | peak | time |\n|---|---|---|")
    for path in paths:
        made = provenance(torch.device("cpu"), 1)
        chapters[path.stem] = found = measure(path) | {"git_commit": made.pop("git_commit")}
        print(f"| {path.stem} | {found['peak_mib']} MiB | {found['seconds']} s |", flush=True)
        if options.write:
            made["chapters"] = dict(sorted(chapters.items()))
            file.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
