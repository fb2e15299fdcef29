"""Run the workflow with Snakemake, in a separate folder."""

import shutil
import subprocess
import sys

from . import ROOT


def snakemake(directory, *words, profile="local", environment=None):
    """Run Snakemake in a copy of what the workflow uses, since it locks its working directory."""
    for name in ("notebooks", "workflow"):
        shutil.copytree(ROOT / name, directory / name, dirs_exist_ok=True)
    command = [sys.executable, "-m", "snakemake", "--snakefile", "workflow/Snakefile"]
    command += ["--profile", f"workflow/profiles/{profile}", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment)
