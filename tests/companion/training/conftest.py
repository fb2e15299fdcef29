"""What the tests of training share: images and trained runs, each made once."""

import shutil
from dataclasses import replace

import pytest
import torch
from helpers.runs import small

from companion.data import Dataset, load_dataset
from companion.data.cifar10 import CIFAR10_CLASSES
from companion.runs.record import load_run
from companion.training.loop import train


@pytest.fixture(scope="session")
def noise():
    """Images of CIFAR-10's shape with its name: 40 to train on, 20 to test."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (60, 32, 32, 3), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (60,), generator=generator)
    about = {"classes": CIFAR10_CLASSES, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return Dataset("cifar10", images[:40], labels[:40], images[40:], labels[40:], **about)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with the finished run `small`, and the run."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("small")
    return folder, train(small(folder), load_dataset("digits"))


@pytest.fixture
def finished(trained, tmp_path):
    """The finished run `small(tmp_path)`, whose files a test may change."""
    folder, run = trained
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return replace(run, record=load_run(small(tmp_path).record_folder))
