"""What the explorer's views are given: pictures, models by name, and files of numbers. All of it is
JSON but the files.

A file is a safetensors file. Small ones go into the page (`base64`), others lie beside it (`url`);
each has its CRC-32, so that a damaged one is noticed. What the pages read is what run records hold.
Letters: L layers, N_h heads, Q query pixels.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ..data import DATASETS, PHOTOGRAPHS, dataset_at_hand, load_dataset, load_photograph
from ..measures.heads import (
    MEAN_IMAGES,
    SINGLE_IMAGES,
    Heads,
    content_probabilities,
    heads_of,
    mean_by_shift,
    score_parts,
)
from ..models import SPECS, SelfAttentionNet
from ..models.specs import HEAD_COLORS
from ..runs.history import ContentMaps, ScoreParts
from ..runs.record import RunRecord
from ..theory.expressivity import expect_probabilities
from ..theory.grid import pixels
from . import source

IN_THE_PAGE = 250_000  # bytes of a file, at most, that goes into the page itself,
ALL_IN_THE_PAGE = 900_000  # and of all such files, so that a page stays below 2 MB
MEAN = "mean"


@dataclass
class Payload:
    """`data` for a view, and the `files` that its addresses name, to be written to the folder
    `place` beside the page; with no place all files go into `data`."""

    place: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    inlined: int = 0  # bytes of files in `data`

    def __post_init__(self) -> None:
        self.data |= {
            "colors": json.loads(source("palettes.json")) | {"heads": HEAD_COLORS},
            "images": {},
        }

    def file(
        self, name: str, tensors: Mapping[str, Tensor], on_request: bool = False
    ) -> dict[str, Any]:
        """Tensors as a file: what the page needs to know to read it."""
        content = safetensors.torch.save(
            {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        )
        entry = {"name": name, "crc32": zlib.crc32(content)}
        small = len(content) <= min(IN_THE_PAGE, ALL_IN_THE_PAGE - self.inlined) and not on_request
        if self.place is None or small:
            self.inlined += len(content)
            return entry | {"base64": base64.b64encode(content).decode()}
        self.files[f"{name}.safetensors"] = content
        return entry | {"url": f"{self.place}/{name}.safetensors"}

    def picture(self, name: str, label: str, image: Tensor) -> str:
        """An image `(H, W)` or `(H, W, 3)` from 0 to 1, by its name. ValueError for anything
        else."""
        if image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)) or not image.numel():
            raise ValueError(
                f"got an image of shape {tuple(image.shape)}, expected (H, W) or (H, W, 3)"
            )
        if not (image.is_floating_point() and image.min() >= 0 and image.max() <= 1):
            raise ValueError(
                f"got an image of {image.dtype} from {image.min()} to {image.max()}, expected"
                " floats from 0 to 1"
            )
        content = base64.b64encode((image * 255).round().to(torch.uint8).numpy().tobytes()).decode()
        channels = 1 if image.ndim == 2 else 3
        values = {"height": image.shape[0], "width": image.shape[1], "channels": channels}
        self.data["images"][name] = {"label": label} | values | {"base64": content}
        return name


def best_shifts(layers: Iterable[Heads]) -> list[list[dict[str, Any]]]:
    """Per layer and head the best shift and its mass, as `heads.Heads` defines them."""
    return [
        [
            {"mass": mass, "shift": shift}
            for mass, shift in zip(heads.mass.tolist(), heads.shifts.tolist(), strict=True)
        ]
        for heads in layers
    ]


def _entry(record: RunRecord) -> dict[str, Any]:
    parameters = record.info.parameters
    label = SPECS[parameters["model"]].head_label + (
        f", seed {parameters['seed']}" if parameters["seed"] else ""
    )
    tier = f"{DATASETS[record.info.dataset['name']].label} ({record.tier} tier)"
    return {
        "id": record.name,
        "label": label,
        "tier": tier,
        "source": record.source,
        "size": record.grid,
    }


def position_entry(payload: Payload, record: RunRecord, images: list[str]) -> dict[str, Any]:
    """A run whose attention depends on the shift alone: its record's numbers, as they are."""
    return _entry(record) | {"file": payload.file(record.name, record.attention), "images": images}


def content_entry(
    payload: Payload, record: RunRecord, maps: Mapping[str, list[dict[str, Tensor]]]
) -> dict[str, Any]:
    """A run with content: for each image one file a layer, see `content_files_of_model` and
    `content_files_of_record`."""
    files = {
        image: [
            payload.file(f"{record.name}--{image}--layer{n}", layer, True)
            for n, layer in enumerate(layers, start=1)
        ]
        for image, layers in maps.items()
    }
    labels = {image: f"mean of {MEAN_IMAGES} test images" for image in maps if image.endswith(MEAN)}
    for n, image in enumerate(f"test-image-{n}" for n in range(SINGLE_IMAGES)):
        if image in maps and image not in payload.data["images"]:
            labels[image] = f"test image {n + 1}"
    return _entry(record) | {
        "content": files,
        "images": list(files),
        "labels": labels,
        "best": best_shifts(heads_of(record)),
    }


def content_files_of_model(model: SelfAttentionNet, images: Tensor) -> list[dict[str, Tensor]]:
    """Of one normalised image `(1, C, H', W')`, for each layer and every query pixel: `queries`
    `(Q, 2)`, and the scores' parts `content` `(N_h, Q, H, W)`, `rows` `(N_h, Q, H)`, `columns`
    `(N_h, Q, W)`."""
    layers = []
    for parts in score_parts(model, images):
        scores = ScoreParts(*(part[0].flatten(1, 2) for part in parts))
        layers.append({"queries": pixels(*parts[0].shape[-2:])} | vars(scores))
    return layers


