"""The origin of a run: the model and the state from which it starts.

A run starts from scratch, from its own checkpoint, or from a trained parent, whose network may be
changed first, such as by pruning. A finished run is returned unchanged.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from attnconv.cnn import SmallCNN

from ..accuracy import evaluate
from ..build import build_network
from ..data import Batches, Split
from ..runs.parameters import Network, Place, RunParameters, Task
from ..runs.record import RunRecord, load_run
from ..runs.select import command
from ..runs.weights import set_weights
from ..specs import SPECS, WarmStart
from ..store import DamagedFile, read_tensors
from .checkpoint import Checkpoint, Checkpoints
from .machine import Processes

# the parameters by which a run recognises its parent's checkpoint
OF_THE_PARENT = Task.names() - {"model", "test_images"} | Network.names()


@dataclass(frozen=True)
class Origin:
    """The model with which a run starts, and where it comes from.

    `parent` is the record's description of the run that trained the model, and `checkpoint` is the
    checkpoint from which the run continues. Either is None if it does not exist.
    """

    model: nn.Module
    parent: dict[str, Any] | None = None
    checkpoint: Checkpoint | None = None


# --- the run itself, as left by earlier calls ---


def earlier_run(parameters: RunParameters) -> tuple[RunRecord | None, Checkpoint | None]:
    """Return a run's record, if the run has already finished, and its newest checkpoint.

    Either is None if it does not exist, and both are None if `resume` is false. Damaged files cause
    a warning. Raises ValueError for files from a different run.
    """
    record = None
    if not parameters.resume:
        return None, None
    try:
        record = load_run(parameters.record_folder)
        _expect_same_run(parameters, record.info.parameters, record.folder)
    except FileNotFoundError:
        pass
    except DamagedFile as error:  # such as a file still being written when the run was killed
        warnings.warn(f"{error}; it will be rewritten", stacklevel=2)
    if checkpoint := Checkpoints(parameters.checkpoint_folder).read():
        _expect_same_run(parameters, checkpoint.parameters, checkpoint.path)
    finished = record and record.info.status == "finished"
    return record if finished and (not checkpoint or checkpoint.is_finished) else None, checkpoint


def _expect_same_run(parameters: RunParameters, other: dict[str, Any], where: Path | None) -> None:
    ours = parameters.identity()
    # parameters added after the file was written have their defaults
    theirs = RunParameters.defaults() | other
    differences = ", ".join(
        f"{name} = {theirs.get(name)!r} (requested: {ours.get(name)!r})"
        for name in sorted(ours.keys() | theirs.keys() - Place.names())
        if ours.get(name) != theirs.get(name)
    )
    if differences:
        raise ValueError(
            f"{where} is from a run with other parameters: {differences}. Set other folders with"
            " runs and checkpoints, or set resume to False to replace it"
        )


# --- the model with which a run starts ---


def find_origin(
    parameters: RunParameters, data: Split, processes: Processes, checkpoint: Checkpoint | None
) -> Origin:
    """Return what a run starts from: its checkpoint, a trained parent, or a new network."""
    torch.manual_seed(parameters.seed)
    if checkpoint:
        return _from_checkpoint(parameters, checkpoint, processes)
    if warm_start := SPECS[parameters.model].warm_start:
        return _from_parent(parameters, warm_start, data.test, processes)
    model = build_network(parameters.model_dump())
    if count := min(getattr(model, "PREPARED_WITH", 0), len(data.train)):
        first = torch.arange(count, device=processes.device)
        cast(SmallCNN, model).prepare(data.train.plain(first)[0].cpu())
    return Origin(processes.place(model))


def _from_checkpoint(
    parameters: RunParameters, checkpoint: Checkpoint, processes: Processes
) -> Origin:
    model = processes.place(build_network(parameters.model_dump(), checkpoint.heads))
    set_weights(model, checkpoint.weights)
    if processes.is_main:
        progress = checkpoint.progress
        what = "finished" if checkpoint.is_finished else "resumed"
        step = f", step {progress.step}" if progress.step else ""
        at = f"epoch {progress.epoch} of {parameters.epochs}{step}"
        print(f"{parameters.name}: {what} at {at} ({checkpoint.path})", flush=True)
    return Origin(model, checkpoint.progress.parent, checkpoint)


def _from_parent(
    parameters: RunParameters, warm_start: WarmStart, test: Batches, processes: Processes
) -> Origin:
    """Return the origin of a run that starts from a trained model, and describe that model.

    Raises ValueError, which says how to make them, if the parent's weights are not available.
    """
    parent = parameters.parent()
    network = build_network(parent.model_dump())
    if warm_start.share is None:
        epoch = parent.epochs
        found = _expect_last_checkpoint(parent)
        set_weights(network, found.weights)
        accuracy = found.progress.metrics[-1]["test_accuracy"]
    else:
        epoch = round(warm_start.share * parent.epochs)
        _load_kept_weights(network, parent, epoch, parameters)
        _, accuracy = evaluate(processes.place(network), test, parameters.precision)
    about = {"run": parent.name, "epochs": epoch, "test_accuracy": accuracy}
    if not warm_start.change:
        return Origin(processes.place(network), about)
    model, changed = warm_start.change(network, parameters.model_dump())
    model = processes.place(model)
    _, accuracy = evaluate(model, test, parameters.precision)
    return Origin(model, about | changed | {warm_start.accuracy_name: accuracy})


# --- a parent's last checkpoint ---


def missing_parent(parameters: RunParameters) -> RunParameters | None:
    """Return the parameters of the parent if it must be trained first, else None."""
    warm_start = SPECS[parameters.model].warm_start
    if not warm_start or warm_start.share is not None:
        return None
    parent = parameters.parent()
    return None if _last_checkpoint(parent) else parent


def _last_checkpoint(parent: RunParameters) -> Checkpoint | None:
    found = Checkpoints(parent.checkpoint_folder).read()
    asked = {name: getattr(parent, name) for name in OF_THE_PARENT}
    fits = found and found.is_finished and asked.items() <= found.parameters.items()
    return found if fits else None


def _expect_last_checkpoint(parent: RunParameters) -> Checkpoint:
    if found := _last_checkpoint(parent):
        return found
    raise ValueError(
        f"{parent.name} has a record in {parent.record_folder} but no checkpoint in"
        f" {parent.checkpoint_folder}: its weights are not available; repeat it with resume ="
        " False, or set checkpoints to the folder of its checkpoint"
    )


# --- the weights that a parent stored after one of its epochs ---


def epochs_to_keep(parameters: RunParameters) -> set[int]:
    """Return the epochs after which a run stores its weights for other runs to start from."""
    if not parameters.checkpoint_every:
        return set()
    starts = [spec.warm_start for spec in SPECS.values() if spec.parent == parameters.model]
    return {round(s.share * parameters.epochs) for s in starts if s and s.share is not None}


def _load_kept_weights(
    network: nn.Module, parent: RunParameters, epoch: int, child: RunParameters
) -> None:
    path = Checkpoints(parent.checkpoint_folder).weights_path(epoch)
    try:
        weights, about = read_tensors(path)
        _expect_same_run(parent, about["parameters"], path)
        set_weights(network, weights)
    except (OSError, ValueError) as error:
        asked = {name: getattr(child, name) for name in ("dataset", "tier", "seed")}
        raise ValueError(
            f"{child.name} starts from {parent.name} after {epoch} of {parent.epochs} epochs,"
            f" which is not available ({error}); this command creates it:"
            f" {command(model=parent.model, **asked)}"
        ) from None
