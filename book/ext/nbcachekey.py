"""Re-execute the notebooks when src/, data/ or the locked versions change, several at a time:
jupyter-cache only looks at code cells, and MyST-NB executes one after the other."""

import hashlib
import os
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor

WATCHED = ("src", "data", "constraints.txt")
# nor the quick tier's records, which notebooks write
UNWATCHED = ("__pycache__", "cache", "cifar10", "cifar-10-batches-py")


def digest(root):
    """A short hash of every watched file's path and content."""
    whole = hashlib.sha256()
    for name in WATCHED:
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
    config.nb_execution_cache_path = str(
        Path(app.outdir).parent / ".jupyter_cache" / digest(app.srcdir)
    )


def execute_side_by_side(app, env, docnames):
    """All notebooks that are not in the cache. One that fails is executed again by MyST-NB, which
    says what is wrong."""
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
