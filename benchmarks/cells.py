"""Measure how long each executable page of the book takes, and its longest cell.

The pages are executed one after the other, each in a fresh kernel, with the quick runs already
trained as `make book` does it. Prints a Markdown table; with --write it also stores the numbers in
benchmarks/results/NAME.json.

Usage: OMP_NUM_THREADS=1 python benchmarks/cells.py [PAGE ...] [--write NAME]
"""

import argparse
import json
import time
from datetime import datetime
from pathlib import Path

import nbformat
import torch
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from nbclient import NotebookClient

from companion.runs.record import provenance
from companion.store import REPOSITORY


def executable_pages():
    """Return the paths of the book's notebooks and executable pages, relative to the repository."""
    pages = [*REPOSITORY.glob("notebooks/*.ipynb")]
    for path in REPOSITORY.glob("book/**/*.md"):
        if is_myst_markdown_notebook(path.read_text()):
            pages.append(path)
    return sorted(str(path.relative_to(REPOSITORY)) for path in pages)


def read(path):
    """Return the notebook in a file of either kind."""
    if path.suffix == ".ipynb":
        return nbformat.read(path, as_version=4)
    return read_myst_markdown_notebook(path.read_text())


def measure(page):
    """Execute a page and return its seconds, and those and the first line of its longest cell."""
    path = REPOSITORY / page
    notebook = read(path)
    start = time.perf_counter()
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=None, record_timing=True, resources=resources).execute()
    whole = time.perf_counter() - start
    longest, source = max(
        (seconds(cell), cell.source)
        for cell in notebook.cells
        if "iopub.execute_input" in cell.metadata.get("execution", {})
    )
    return {
        "seconds": round(whole, 1),
        "longest_cell": round(longest, 1),
        "cell": source.splitlines()[0],
    }


def seconds(cell):
    """Return how long a cell took, from the times that nbclient notes."""
    noted = cell.metadata["execution"]
    begin, end = (
        datetime.fromisoformat(noted[name])
        for name in ("iopub.execute_input", "shell.execute_reply")
    )
    return (end - begin).total_seconds()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--write", metavar="NAME")
    options = parser.parse_args()
    print("| page | seconds | longest cell |\n" + "|---" * 3 + "|")
    pages = {}
    for page in options.pages or executable_pages():
        pages[page] = found = measure(page)
        print(f"| {page} | {found['seconds']} | {found['longest_cell']} |", flush=True)
    if options.write:
        result = provenance(torch.device("cpu"), 1) | {"pages": pages}
        file = Path(__file__).parent / "results" / f"{options.write}.json"
        file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
