"""Notebooks with other parameters."""

import subprocess
import sys

from . import ROOT


def papermill(path, output, parameters):
    """Execute a notebook with parameters in the folder of the chapters."""
    options = [word for name, value in parameters.items() for word in ("-p", name, str(value))]
    command = [sys.executable, "-m", "papermill", str(path), str(output), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "notebooks")
