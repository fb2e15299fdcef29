"""Trained weights, kept in half precision beside some run records, and the models they make."""

from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from ..store import DamagedFile, read_tensors, write_tensors
from .parameters import RunParameters, build_network
from .record import MEND, RunRecord, load_run

WEIGHTS_FILE = "weights.safetensors"


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a model by name, each shared one once."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


@torch.no_grad()
def set_weights(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Copy weights into a model.

    ValueError unless names and shapes are those of the model. (`load_state_dict` would also ask for
    a shared weight under each of its names.)
    """
    targets = named_weights(model)
    expected, found = (
        {name: tuple(value.shape) for name, value in weights.items()}
        for weights in (targets, values)
    )
    names = sorted(expected.keys() | found.keys())
    if other := [name for name in names if expected.get(name) != found.get(name)]:
        listed = ", ".join(
            f"{name} {found.get(name)} (expected {expected.get(name)})" for name in other[:3]
        )
        raise ValueError(f"got the weights of another model: {listed}" + ", ..." * (len(other) > 3))
    for name, target in targets.items():
        target.copy_(values[name])


def write_weights(folder: Path, model: nn.Module, check: dict[str, float]) -> None:
    """Write a model's weights as float16 beside its record, with an accuracy to check them by."""
    half = {
        name: value.half() if value.is_floating_point() else value
        for name, value in named_weights(model).items()
    }
    write_tensors(folder / WEIGHTS_FILE, half, check)


class TrainedModel(nn.Module):
    """A network with the record of the run that trained it.

    `check`: `first_test_images` and the `accuracy` that the network had on so many test images.
    """

    record: RunRecord
    check: dict[str, float]


def load_model(
    name: str, tier: str = "small", seed: int = 0, runs: str | Path = ""
) -> TrainedModel:
    """Return a trained model, float32, in evaluation mode, with its `record`.

    It maps images `(B, 3, 32, 32)`, normalised by `load_dataset("cifar10").normalise`, to logits
    `(B, 10)`, the classes in alphabetical order. Its weights lie beside the record. `runs`: the
    folder of the records; empty: the repository's data/runs. ValueError for an unknown model or
    tier, FileNotFoundError where there is no such run or its weights were not kept, DamagedFile
    where they are damaged.
    """
    parameters = RunParameters.check(
        {"model": name, "dataset": "cifar10", "tier": tier, "seed": seed, "runs": str(runs)}
    )
    record = load_run(parameters.record_folder)
    if not (record.folder / WEIGHTS_FILE).exists():
        raise FileNotFoundError(
            f"the weights of {record.name} are not kept ({WEIGHTS_FILE} is missing in"
            f" {record.folder}); expected a run of the small tier with seed 0, or {MEND}"
        )
    # a network of any class, to which the two attributes are added
    model = cast(TrainedModel, build_network(record.info.parameters, record.heads_left))
    try:
        values, model.check = read_tensors(record.folder / WEIGHTS_FILE)
        set_weights(model, values)
    except ValueError as error:
        raise DamagedFile(
            f"{record.folder / WEIGHTS_FILE} cannot be used: {error}; {MEND}"
        ) from None
    model.record = record
    return model.eval()
