"""Re-execute the notebooks when src/, data/ or the locked versions change: jupyter-cache only looks
at code cells."""

import hashlib
import os
from pathlib import Path

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


def setup(app):
    app.connect("config-inited", set_cache_path)
    return {"parallel_read_safe": True}
