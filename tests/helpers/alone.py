"""Programs that run without the installed packages that torch does not need."""

import subprocess
import sys
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def what_torch_needs():
    """The packages that torch itself asks for."""
    pending = ["torch"]
    seen = set()
    while pending:
        name = canonicalize_name(pending.pop())
        if name in seen:
            continue
        seen.add(name)
        try:
            requirements = map(Requirement, metadata.requires(name) or [])
        except metadata.PackageNotFoundError:
            continue
        pending += [
            r.name for r in requirements if not r.marker or r.marker.evaluate({"extra": ""})
        ]
    return seen


def without_other_packages(program, allowed):
    """Run a program in a process where importing any other installed package fails."""
    blocked = {
        top
        for top, names in metadata.packages_distributions().items()
        if not set(map(canonicalize_name, names)) & allowed
    }
    finder = f"""
import sys
from importlib.machinery import PathFinder
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {sorted(blocked)!r}:
            return PathFinder.find_spec(name, path, target)
sys.meta_path = [Finder() if each is PathFinder else each for each in sys.meta_path]
"""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", finder + program], capture_output=True, text=True
    )
