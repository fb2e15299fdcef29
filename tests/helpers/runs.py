"""Training runs: started, and looked at."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from itertools import count

import torch

from companion.runs.parameters import RunParameters
from companion.runs.record import LARGEST_RECORD
from companion.specs import SPECS
from companion.tiers import TIERS

#: The start of a command that runs in two processes.
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def places(folder):
    """Return the folders of a run as parameters."""
    return {name: str(folder / name) for name in ("runs", "checkpoints")}


def small(folder, **values):
    """A run on digits of a second, with everything that is random: dropout, crops, mirroring."""
    network = {"num_layers": 2, "hidden": 8, "intermediate": 8}
    network |= {"dropout": 0.1, "attention_dropout": 0.1}
    if values.get("model") == "resnet18":
        network["width"] = 8
    data = {"train_images": 330, "test_images": 60, "batch_size": 50, "augment": True}
    about = {"resume": True, "checkpoint_every": 1, "epochs": 2, "device": "cpu"}
    return RunParameters.check(network | data | about | places(folder) | values)


def two_steps(folder, model="sa-quadratic", tier="small", **values):
    """A tier's own recipe and network for images of CIFAR-10's shape, for two small batches."""
    brief = {"epochs": 1, "batch_size": 20, "parent_epochs": 1, "override": True}
    about = {"model": model, "dataset": "cifar10", "tier": tier, "device": "cpu"}
    if "train_images" in TIERS[tier].recipe:
        about["train_images"] = 40
    return RunParameters.check(about | brief | places(folder) | values)


def as_words(parameters):
    """Return the arguments of the command that trains with these parameters."""
    given = {name: value for name, value in parameters.model_dump().items() if value != ""}
    return ["train", *(str(word) for name in given for word in (f"--{name}", given[name]))]


def check_record(record, model, epochs):
    """Assert that a run left a valid record."""
    info = record.info
    assert info.status == "finished" and info.epochs_done == len(record.metrics) == epochs
    assert (
        info.parameters["model"] == model
        and 0 <= info.final_test_accuracy <= info.best_test_accuracy <= 1
    )
    assert (
        info.git_commit
        and info.images_per_second > 0
        and info.versions["torch"]
        and info.hardware["device"]
    )
    assert bool(record.attention) == bool(SPECS[model].attention)
    assert sum(path.stat().st_size for path in record.folder.iterdir()) <= LARGEST_RECORD
    assert str(record.folder.parent) not in (record.folder / "run.json").read_text(), (
        "no folder of this machine"
    )


def untimed(record):
    """Its metrics, without the time that each epoch took."""
    return [
        {name: value for name, value in entry.items() if name != "seconds"}
        for entry in record.metrics
    ]


def results(run):
    """Everything that must not depend on when a run was interrupted."""
    metrics = untimed(run.record)
    weights = {name: value.tolist() for name, value in run.model.state_dict().items()}
    return metrics, weights, {name: value.tolist() for name, value in run.record.attention.items()}


def stop_after(monkeypatch, *numbers):
    """This process gets SIGTERM once the steps with these numbers, from 0, are taken, counted over
    all its runs."""
    steps = count()
    step = torch.optim.Optimizer.zero_grad

    def interrupted(self, *arguments):
        step(self, *arguments)
        if next(steps) in numbers:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", interrupted)


def command_line(*words, launcher=("-m", "attnconv"), **options):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, **options)


def in_two_processes(function, *arguments):
    """Call a function in two forks of this process, in torchrun's environment, and return their
    exit codes. They need not import torch again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])

    def call(rank):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        sys.exit(function(*arguments))

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=call, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]
