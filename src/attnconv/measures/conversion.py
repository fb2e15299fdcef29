"""The comparison of a trained CNN with its conversion to attention on all test images (chapter 14).

The result is stored with the record of the CNN's run.
"""

import hashlib
import time
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from ..data import Batches, Dataset
from ..layers.conv import convert_network
from ..runs.record import RunRecord, provenance
from ..runs.weights import WEIGHTS_FILE
from ..store import DamagedFile, write_file
from .accuracy import logits_by_batch

CONVERSION_FILE = "conversion.json"


class Answers(BaseModel):
    """The number of test images that a network classifies correctly, and the time in seconds.

    `right_mirrored`: with the sum of the logits for the image and for its mirror image.
    """

    model_config = ConfigDict(extra="forbid")

    right: int
    right_mirrored: int
    seconds: float  # for the images without mirror images


class Conversion(BaseModel):
    """The answers of the trained CNN of a run, and of its conversion to attention."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    weights_sha256: str
    dataset: dict[str, Any]  # name, fingerprint
    test_images: int
    convolutions_left: int
    same_class: int  # fingerprint of the test images
    same_class_mirrored: int
    largest_gap: float  # between the logits, relative to the largest logit
    smallest_margin: float  # between an image's two largest logits, for the CNN, likewise
    cnn: Answers
    attention: Answers
    git_commit: str | None
    versions: dict[str, str]
    hardware: dict[str, Any]

    def accuracies(self) -> dict[str, float]:
        """Return the test accuracies of both networks, without and with mirror images."""
        right = {
            "CNN": self.cnn.right,
            "CNN, mirrored": self.cnn.right_mirrored,
            "attention": self.attention.right,
            "attention, mirrored": self.attention.right_mirrored,
        }
        return {name: count / self.test_images for name, count in right.items()}


def compare(model: nn.Module, folder: Path, dataset: Dataset) -> Conversion:
    """Compare a trained CNN with its conversion to attention on the test images of a data set.

    The model must be in evaluation mode. The result is also written to `folder`, the record's.
    """
    recast = convert_network(model)
    convolution = nn.modules.conv._ConvNd
    images = Batches(dataset, dataset.test_images, dataset.test_labels)
    logits, seconds = zip(*(_logits(network, images) for network in (model, recast)), strict=True)
    mirrored = [
        plain + _logits(network, images, mirrored=True)[0]
        for network, plain in zip((model, recast), logits, strict=True)
    ]
    right, right_mirrored = (
        [int((values.argmax(dim=1) == images.labels).sum()) for values in each]
        for each in (logits, mirrored)
    )
    answers = [
        Answers(right=plain, right_mirrored=both, seconds=round(took, 3))
        for plain, both, took in zip(right, right_mirrored, seconds, strict=True)
    ]
    found = Conversion(
        weights_sha256=_sha256(folder),
        dataset={"name": dataset.name, "fingerprint": dataset.fingerprint},
        test_images=len(images),
        convolutions_left=sum(isinstance(module, convolution) for module in recast.modules()),
        same_class=_same_class(*logits),
        same_class_mirrored=_same_class(*mirrored),
        largest_gap=((logits[1] - logits[0]).abs().max() / logits[0].abs().max()).item(),
        smallest_margin=(-logits[0].topk(2).values.diff().max() / logits[0].abs().max()).item(),
        cnn=answers[0],
        attention=answers[1],
        **provenance(torch.device("cpu"), processes=1),
    )
    write_file(folder / CONVERSION_FILE, (found.model_dump_json(indent=2) + "\n").encode())
    return found


def _logits(model: nn.Module, images: Batches, mirrored: bool = False) -> tuple[Tensor, float]:
    """Return the logits of all images, `(N, classes)`, and the computing time in seconds."""
    start = time.perf_counter()
    logits = [batch for batch, _ in logits_by_batch(model, images, mirrored=mirrored)]
    return torch.cat(logits), time.perf_counter() - start


def _same_class(one: Tensor, other: Tensor) -> int:
    return int((one.argmax(dim=1) == other.argmax(dim=1)).sum())


def _sha256(folder: Path) -> str:
    return hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()


def load_conversion(record: RunRecord) -> Conversion | None:
    """Load the result of `compare` from the folder of a record, or return None if there is none.

    DamagedFile if it is damaged or belongs to other weights.
    """
    path = record.folder / CONVERSION_FILE
    if not path.exists():
        return None
    mend = f"repeat it: python -m attnconv convert --model {record.info.parameters['model']}"
    try:
        found = Conversion.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DamagedFile(f"{path} is damaged: {where} {first['msg']}; {mend}") from None
    if found.weights_sha256 != _sha256(record.folder):
        raise DamagedFile(f"{path} belongs to other weights than those stored with it; {mend}")
    return found
