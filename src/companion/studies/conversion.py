"""Compare a trained CNN with its attention form on all test images (chapter 14).

The result is stored with the CNN's run record. The last section makes the chapter's tables and the
numbers that its text quotes.
"""

import copy
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from attnconv.layers.conv_as_attention import ConvAsAttention
from attnconv.layers.convert import CONVOLUTIONS, convert_network
from attnconv.theory.encodings import quadratic_target
from attnconv.theory.theorem1 import quadratic_scores

from ..accuracy import logits_by_batch
from ..claims.claim import NOT_RUN, Claims, Runs, Verdict
from ..claims.rules import holds
from ..data import Batches, Dataset
from ..display import Numbers, Table
from ..gaps import largest_gap
from ..runs.record import RunRecord, provenance
from ..runs.weights import stored_result, weights_sha256
from ..store import write_file
from .cost import Measured

CONVERSION_FILE = "conversion.json"


class Answers(BaseModel):
    """A network's test results: the number of correct classifications and the computation time.

    `right_mirrored` is the number of images classified correctly when the logits of each image and
    its mirror image are added.
    """

    model_config = ConfigDict(extra="forbid")

    right: int
    right_mirrored: int
    seconds: float  # excluding the mirror images


class Converted(Answers):
    """The test results of a CNN converted to attention, compared with those of the original CNN.

    `same_class` is the number of images that both networks assign to the same class. `largest_gap`
    is the largest difference between their logits, relative to the CNN's largest logit.
    """

    same_class: int
    same_class_mirrored: int
    largest_gap: float


class Conversion(BaseModel):
    """The test results of a trained CNN and of its conversion to attention.

    In `attention`, one-hot heads run as shifts of the image; in `softmax`, every head computes
    its scores and its softmax at every query. `smallest_margin` is the smallest difference
    between the CNN's two largest logits for any image, relative to its largest logit over all
    images.
    """

    model_config = ConfigDict(extra="forbid")

    version: Literal[2] = 2
    weights_sha256: str
    dataset: dict[str, Any]  # name, fingerprint of the test images
    test_images: int
    convolutions_left: int
    smallest_margin: float
    cnn: Answers
    attention: Converted
    softmax: Converted
    git_commit: str | None
    versions: dict[str, str]
    hardware: dict[str, Any]


class SoftmaxAtEveryQuery(nn.Module):
    """A converted layer that evaluates equation (4) as written, with a dense softmax.

    At each query, the softmax runs over all pixels of the padded image, and every probability, even
    if it is zero, is multiplied by its pixel.
    """

    def __init__(self, layer: ConvAsAttention):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        encoding = layer.encoding
        x = layer.padded(x)
        height, width = x.shape[2:]
        scores = quadratic_scores(quadratic_target(encoding.centers, encoding.alpha), height, width)
        scores = scores.unflatten(1, (height, width))
        rows, columns = (list(layer.queries(axis, x.shape[2 + axis])) for axis in (0, 1))
        A = scores[:, rows][:, :, columns].softmax(dim=-1)  # (N_h, rows, columns, T)
        averages = torch.einsum("hijk,bck->bhcij", A, x.flatten(2))
        output = torch.einsum("bhcij,hco->boij", averages, layer.value_matrices())
        return output if layer.bias is None else output + layer.bias.view(-1, 1, 1)


def with_softmax_at_every_query(network: nn.Module) -> nn.Module:
    """Return a copy of a converted network that computes the softmax at every query."""
    network = copy.deepcopy(network)
    layers = [(name, m) for name, m in network.named_modules() if isinstance(m, ConvAsAttention)]
    for name, layer in layers:
        network.set_submodule(name, SoftmaxAtEveryQuery(layer))
    return network


