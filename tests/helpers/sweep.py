"""Run a sweep with Snakemake, in a separate folder."""

import os
import shutil
import subprocess
import sys

from . import ROOT
from .fresh import run_forked


def prepare(directory, profile, words):
    """Copy what the sweep uses, since Snakemake locks its folder, and return its arguments."""
    for name in ("notebooks", "tools"):
        shutil.copytree(ROOT / name, directory / name, dirs_exist_ok=True)
    given = ["--snakefile", "tools/Snakefile", "--profile", f"tools/profiles/{profile}"]
    return [*given, *words]


def snakemake(directory, *words, profile="local", environment=None):
    command = [sys.executable, "-m", "snakemake", *prepare(directory, profile, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment)


def plan(directory, *words):
    """Let Snakemake show what it would do."""
    from snakemake.cli import main

    def show(arguments):
        os.chdir(directory)
        main(arguments)

    return run_forked(show, prepare(directory, "local", words))
