"""Execute notebooks and store the outputs that the tests compare.

These are the outputs of the cells tagged `nbval-check-output`. All other outputs, such as pictures,
stay out of the repository. Usage: python tools/store_outputs.py NOTEBOOK ...
"""

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

CHECKED = "nbval-check-output"


def store(path: Path) -> None:
    """Execute one notebook in its folder and rewrite it, atomically."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=600,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code" and CHECKED not in cell.metadata.get("tags", []):
            cell.outputs, cell.execution_count = [], None
    temporary = path.with_suffix(".ipynb.tmp")
    nbformat.write(notebook, temporary)
    temporary.replace(path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        start = time.perf_counter()
        store(Path(name))
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
