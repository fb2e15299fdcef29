"""Add a first cell to the notebooks that installs the package on Colab.

Usage: python tools/colab.py ADDRESS [BRANCH]. The publishing workflow pushes the result to the
branch `colab`, so the notebooks of main and the pages made from them have no such cell. The cell
does nothing if attnconv can already be imported.
"""

import sys
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parents[1] / "notebooks"
CELL = """\
# On Colab: fetch the repository, whose records the chapters read, and install what is missing.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("attnconv") is None:
    clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", {branch!r}, {address!r}]
    subprocess.run([*clone, "attnconv"], check=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--editable", "attnconv[book]"]
    subprocess.run(install, check=True)
    sys.path.insert(0, os.path.abspath("attnconv/src"))  # the running kernel does not see it yet
    os.chdir("attnconv/notebooks")
"""
TAGS = ["remove-cell", "colab"]


def add_cell(path: Path, address: str, branch: str) -> None:
    """Insert the cell before the others, in place of an earlier version of it."""
    notebook = nbformat.read(path, as_version=4)
    source = CELL.format(address=address, branch=branch).rstrip()
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": TAGS}, id="colab")
    others = [each for each in notebook.cells if each.metadata.get("tags") != TAGS]
    notebook.cells = [cell, *others]
    nbformat.write(notebook, path)


if __name__ == "__main__":
    address, branch = [*sys.argv[1:], "main"][:2]
    for path in sorted(FOLDER.glob("*.ipynb")):
        add_cell(path, address, branch)