def mean_files_of_model(model: SelfAttentionNet, images: Tensor) -> list[dict[str, Tensor]]:
    """The maps averaged over normalised images `(B, C, H', W')`, for each layer: `queries`,
    `probabilities` `(N_h, Q, H, W)`."""
    means = (probabilities.mean(dim=0) for probabilities in content_probabilities(model, images))
    return [_maps_file(mean) for mean in means]


def _maps_file(probabilities: Tensor) -> dict[str, Tensor]:
    """Maps `(N_h, H, W, H, W)` of every query pixel."""
    return {
        "queries": pixels(*probabilities.shape[-2:]),
        "probabilities": probabilities.flatten(1, 2),
    }


def content_files_of_record(
    content: ContentMaps, kind: str, number: int
) -> list[dict[str, Tensor]]:
    """Of a record's image `number` of a kind, "image" or "photograph", for its query pixels, as of
    a model."""
    scores, layers = content.single[kind], range(len(content.mean_maps))
    return [{"queries": content.queries} | vars(scores.of(number, layer)) for layer in layers]


def mean_files_of_record(content: ContentMaps) -> list[dict[str, Tensor]]:
    return [{"queries": content.queries, "probabilities": maps} for maps in content.mean_maps]


# --- the views of the book ------------------------------------------------------------------------


def _digits(payload: Payload, count: int) -> list[str]:
    digits = load_dataset("digits")
    labels = [
        f"a {int(label)}, test image {n + 1}" for n, label in enumerate(digits.test_labels[:count])
    ]
    return [
        payload.picture(f"digit-{n}", label, digits.test_images[n, :, :, 0] / 255)
        for n, label in enumerate(labels)
    ]


def attention_payload(
    records: Iterable[RunRecord],
    models: Mapping[str, SelfAttentionNet] | None = None,
    place: str | None = None,
) -> Payload:
    """For the view "attention": runs of self-attention models. Maps of a run with content are its
    record's, for its few query pixels; of one whose trained model is among `models`, by name, they
    are computed here, for every query pixel.
    """
    payload, entries = Payload(place), []
    for record in records:
        name = record.info.dataset["name"]
        images = _images(payload, name)
        if not (content := record.content_maps):
            shown = [image for *_, image in images if image in payload.data["images"]]
            entries.append(position_entry(payload, record, shown))
        elif model := (models or {}).get(record.name):
            dataset = load_dataset(name)
            tests = dataset.normalise(dataset.test_images[:MEAN_IMAGES])
            maps = {
                image: content_files_of_model(model, tests[n : n + 1])
                for kind, n, image in images
                if kind == "image"
            }
            entries.append(
                content_entry(
                    payload, record, maps | {f"{name}-{MEAN}": mean_files_of_model(model, tests)}
                )
            )
        else:
            maps = {image: content_files_of_record(content, kind, n) for kind, n, image in images}
            entries.append(
                content_entry(
                    payload, record, maps | {f"{name}-{MEAN}": mean_files_of_record(content)}
                )
            )
    payload.data["models"] = entries
    return payload


def _images(payload: Payload, dataset: str) -> list[tuple[str, int, str]]:
    """The images that records hold maps of, as (kind, number, name), and as far as they may be
    shown in the payload: of CIFAR-10 its own only where the reader has them."""
    if dataset == "digits":
        return [("image", n, name) for n, name in enumerate(_digits(payload, SINGLE_IMAGES))]
    shown = (payload.picture(name, name, load_photograph(name, (32, 32))) for name in PHOTOGRAPHS)
    images = [("photograph", n, name) for n, name in enumerate(shown)]
    for n in range(SINGLE_IMAGES):
        if at_hand := dataset_at_hand(dataset):
            label = f"test image {n + 1}, {at_hand.classes[int(at_hand.test_labels[n])]}"
            payload.picture(f"test-image-{n}", label, at_hand.test_images[n] / 255)
        images.append(("image", n, f"test-image-{n}"))
    return images


def convolution_payload() -> Payload:
    """For the view "convolution": the photographs in grey, reduced, and a digit."""
    payload = Payload()
    names = [
        payload.picture(name, name, load_photograph(name, (64, 96)).mean(dim=-1))
        for name in PHOTOGRAPHS
    ]
    payload.data["convolution"] = names + _digits(payload, 1)
    return payload


def pixel_payload() -> Payload:
    """For the view "pixel": digits."""
    payload = Payload()
    payload.data["pixel"] = _digits(payload, 3)
    return payload


def maps_payload(maps: Tensor, image: Tensor | None = None) -> Payload:
    """For the view "attention": any model's maps `(L, N_h, H, W, H, W)`, kept in half precision,
    over an image.

    `image`: `(H', W')` or `(H', W', 3)`, from 0 to 1. ValueError for maps of another shape, or that
    are not probabilities.
    """
    shape = tuple(maps.shape)
    if len(shape) != 6 or shape[2:4] != shape[4:] or not maps.numel():
        raise ValueError(
            f"got maps of shape {shape}, expected (layers, heads, H, W, H, W): query, then key"
        )
    expect_probabilities(maps)
    payload = Payload()
    height, width = shape[-2:]
    grey = torch.full((height, width), 0.75)
    name = payload.picture(
        "image", "the image" if image is not None else "no image", grey if image is None else image
    )
    files = [
        payload.file(f"layer {n}", _maps_file(layer.half()))
        for n, layer in enumerate(maps, start=1)
    ]
    best = best_shifts(
        Heads(layer[:, height // 2, width // 2], mean_by_shift(layer)) for layer in maps.double()
    )
    entry = {
        "id": "maps",
        "label": "attention maps",
        "tier": "given",
        "source": "",
        "size": (height, width),
    }
    payload.data["models"] = [entry | {"content": {name: files}, "images": [name], "best": best}]
    return payload
