"""Trained weights, stored in half precision with some run records, and models that use them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from ..build import build_network
from ..data import DATASETS
from ..data.cifar10 import CIFAR10_NORMALISATION
from ..store import DamagedFile, Model, read_json, read_tensors, write_tensors
from .parameters import RunParameters
from .record import MEND, RunRecord, load_run

WEIGHTS_FILE = "weights.safetensors"


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a model by name, listing shared ones only once."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def set_weights(model: nn.Module, values: dict[str, Tensor]) -> None:
    """Copy weights into a model.

    Raises ValueError unless the names and shapes match those of the model. A shared weight has only
    one of its names.
    """
    if other := sorted(named_weights(model).keys() ^ values.keys()):
        raise ValueError(f"got the weights of another model; not in both: {', '.join(other[:3])}")
    try:
        model.load_state_dict(values, strict=False)
    except RuntimeError as error:
        raise ValueError(f"got the weights of another model: {error}") from None


def write_weights(folder: Path, model: nn.Module, check: dict[str, float]) -> None:
    """Write a model's weights as float16 to the folder of its record.

    `check`, which is stored with the weights, is an accuracy to verify them by; see `TrainedModel`.
    """
    half = {
        name: value.half() if value.is_floating_point() else value
        for name, value in named_weights(model).items()
    }
    write_tensors(folder / WEIGHTS_FILE, half, check)


class TrainedModel(nn.Module):
    """A network with the record of the run that trained it.

    `check` holds `accuracy`, the network's accuracy on the first test images, and their number,
    `first_test_images`. `transform` converts a PIL image of any size or a uint8 array `(H, W, 3)`
    to the network's input `(3, 32, 32)`: the central square, resized and normalised as in training.
    """

    record: RunRecord
    check: dict[str, float]
    transform: Callable[[Any], Tensor]


def load_model(
    name: str, tier: str = "small", seed: int = 0, runs: str | Path = ""
) -> TrainedModel:
    """Return a trained model in float32 and evaluation mode, with its `record`.

    The weights are stored with the record.

    Args:
        name: The name of the model.
        tier: The tier of the run.
        seed: The seed of the run.
        runs: The folder of the records, by default the repository's data/runs.

    Returns:
        A model that maps images `(B, 3, 32, 32)` to logits `(B, 10)`, with the classes in
        alphabetical order. Its `transform` prepares any image for it;
        `load_dataset("cifar10").normalise` prepares the images of the data set.

    Raises:
        ValueError: If the model or the tier is unknown.
        FileNotFoundError: If there is no such run, it is not finished or its weights are not
            stored.
        DamagedFile: If the record or the weights are damaged.

    Example:
        >>> import attnconv, torch
        >>> model = attnconv.load_model("sa-quadratic")
        >>> model(torch.rand(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """
    parameters = RunParameters.check(
        {"model": name, "dataset": "cifar10", "tier": tier, "seed": seed, "runs": str(runs)}
    )
    return model_of(load_run(parameters.record_folder))


def model_of(record: RunRecord, file: str = WEIGHTS_FILE) -> TrainedModel:
    """Return a record's trained model, with weights from a file in its folder; see `load_model`.

    Raises FileNotFoundError if there is no such file or the run is not finished, and DamagedFile if
    the file cannot be used.
    """
    path = record.folder / file
    if record.info.status != "finished":  # the file would be left from an earlier run
        raise FileNotFoundError(
            f"{record.name} is not finished (status: {record.info.status}); its weights are stored"
            " at the end of training"
        )
    if not path.exists():
        raise FileNotFoundError(
            f"the weights of {record.name} are not stored ({file} is missing in"
            f" {record.folder}); expected a run of the small tier with seed 0, or {MEND}"
        )
    # a network of any class, to which the attributes are added
    model = cast(TrainedModel, build_network(record.info.parameters, record.heads_left))
    try:
        values, model.check = read_tensors(path)
        set_weights(model, values)
    except ValueError as error:
        raise DamagedFile(f"{path} cannot be used: {error}; {MEND}") from None
    model.record = record
    model.transform = picture_transform
    return model.eval()


def picture_transform(picture: Any) -> Tensor:
    """Convert an image to network input, as for CIFAR-10 images in training and testing.

    `picture` is a PIL image or a uint8 array `(H, W, 3)` of any size; the result has the shape
    `(3, 32, 32)`. The normalisation is that of the published code, as in training; with CIFAR-10's
    true standard deviations, the accuracy would be lower. Raises ValueError for other shapes or
    types.
    """
    from torchvision import transforms  # imported only here because this takes seconds

    size = DATASETS["cifar10"].image_size
    shape = [transforms.ToPILImage(), transforms.Resize(size), transforms.CenterCrop(size)]
    numbers = [transforms.ToTensor(), transforms.Normalize(*CIFAR10_NORMALISATION)]
    return transforms.Compose([*shape, *numbers])(_as_array(picture))


def _as_array(picture: Any) -> Any:
    """Return an image as a uint8 array `(H, W, 3)`; raise ValueError for other shapes or types."""
    array = np.asarray(picture.convert("RGB") if hasattr(picture, "convert") else picture)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        raise ValueError(
            f"got a picture of shape {array.shape} and type {array.dtype}, expected a PIL image or"
            " an array (height, width, 3) of uint8"
        )
    return array


def weights_sha256(folder: Path) -> str:
    """Return the SHA-256 digest of the weights that are stored with a record."""
    return hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()


def stored_result(record: RunRecord, file: str, kind: type[Model], command: str) -> Model | None:
    """Load a result that was computed from a record's weights, or return None if there is none.

    `command` is the command of `python -m attnconv` that computes it. Raises DamagedFile if the
    file is damaged or belongs to different weights.
    """
    path = record.folder / file
    if not path.exists():
        return None
    mend = f"repeat it: python -m attnconv {command}"
    try:
        found: Any = read_json(path, kind)
        if found.weights_sha256 != weights_sha256(record.folder):
            raise DamagedFile(f"{path} belongs to other weights than those stored with it")
    except DamagedFile as error:
        raise DamagedFile(f"{error}; {mend}") from None
    return found