def compare(model: nn.Module, folder: Path, dataset: Dataset) -> Conversion:
    """Compare a trained CNN with its conversion to attention on the test images of a data set.

    The model must be in evaluation mode. The result is also written to `folder`, which contains the
    CNN's run record. Raises ValueError if the model has no convolutions.
    """
    if not any(isinstance(module, CONVOLUTIONS) for module in model.modules()):
        raise ValueError(f"the model of {folder.name} has no convolutions; expected a CNN")
    recast = convert_network(model)
    images = Batches(dataset, dataset.test_images, dataset.test_labels)
    cnn, cnn_logits = _answers(model, images)
    found = Conversion(
        weights_sha256=weights_sha256(folder),
        dataset={"name": dataset.name, "fingerprint": dataset.fingerprint},
        test_images=len(images),
        convolutions_left=sum(isinstance(module, CONVOLUTIONS) for module in recast.modules()),
        smallest_margin=(
            -cnn_logits[0].topk(2).values.diff().max() / cnn_logits[0].abs().max()
        ).item(),
        cnn=cnn,
        attention=_compared(recast, images, cnn_logits),
        softmax=_compared(with_softmax_at_every_query(recast), images, cnn_logits),
        **provenance(torch.device("cpu"), processes=1),
    )
    write_file(folder / CONVERSION_FILE, (found.model_dump_json(indent=2) + "\n").encode())
    return found


def _answers(model: nn.Module, images: Batches) -> tuple[Answers, tuple[Tensor, Tensor]]:
    """Return a network's answers, and its logits without and with mirror images."""
    plain, seconds = _logits(model, images)
    both = plain + _logits(model, images, mirrored=True)[0]
    right, right_mirrored = (int((Y.argmax(dim=1) == images.labels).sum()) for Y in (plain, both))
    answers = Answers(right=right, right_mirrored=right_mirrored, seconds=round(seconds, 3))
    return answers, (plain, both)


def _compared(model: nn.Module, images: Batches, cnn: tuple[Tensor, Tensor]) -> Converted:
    """Return a converted network's answers, compared with the CNN's logits."""
    answers, logits = _answers(model, images)
    same = [_same_class(ours, theirs) for ours, theirs in zip(logits, cnn, strict=True)]
    return Converted(
        **answers.model_dump(),
        same_class=same[0],
        same_class_mirrored=same[1],
        largest_gap=largest_gap(logits[0], cnn[0]),
    )


def _logits(model: nn.Module, images: Batches, mirrored: bool = False) -> tuple[Tensor, float]:
    """Return the logits of all images, `(N, classes)`, and the computing time in seconds."""
    start = time.perf_counter()
    logits = [batch for batch, _ in logits_by_batch(model, images, mirrored=mirrored)]
    return torch.cat(logits), time.perf_counter() - start


def _same_class(one: Tensor, other: Tensor) -> int:
    return int((one.argmax(dim=1) == other.argmax(dim=1)).sum())


def load_conversion(record: RunRecord) -> Conversion | None:
    """Load the result of `compare` from a record's folder, or return None if there is none.

    Raises DamagedFile if the file is damaged or belongs to different weights.
    """
    command = f"convert --model {record.info.parameters['model']}"
    return stored_result(record, CONVERSION_FILE, Conversion, command)


CLAIMS = Claims("", "small")


@CLAIMS.claim(
    "chapter 14",
    "a trained CNN, converted to attention, is the same classifier",
    "every test image is put into the same class, whether one-hot heads are executed as shifts or"
    " with a softmax at every query, and no convolution is left",
    "cnn",
)
def _same_network(runs: Runs) -> Verdict:
    for record in runs["cnn"]:
        if found := load_conversion(record):
            ways = {"as shifts": found.attention, "with a softmax at every query": found.softmax}
            same = all(each.same_class == found.test_images for each in ways.values())
            measured = f"test images put into the same class (of {found.test_images}): "
            measured += "; ".join(
                f"{each.same_class} {name} (gap between the logits: {each.largest_gap:.0e})"
                for name, each in ways.items()
            )
            verdict = holds(measured, same and not found.convolutions_left)
            return replace(verdict, sample=record.name)
    return Verdict(NOT_RUN, "no comparison is stored")


# --- the chapter's tables and numbers -------------------------------------------------------------


