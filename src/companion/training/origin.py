"""The origin of a run: the model and the state from which it starts.

A run starts from scratch, from its own checkpoint, from a trained parent (with or without its
degenerate heads), or from a CNN that is trained further, either unchanged or converted to
attention. A finished run is returned unchanged.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from attnconv.cnn import SmallCNN
from attnconv.networks import SelfAttentionNet, prune_degenerate_heads

from ..data import Batches, Split
from ..models import build_network
from ..runs.parameters import Network, Place, RunParameters, Task
from ..runs.record import RunRecord, load_run
from ..runs.select import command
from ..runs.weights import set_weights
from ..specs import SPECS
from ..store import DamagedFile, read_tensors
from ..studies.freed.measures import as_convolutions
from ..studies.freed.network import begin
from .checkpoint import Checkpoint, Checkpoints
from .machine import Processes
from .recorder import evaluate

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
    record, checkpoints = None, Checkpoints(parameters.checkpoint_folder)
    if not parameters.resume:
        return None, None
    try:
        record = load_run(parameters.record_folder)
        _expect_same_run(parameters, record.info.parameters, record.folder)
    except FileNotFoundError:
        pass
    except DamagedFile as error:  # such as a file still being written when the run was killed
        warnings.warn(f"{error}; it will be rewritten", stacklevel=2)
    if checkpoint := checkpoints.read():
        _expect_same_run(parameters, checkpoint.parameters, checkpoint.path)
    finished = record and record.info.status == "finished"
    return record if finished and (not checkpoint or checkpoint.is_finished) else None, checkpoint


def _expect_same_run(parameters: RunParameters, other: dict[str, Any], where: Path | None) -> None:
    ours = parameters.identity()
    # parameters added after the file was written have their defaults
    given = RunParameters.defaults() | other
    theirs = {name: value for name, value in given.items() if name not in Place.names()}
    differences = ", ".join(
        f"{name} = {theirs.get(name)!r} (requested: {ours.get(name)!r})"
        for name in sorted(ours.keys() | theirs.keys())
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
    """Return what a run starts from: its checkpoint, a trained parent, a CNN, or a new network."""
    torch.manual_seed(parameters.seed)
    if checkpoint:
        return _from_checkpoint(parameters, checkpoint, processes)
    if SPECS[parameters.model].start:
        return _from_cnn(parameters, data.test, processes)
    if SPECS[parameters.model].parent:
        return _from_trained(parameters, data.test, processes)
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


def missing_parent(parameters: RunParameters) -> RunParameters | None:
    """Return the parameters of the parent if it must be trained first, else None."""
    spec = SPECS[parameters.model]
    if not spec.parent or spec.start or _last_checkpoint(parameters.parent()):
        return None
    return parameters.parent()


def _last_checkpoint(parent: RunParameters) -> Checkpoint | None:
    found = Checkpoints(parent.checkpoint_folder).read()
    asked = {name: getattr(parent, name) for name in OF_THE_PARENT}
    fits = found and found.is_finished and asked.items() <= found.parameters.items()
    return found if fits else None


def _from_trained(parameters: RunParameters, test: Batches, processes: Processes) -> Origin:
    parent = parameters.parent()
    found = _last_checkpoint(parent)
    if found is None:
        raise ValueError(
            f"{parent.name} has a record in {parent.record_folder} but no checkpoint in"
            f" {parent.checkpoint_folder}: its weights are not available; repeat it with resume ="
            " False, or set checkpoints to the folder of its checkpoint"
        )
    network = build_network(parent.model_dump())
    set_weights(network, found.weights)
    before = found.progress.metrics[-1]["test_accuracy"]
    about = {"run": parent.name, "epochs": parent.epochs, "test_accuracy": before}
    if not SPECS[parameters.model].prunes:
        return Origin(processes.place(network), about)
    criterion = {name: getattr(parameters, name) for name in ("max_condition", "min_eigenvalue")}
    model, removed = prune_degenerate_heads(cast(SelfAttentionNet, network), **criterion)
    model = processes.place(model)
    _, after = evaluate(model, test, parameters.precision)
    about |= {"removed_heads": removed, **criterion, "test_accuracy_after_pruning": after}
    return Origin(model, about)


# --- chapter 15: CNNs that are trained further, unchanged or as attention ---


def epochs_to_keep(parameters: RunParameters) -> set[int]:
    """Return the epochs after which a run stores its weights for other runs to start from."""
    return {
        round(spec.start.share * parameters.epochs)
        for spec in SPECS.values()
        if spec.start and spec.parent == parameters.model and parameters.checkpoint_every
    }


def _from_cnn(parameters: RunParameters, test: Batches, processes: Processes) -> Origin:
    """Return the origin of an arm: the CNN after the share of its epochs at which the arm starts.

    Raises ValueError, with the command that trains the CNN, if the CNN is missing, damaged or from
    a different run.
    """
    parent, start = parameters.parent(), SPECS[parameters.model].start
    assert start, "only arms start from a CNN"
    epoch = round(start.share * parent.epochs)
    path = Checkpoints(parent.checkpoint_folder).weights_path(epoch)
    cnn = build_network(parent.model_dump())
    try:
        weights, about = read_tensors(path)
        _expect_same_run(parent, about["parameters"], path)
        set_weights(cnn, weights)
    except (OSError, ValueError) as error:
        asked = {name: getattr(parameters, name) for name in ("dataset", "tier", "seed")}
        raise ValueError(
            f"{parameters.name} starts from {parent.name} after {epoch} of {parent.epochs} epochs,"
            f" which is not available ({error}); this command creates it:"
            f" {command(model=parent.model, **asked)}"
        ) from None
    _, accuracy = evaluate(processes.place(cnn), test, parameters.precision)
    about = {"run": parent.name, "epochs": epoch, "test_accuracy": accuracy}
    model = processes.place(begin(cnn, start, parameters.start_alpha, parameters.seed))
    _, at_start = evaluate(model, test, parameters.precision)
    return Origin(model, about | {"test_accuracy_at_start": at_start})


def final_measures(parameters: RunParameters, model: nn.Module, test: Batches) -> dict[str, Any]:
    """Return the measures of the trained model that its run record stores besides the accuracy.

    Only arms with attention (chapter 15) have any: each layer's distance from its nearest
    convolution, and the accuracy with these convolutions in place of the layers.
    """
    start = SPECS[parameters.model].start
    if not (start and start.heads):
        return {}
    cnn, distances = as_convolutions(model)
    return {"distances": distances, "test_accuracy_as_convolutions": evaluate(cnn, test)[1]}
