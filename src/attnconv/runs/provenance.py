"""Where and with what a run was made."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ..store import REPOSITORY


def provenance(device: torch.device, processes: int) -> dict[str, Any]:
    """`git_commit`, `versions` and `hardware` of this process; where libraries were put before
    torch's own (book/train.md), their names too, as they may round otherwise."""
    packages = (
        "attnconv",
        "torch",
        "torchvision",
        "numpy",
        "accelerate",
        "safetensors",
        "pydantic",
    )
    paths = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    preloaded = ":".join(Path(path).name for path in paths)
    return {
        "git_commit": os.environ.get("ATTNCONV_COMMIT") or _git_commit(),
        "versions": (
            {"python": platform.python_version()} | {name: _version(name) for name in packages}
        ),
        "hardware": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
            "processes": processes,
            "threads": torch.get_num_threads(),
            "system": f"{platform.system()} {platform.machine()}",
        }
        | ({"preloaded": preloaded} if preloaded else {}),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # used from a checkout on the path, without installation
        return "not installed"


def _git_commit() -> str | None:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + (
            "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def processor() -> str:
    """The name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "CPU"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU"
    )