def recipe_table(record: RunRecord) -> Table:
    """Return a table of the CNN's training recipe, from its run record."""
    settings = (
        *("optimizer", "learning_rate", "weight_decay", "norm_rate", "label_smoothing"),
        *("schedule", "warm_up", "batch_size", "padding", "epochs", "width"),
    )
    return Table(
        "cnn-recipe",
        "The CNN's training recipe. The command attnconv train --help explains the settings."
        " Source: the run record.",
        [name.replace("_", " ") for name in settings],
        [[f"{record.info.parameters[name]}" for name in settings]],
    )


def layers_table(cnn: nn.Module, recast: nn.Module) -> Table:
    """Return a table of a CNN's convolutions and the heads of the layers that replace them.

    The number of output pixels is that for an image of 32 x 32 pixels.
    """
    convolutions = {name: m for name, m in cnn.named_modules() if isinstance(m, nn.Conv2d)}
    sizes: dict[nn.Module, tuple[int, ...]] = {}

    def store_size(conv: nn.Module, _: Any, output: Any) -> None:
        sizes[conv] = tuple(output.shape[-2:])

    hooks = [conv.register_forward_hook(store_size) for conv in convolutions.values()]
    with torch.no_grad():
        cnn(torch.zeros(1, 3, 32, 32))
    for hook in hooks:
        hook.remove()
    rows = []
    for name, conv in convolutions.items():
        height, width = sizes[conv]
        row = {
            "layer": name,
            "heads": str(recast.get_submodule(name).num_heads),
            "channels": f"{conv.in_channels} → {conv.out_channels}",
            "output pixels": f"{height} × {width}",
        }
        rows.append(row)
    caption = (
        "The convolutions of the CNN, in order. Each becomes an attention layer with one head per"
        " kernel position."
    )
    return Table.of("cnn-layers", caption, rows)


def accuracy_table(found: Conversion) -> Table:
    """Return a table of the networks' correct predictions on the test images."""
    networks = {
        "CNN": found.cnn,
        "attention with heads as shifts": found.attention,
        "attention with a softmax at every query": found.softmax,
    }
    total = found.test_images

    def count(right: int) -> str:
        return f"{right:,} ({right / total:.4f})"

    rows = [
        {
            "network": name,
            "correct (accuracy)": count(answers.right),
            "correct with mirror images": count(answers.right_mirrored),
        }
        for name, answers in networks.items()
    ]
    caption = (
        f"Each network's correct predictions on the {total:,} test images, with the accuracy in"
        " parentheses. Source: the CNN's run record."
    )
    return Table.of("same-network", caption, rows)


def cost_table(costs: Mapping[str, Measured], images: int) -> Table:
    """Return a table of the networks' costs, which were measured on a number of images."""
    rows = [
        {
            "network": name,
            "products, millions": f"{cost.products / images / 1e6:.1f}",
            "time, ms": f"{1e3 * cost.seconds / images:.1f}",
            "peak memory, MiB": f"{cost.mib:.0f}",
        }
        for name, cost in costs.items()
    ]
    caption = (
        "Cost of the two networks. Products (multiply-adds) and time are per image; memory is the"
        f" peak for {images} images."
        " Measured on one core while this book was built."
    )
    return Table.of("cnn-cost", caption, rows)


def numbers(record: RunRecord, found: Conversion, costs: Mapping[str, Measured]) -> Numbers:
    """Return the numbers that chapter 14 quotes.

    `record` is the CNN's run, `found` its conversion, and `costs` are the costs of the networks
    `CNN` and `attention`, measured while the book is built.
    """
    info = record.info
    total = found.test_images
    return {
        "cnn-minutes": info.wall_seconds / 60,
        "cnn-threads": info.hardware["threads"],
        "cnn-parameters": info.parameter_count / 1e3,
        "cnn-accuracy": found.cnn.right / total,
        "cnn-recorded": round(total * record.accuracy),
        "cnn-mirrored": found.cnn.right_mirrored / total,
        "same-class": found.attention.same_class,
        "same-of": total,
        "same-gap": max(found.attention.largest_gap, found.softmax.largest_gap),
        "cost-counted": found.attention.seconds / found.cnn.seconds,
        "cost-here": costs["attention"].seconds / costs["CNN"].seconds,
    }
