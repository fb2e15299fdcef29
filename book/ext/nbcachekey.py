"""Re-execute the notebooks when src/, data/ or the locked versions change, several at a time.

jupyter-cache only looks at code cells, and MyST-NB executes one notebook after the other. Run as a
script with paths, this module prints their hash; `make book` builds again when the hash changes.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

WATCHED = ("src", "data", "constraints.txt", "benchmarks/results", "CITATION.cff", "codecheck.yml")
# the quick tier's records, which notebooks write, are not watched either
UNWATCHED = ("__pycache__", "cache", "cifar10", "cifar-10-batches-py")

# These pages execute longest, so they start first.
LONGEST = ("book/use", "notebooks/12-gradient-descent", "notebooks/08-results")


def digest(root, names=WATCHED):
    """Return a short hash of the path and content of every watched file below `names`."""
    whole = hashlib.sha256()
    for name in names:
        start = Path(root, name)
        files = (
            [start]
            if start.is_file()
            else sorted(path for path in start.rglob("*") if path.is_file())
        )
        for path in files:
            parts = path.relative_to(root).parts
            if any(
                part in UNWATCHED or part.endswith(".egg-info") or "--digits--" in part
                for part in parts
            ):
                continue
            whole.update(
                "/".join(parts).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest()
            )
    data = os.path.expanduser(os.environ.get("ATTNCONV_DATA") or Path(root, "data"))
    at_hand = Path(data, "cache", "cifar10.safetensors").exists()
    whole.update(f"CIFAR-10 at hand: {at_hand}".encode())  # then pages show its images
    return whole.hexdigest()[:16]


def set_cache_path(app, config):
    """Use a separate cache of executed notebooks for each state of the watched files."""
    config.nb_execution_cache_path = str(
        Path(app.outdir).parent / ".jupyter_cache" / digest(app.srcdir)
    )


def execute_side_by_side(app, env, docnames):
    """Execute the notebooks and executable pages that are not in the cache, one per core at a time.

    One that fails is executed again by MyST-NB, which reports the error.
    """
    from jupyter_cache import get_cache

    names = sorted(docnames, key=lambda name: (name not in LONGEST, name))
    readers = {path: reader_of(Path(path)) for path in map(str, map(env.doc2path, names))}
    paths = [path for path, reader in readers.items() if reader]
    cache = get_cache(app.config.nb_execution_cache_path)
    for path in paths:
        cache.add_nb_to_project(path, read_data=readers[path])
    if not paths:
        return
    settings = app.config.nb_execution_cache_path, str(app.config.nb_execution_timeout)
    subprocess.run([sys.executable, Path(__file__).with_name("warmkernels.py"), *settings, *paths])


def reader_of(path):
    """Return jupyter-cache's reader for a notebook or executable page, or None for other pages."""
    from myst_nb.core.read import is_myst_markdown_notebook

    if path.suffix == ".ipynb":
        return {"type": "plugin", "name": "nbformat"}
    is_executable = is_myst_markdown_notebook(path.read_text())
    return {"type": "plugin", "name": "myst_nb_md"} if is_executable else None


def setup(app):
    app.connect("config-inited", set_cache_path)
    app.connect("env-before-read-docs", execute_side_by_side)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    print(digest(".", sys.argv[1:]), sys.version.split()[0])
