"""Where a run starts: from nothing, from its own checkpoint or record, or from another run's model,
pruned or turned into attention."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from torch import nn

from ..data import Dataset
from ..models import SPECS, SelfAttentionNet, prune_degenerate_heads
from ..models.cnn import begin
from ..runs.parameters import Network, Place, RunParameters, Task, build_network
from ..runs.record import RunRecord, load_run
from ..runs.select import command
from ..runs.weights import set_weights
from ..store import DamagedFile, read_tensors
from .checkpoint import Checkpoint, Checkpoints

OF_THE_PARENT = Task.names() - {"model", "test_images"} | Network.names()  # must be as asked


def what_is_there(
    parameters: RunParameters, checkpoints: Checkpoints
) -> Checkpoint | RunRecord | None:
    """The newest checkpoint of this run, or its record when that is all there is, or nothing.
    ValueError for another run's."""
    if not parameters.resume:
        if int(os.environ.get("RANK", "0")) == 0:
            checkpoints.clear()
        return None
    record = None
    try:
        record = load_run(parameters.record_folder)
    except FileNotFoundError:
        pass
    except DamagedFile as error:  # as a partial one that was being written when the run was killed
        warnings.warn(f"{error}; it will be written anew", stacklevel=2)
    if record:
        _expect_same_run(parameters, record.info.parameters, record.folder)
    if found := checkpoints.read():
        _expect_same_run(parameters, found.parameters, found.path)
        return found
    if record and record.info.status == "finished":
        print(
            f"{parameters.name} is finished: this is its record in {record.folder}; resume = False"
            " repeats the run",
            flush=True,
        )
        return record
    return None


def _expect_same_run(parameters: RunParameters, other: dict[str, Any], where: Path | None) -> None:
    ours = parameters.identity()
    # a parameter that is younger than the record was at its default
    given = RunParameters.defaults() | other
    theirs = {name: value for name, value in given.items() if name not in Place.names()}
    if names := sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    ):
        differences = ", ".join(
            f"{name} = {theirs.get(name)!r} (asked for: {ours.get(name)!r})" for name in names
        )
        raise ValueError(
            f"{where} is of a run with other parameters: {differences}. Name other folders with"
            " runs and checkpoints, or set resume to False to replace it"
        )


def from_another(
    parameters: RunParameters,
    dataset: Dataset,
    train: Callable,
    measure: Callable[[nn.Module], float],
) -> tuple[nn.Module, dict[str, Any]]:
    """The model that a run starts with, made of another run's, and where it came from: with the
    test accuracies before and after, which `measure` gives."""
    if SPECS[parameters.model].start:
        model, origin = arm_at_start(parameters, measure)
        return model, origin | {"test_accuracy_at_start": measure(model)}
    model, origin = pruned_parent(parameters, dataset, train)
    return model, origin | {"test_accuracy_after_pruning": measure(model)}


def pruned_parent(
    parameters: RunParameters, dataset: Dataset, train: Callable
) -> tuple[nn.Module, dict[str, Any]]:
    """The trained model that a pruned run starts from without its degenerate heads, and where it
    came from.

    It is trained by `train` first if it is not there.
    """
    parent = parameters.parent()
    found = Checkpoints(parent.checkpoint_folder).read()
    if (
        found
        and found.is_finished
        and all(found.parameters[name] == getattr(parent, name) for name in OF_THE_PARENT)
    ):
        model, metrics = build_network(parent.model_dump()), found.progress.metrics
        set_weights(model, found.weights)
    else:
        print(
            f"{parameters.name} starts from {parent.name}, which is trained first: {parent.epochs}"
            " epochs",
            flush=True,
        )
        run = train(parent, dataset)
        if run.model is None:
            raise ValueError(
                f"{parent.name} has a record in {run.record.folder} but no checkpoint in"
                f" {parent.checkpoint_folder}: its weights are not at hand; repeat it with resume ="
                " False, or name the folder of its checkpoint by checkpoints"
            )
        model, metrics = run.model, run.metrics
    criterion = {
        "max_condition": parameters.max_condition,
        "min_eigenvalue": parameters.min_eigenvalue,
    }
    pruned, removed = prune_degenerate_heads(cast(SelfAttentionNet, model), **criterion)
    origin = {
        "run": parent.name,
        "epochs": parent.epochs,
        "test_accuracy": metrics[-1]["test_accuracy"],
    }
    return pruned, origin | {"removed_heads": removed} | criterion


def epochs_to_keep(parameters: RunParameters) -> set[int]:
    """After how many epochs of a run its weights are kept, for the arms of chapter 15 that start
    there; none where no arm starts from such a model."""
    return {
        round(spec.start.share * parameters.epochs)
        for spec in SPECS.values()
        if spec.start and spec.parent == parameters.model and parameters.checkpoint_every
    }


def arm_at_start(
    parameters: RunParameters, measure: Callable[[nn.Module], float]
) -> tuple[nn.Module, dict[str, Any]]:
    """What an arm of chapter 15 trains, made of the CNN as it was at the arm's share of its
    training; and where it came from, with the CNN's accuracy, which `measure` gives.

    ValueError, with the command that makes it, where the CNN is missing, damaged or another.
    """
    parent, start = parameters.parent(), SPECS[parameters.model].start
    assert start, "only arms start so"
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
            f" which is not at hand ({error}); this command makes it:"
            f" {command(model=parent.model, **asked)}"
        ) from None
    origin = {"run": parent.name, "epochs": epoch, "test_accuracy": measure(cnn)}
    return begin(cnn, start, parameters.start_alpha, parameters.seed), origin
