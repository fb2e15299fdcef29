"""Re-execute the notebooks when src/, data/ or the locked versions change, several at a time.

jupyter-cache only looks at code cells, and MyST-NB executes one notebook after the other. Run as a
script with paths, this module prints their hash; `make book` builds again when the hash changes.
"""

import hashlib
import os
import sys
from pathlib import Path

WATCHED = ("src", "data", "constraints.txt", "benchmarks/results", "CITATION.cff", "codecheck.yml")
# the quick tier's records, which notebooks write, are not watched either
UNWATCHED = ("__pycache__", "cache", "cifar10", "cifar-10-batches-py")


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
    at_hand = Path(
        os.environ.get("ATTNCONV_DATA") or Path(root, "data"), "cache", "cifar10.safetensors"
    ).exists()
    whole.update(f"CIFAR-10 at hand: {at_hand}".encode())  # then pages show its images
    return whole.hexdigest()[:16]


def set_cache_path(app, config):
    """Use a separate cache of executed notebooks for each state of the watched files."""
    config.nb_execution_cache_path = str(
        Path(app.outdir).parent / ".jupyter_cache" / digest(app.srcdir)
    )


def execute_side_by_side(app, env, docnames):
    """Execute the notebooks that are not in the cache.

    A notebook that fails is executed again by MyST-NB, which reports the error.
    """
    from jupyter_cache import get_cache
    from jupyter_cache.executors import load_executor

    paths = [str(path) for path in map(env.doc2path, docnames) if str(path).endswith(".ipynb")]
    cache = get_cache(app.config.nb_execution_cache_path)
    for path in paths:
        cache.add_nb_to_project(path)
    executor = load_executor("local-parallel", cache)
    executor.run_and_cache(filter_uris=paths, timeout=app.config.nb_execution_timeout)


def setup(app):
    app.connect("config-inited", set_cache_path)
    app.connect("env-before-read-docs", execute_side_by_side)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    print(digest(".", sys.argv[1:]), sys.version.split()[0])
