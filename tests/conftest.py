import os
import resource
import subprocess
import sys

import jaxtyping
import pytest
from helpers.shapes import jaxtyped_where_stated

# The shapes in annotations are checked at each call. This must precede every import of the package.
sys.modules["attnconv.theory.shapes"] = jaxtyping
jaxtyping.jaxtyped = jaxtyped_where_stated
jaxtyping.install_import_hook(["attnconv.theory", "attnconv.layers"], "helpers.shapes.check_shapes")
pytest.register_assert_rewrite("helpers.runs")

# Inductor's own processes would first import torch, which takes longer than what tests compile.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
from filelock import FileLock
from helpers import ROOT
from helpers.synthetic import write_records

from attnconv import load_dataset

# A lossless copy of CIFAR-10 with the program that unpacks it, where one lies beside the checkout.
UNPACK = ROOT.parent / "shared" / "cifar10" / "unpack.py"


@pytest.fixture(autouse=True)
def seeded():
    """Start every test from the same random numbers, in float32, on one thread."""
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def small_files():
    """Let writing more than 1 KiB to a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def cifar10_root(tmp_path_factory):
    """Return a folder with CIFAR-10 in ImageFolder layout and decoded, which tests must not change.

    It is made once for all workers.
    """
    if not UNPACK.exists():
        pytest.skip("no copy of CIFAR-10 at hand (shared/cifar10/unpack.py beside the checkout)")
    common = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        common = common.parent
    root = common / "cifar10-root"
    with FileLock(common / "cifar10-root.lock"):
        if not (root / "cache").exists():
            command = [sys.executable, str(UNPACK), "folder", str(root / "cifar10")]
            subprocess.run(command, check=True)
            load_dataset("cifar10", root)
    return root


@pytest.fixture(scope="session")
def paper_records(tmp_path_factory):
    """Return a folder with a paper-tier record of each model, which tests must not change."""
    folder = tmp_path_factory.mktemp("runs")
    write_records(folder)
    return folder
