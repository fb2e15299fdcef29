"""The trained networks that run in a page: weights, architectures, classes and input format.

The forward passes run in JavaScript (`js/network/build.js`). Everything that the script needs to
know about a network is read from the network itself.
"""

from collections.abc import Iterable
from typing import Any, cast

from torch import nn

from attnconv.cnn import SmallCNN
from attnconv.layers.attention import ContentAttention
from attnconv.layers.encodings import (
    GeneralizedQuadraticEncoding,
    LearnedRelativeEncoding,
    QuadraticEncoding,
)
from attnconv.networks import Block, SelfAttentionNet

from ..build import build_network
from ..data import PICTURES, load_photograph, middle_square
from ..data.cifar10 import CIFAR10_CLASSES, CIFAR10_NORMALISATION
from ..data.dataset import DATASETS
from ..runs.record import RunRecord
from ..runs.weights import WEIGHTS_FILE
from ..specs import SPECS
from ..store import read_tensors
from . import script
from .payload import Payload

PICTURE_SIZE = 192  # side of the scene's pictures, in pixels

ENCODINGS = {
    QuadraticEncoding: "quadratic",
    GeneralizedQuadraticEncoding: "generalized",
    LearnedRelativeEncoding: "learned",
}


def add_networks(payload: Payload, records: Iterable[RunRecord]) -> Payload:
    """Add trained CIFAR-10 networks to a payload, with their weights in half precision.

    `data["networks"]` contains each record's id, model, label, source, test accuracy,
    `architecture` and weights file, which is loaded on request. `data["classes"]` contains the
    class name for each logit, and `data["input"]` contains the input's side in pixels and each
    channel's mean and std. Returns the same payload. Raises ValueError for a network that the page
    cannot run, and FileNotFoundError if a network's weights are not stored.
    """
    payload.data["networks"] = [_entry(payload, record) for record in records]
    mean, std = CIFAR10_NORMALISATION
    size = DATASETS["cifar10"].image_size
    payload.data |= {
        "classes": CIFAR10_CLASSES,
        "input": {"size": size, "mean": mean, "std": std},
    }
    return payload


def add_network_scene(payload: Payload, records: Iterable[RunRecord]) -> Payload:
    """Add the data for the stage's "network" scene: networks, the worker's script and two pictures.

    The pictures are the middle squares of those in `PICTURES`, reduced to 192 x 192 pixels.
    """
    add_networks(payload, records)
    labels = zip(PICTURES, ("a cat", "a horse"), strict=True)
    payload.data["pictures"] = [
        payload.picture(
            name, label, middle_square(load_photograph(name), PICTURE_SIZE), on_request=True
        )
        for name, label in labels
    ]
    payload.data["worker"] = script("worker")
    return payload


def _entry(payload: Payload, record: RunRecord) -> dict[str, Any]:
    if record.info.dataset["name"] != "cifar10":
        raise ValueError(f"got {record.name}, expected a run on cifar10")
    tensors, _ = read_tensors(record.folder / WEIGHTS_FILE)
    return {
        "id": record.name,
        "model": record.info.parameters["model"],
        "label": SPECS[record.info.parameters["model"]].label,
        "source": record.source,
        "accuracy": record.accuracy,
        "architecture": architecture(build_network(record.info.parameters, record.heads_left)),
        "file": payload.file(f"{record.name}--weights", tensors, on_request=True),
    }


def architecture(model: nn.Module, image_size: int = 32) -> dict[str, Any]:
    """Return everything that a network's forward pass needs, except the weights.

    The result contains `layers` for a self-attention network and `steps` for a `SmallCNN`. Raises
    ValueError for any other network.
    """
    if isinstance(model, SelfAttentionNet):
        layers = [_layer(cast(Block, block)) for block in model.blocks]
        return {"size": image_size, "pooling": model.pooling, "layers": layers}
    if isinstance(model, SmallCNN):
        steps = [_step("whitening", model.whitening), {"kind": "gelu"}]
        for name, module in model.groups.named_modules():
            if not list(module.children()):
                steps.append(_step(f"groups.{name}", module))
        return {"size": image_size, "steps": steps, "divisor": model.DIVISOR}
    raise ValueError(
        f"got {type(model).__name__}, expected a network of self-attention or the CNN of chapter 14"
    )


def _layer(block: Block) -> dict[str, Any]:
    """Return a layer's number of heads, the name of its encoding, and the epsilon of its norms."""
    attention = block.attention
    layer = {"heads": attention.num_heads, "epsilon": block.attention_norm.eps}
    if isinstance(attention, ContentAttention):
        return layer | {"encoding": "content"}
    encoding = attention.encoding
    form = {"alphaForm": encoding.alpha_form} if isinstance(encoding, QuadraticEncoding) else {}
    return layer | {"encoding": ENCODINGS[type(encoding)]} | form


def _step(name: str, module: nn.Module) -> dict[str, Any]:
    """Describe one step of a CNN for square images."""
    match module:
        case nn.Conv2d(kernel_size=(size, _), padding=(frame, _)):
            return {"kind": "convolution", "name": name, "kernel": size, "padding": frame}
        case nn.BatchNorm2d(eps=epsilon):
            return {"kind": "batch norm", "name": name, "epsilon": epsilon}
        case nn.MaxPool2d(kernel_size=size):
            return {"kind": "max pool", "size": size}
        case nn.GELU():
            return {"kind": "gelu"}
    raise ValueError(f"the step {name} is a {type(module).__name__}, which the page cannot compute")
