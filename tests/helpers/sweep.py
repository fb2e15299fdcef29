"""Run a sweep with Snakemake, in a separate folder."""

import shutil
import subprocess
import sys

from . import ROOT


def snakemake(directory, *words, profile="local", environment=None):
    """Run Snakemake in a copy of what the sweep uses, since it locks its working directory."""
    for name in ("notebooks", "tools"):
        shutil.copytree(ROOT / name, directory / name, dirs_exist_ok=True)
    command = [sys.executable, "-m", "snakemake", "--snakefile", "tools/Snakefile"]
    command += ["--profile", f"tools/profiles/{profile}", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment)
