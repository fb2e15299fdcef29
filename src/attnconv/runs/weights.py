"""Trained weights, kept beside the records of some runs in half precision; and a trained model by
name."""

from pathlib import Path

import torch
from torch import Tensor, nn

from ..store import DamagedFile, read_tensors, write_tensors
from .parameters import RunParameters, build_network
from .record import MEND, load_run

FILE = "weights.safetensors"


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, a shared one once."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


@torch.no_grad()
def set_weights(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Copy the values into a model. ValueError unless they are those of such a model, by name and
    shape."""
    targets = named_weights(model)
    if other := sorted(
        name
        for name in targets.keys() | values.keys()
        if _shape(targets, name) != _shape(values, name)
    ):
        found = ", ".join(
            f"{name} {_shape(values, name)} (expected {_shape(targets, name)})"
            for name in other[:3]
        )
        raise ValueError(f"got the weights of another model: {found}" + ", ..." * (len(other) > 3))
    for name, target in targets.items():
        target.copy_(values[name])


def _shape(weights: dict[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(weights[name].shape) if name in weights else None


def write_weights(folder: Path, model: nn.Module, check: dict[str, float]) -> None:
    """Keep a model's weights as float16 beside its record, with what a reader can check them by."""
    half = {
        name: value.half() if value.is_floating_point() else value
        for name, value in named_weights(model).items()
    }
    write_tensors(folder / FILE, half, check)


def load_model(name: str, tier: str = "small", seed: int = 0, runs: str | Path = "") -> nn.Module:
    """A trained model from the weights beside its record, float32, in evaluation mode, with its
    `record`, and as `check` the accuracy that it had on the first test images.

    Takes images `(B, 3, 32, 32)` that `load_dataset("cifar10").normalise` has normalised, and gives
    logits `(B, 10)`, the classes in alphabetical order. `runs`: folder of the records; empty: the
    repository's data/runs. ValueError for an unknown model or tier, FileNotFoundError where there
    is no such run or its weights were not kept, DamagedFile where they are damaged.
    """
    parameters = RunParameters.check(
        {"model": name, "dataset": "cifar10", "tier": tier, "seed": seed, "runs": str(runs)}
    )
    record = load_run(parameters.record_folder)
    if not (record.folder / FILE).exists():
        raise FileNotFoundError(
            f"the weights of {record.name} are not kept ({FILE} is missing in {record.folder});"
            f" expected a run of the small tier with seed 0, or {MEND}"
        )
    model = build_network(record.info.parameters, record.heads_left)
    try:
        values, check = read_tensors(record.folder / FILE)
        set_weights(model, values)
    except ValueError as error:
        raise DamagedFile(f"{record.folder / FILE} cannot be used: {error}; {MEND}") from None
    vars(model).update(record=record, check=check)
    return model.eval()
