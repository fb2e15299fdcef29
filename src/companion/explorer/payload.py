"""The JSON data behind the explorer's views: pictures, models, and files of numbers.

The files are safetensors files. Small files are embedded in the page (`base64`), and the others are
stored beside it (`url`). Each file has a CRC-32 to detect damage. The numbers come from run records
or from given attention maps. Letters: L layers, N_h heads, Q query pixels.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from attnconv.heads import Heads, mean_by_offset
from attnconv.networks import SelfAttentionNet
from attnconv.theory.expressivity import expect_probabilities
from attnconv.theory.grid import pixels

from ..colors import HEAD_COLORS
from ..data import DATASETS, PHOTOGRAPHS, dataset_at_hand, load_dataset, load_photograph
from ..heads import MEAN_IMAGES, SINGLE_IMAGES, heads_of, mean_attention, score_parts
from ..runs.history import ContentMaps, ScoreParts
from ..runs.record import RunRecord
from ..specs import SPECS
from . import source

IN_THE_PAGE = 250_000  # size limit in bytes for a file embedded in the page,
ALL_IN_THE_PAGE = 900_000  # and for all such files, so that a page stays below 2 MB
MEAN = "mean"
StoredImage = tuple[str, int, str]  # an image's kind and number in the records, and its name
Tensors = dict[str, Tensor]  # what a file holds


@dataclass
class Payload:
    """The data for one view of the explorer, and the files stored beside its page.

    The view reads `data`, which refers to `files`. The caller writes these files to the folder
    `place` beside the page; if `place` is None, all files are embedded in `data`.
    """

    place: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    inlined: int = 0  # bytes of the files embedded in `data`

    def __post_init__(self) -> None:
        colors = json.loads(source("palette.json")) | {"heads": HEAD_COLORS}
        self.data |= {"colors": colors, "images": {}}

    def file(
        self, name: str, tensors: Mapping[str, Tensor], on_request: bool = False
    ) -> dict[str, Any]:
        """Add tensors as a file and return the entry that tells the page how to read it.

        With `on_request`, the file is stored beside the page, even if it is small, and loaded only
        when the reader asks for it.
        """
        on_cpu = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        content = safetensors.torch.save(on_cpu)
        entry = {"name": name, "crc32": zlib.crc32(content)}
        small = len(content) <= min(IN_THE_PAGE, ALL_IN_THE_PAGE - self.inlined) and not on_request
        if self.place is None or small:
            self.inlined += len(content)
            return entry | {"base64": base64.b64encode(content).decode()}
        self.files[f"{name}.safetensors"] = content
        return entry | {"url": f"{self.place}/{name}.safetensors"}

    def picture(self, name: str, label: str, image: Tensor, on_request: bool = False) -> str:
        """Add an image `(H, W)` or `(H, W, 3)` and return its name.

        With `on_request`, its pixels are in a file that is loaded only when the reader asks for it.
        Raises ValueError for any other shape, and for values that are not floats from 0 to 1.
        """
        if image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)) or not image.numel():
            raise ValueError(
                f"got an image of shape {tuple(image.shape)}, expected (H, W) or (H, W, 3)"
            )
        if not (image.is_floating_point() and image.min() >= 0 and image.max() <= 1):
            raise ValueError(
                f"got an image of {image.dtype} from {image.min()} to {image.max()}, expected"
                " floats from 0 to 1"
            )
        pixels = (image * 255).round().to(torch.uint8)
        if on_request:
            content = {"file": self.file(name, {"pixels": pixels}, on_request=True)}
        else:
            content = {"base64": base64.b64encode(pixels.numpy().tobytes()).decode()}
        channels = 1 if image.ndim == 2 else 3
        values = {"height": image.shape[0], "width": image.shape[1], "channels": channels}
        self.data["images"][name] = {"label": label} | values | content
        return name


def best_offsets(layers: Iterable[Heads]) -> list[list[dict[str, Any]]]:
    """Return each head's best offset and its mass, by layer, as defined in `Heads`."""
    return [
        [
            {"mass": mass, "shift": shift}
            for mass, shift in zip(heads.mass.tolist(), heads.offsets.tolist(), strict=True)
        ]
        for heads in layers
    ]


def _entry(record: RunRecord) -> dict[str, Any]:
    parameters = record.info.parameters
    seed = f", seed {parameters['seed']}" if parameters["seed"] else ""
    return {
        "id": record.name,
        "label": SPECS[parameters["model"]].head_label + seed,
        "tier": f"{DATASETS[record.info.dataset['name']].label} ({record.tier} tier)",
        "source": record.source,
        "size": record.grid,
    }


def _content_entry(
    payload: Payload,
    record: RunRecord,
    images: Sequence[StoredImage],
    maps: dict[str, list[Tensors]],
) -> dict[str, Any]:
    """Return the entry for a run of a content-based model, with one file per image and layer."""
    files = {
        image: [
            payload.file(f"{record.name}--{image}--layer{n}", layer, on_request=True)
            for n, layer in enumerate(layers, start=1)
        ]
        for image, layers in maps.items()
    }
    pictures = payload.data["images"]
    labels = {name: f"test image {n + 1}" for _, n, name in images if name not in pictures}
    labels |= {name: f"mean of {MEAN_IMAGES} test images" for name in maps if name.endswith(MEAN)}
    return _entry(record) | {
        "content": files,
        "images": list(files),
        "labels": labels,
        "best": best_offsets(heads_of(record)),
    }


def content_files_of_model(model: SelfAttentionNet, images: Tensor) -> list[Tensors]:
    """Return a model's scores for one normalised image `(1, C, H', W')`, as one file per layer.

    Each file holds `queries` `(Q, 2)`, which lists all pixels, and the parts of the scores:
    `content` `(N_h, Q, H, W)`, `rows` `(N_h, Q, H)` and `columns` `(N_h, Q, W)`.
    """
    layers = []
    for parts in score_parts(model, images):
        scores = ScoreParts(*(part[0].flatten(1, 2) for part in parts))
        layers.append({"queries": pixels(*parts[0].shape[-2:])} | vars(scores))
    return layers


def _maps_file(probabilities: Tensor) -> Tensors:
    """Return the tensors of a file with the maps `(N_h, H, W, H, W)` of all query pixels."""
    queries = pixels(*probabilities.shape[-2:])
    return {"queries": queries, "probabilities": probabilities.flatten(1, 2)}


def _maps_of_model(
    model: SelfAttentionNet, dataset: str, images: Sequence[StoredImage]
) -> dict[str, list[Tensors]]:
    """Return the files for a model's maps on some test images and its mean maps, by name."""
    data = load_dataset(dataset)
    tests = data.normalise(data.test_images[:MEAN_IMAGES])
    numbers = {name: n for kind, n, name in images if kind == "image"}
    means = [_maps_file(maps) for maps in mean_attention(model, tests)]
    return {
        name: content_files_of_model(model, tests[n : n + 1]) for name, n in numbers.items()
    } | {f"{dataset}-{MEAN}": means}


def _maps_of_record(
    content: ContentMaps, dataset: str, images: Sequence[StoredImage]
) -> dict[str, list[Tensors]]:
    """Return the files for a record's maps on some images and its mean maps, by name."""
    queries = {"queries": content.queries}
    layers = range(len(content.mean_maps))
    return {
        name: [queries | vars(content.single[kind].of(n, layer)) for layer in layers]
        for kind, n, name in images
    } | {f"{dataset}-{MEAN}": [queries | {"probabilities": maps} for maps in content.mean_maps]}


# --- the views of the book ------------------------------------------------------------------------


def attention_payload(
    records: Iterable[RunRecord],
    models: Mapping[str, SelfAttentionNet] | None = None,
    place: str | None = None,
) -> Payload:
    """Return the data for the explorer's "attention" view of trained self-attention models.

    The maps of a content-based model come from its run record, which stores them for a few query
    pixels. If `models` contains the trained model under the run's name, the maps are computed from
    the model for every query pixel instead.
    """
    payload = Payload(place)
    entries = []
    for record in records:
        dataset = record.info.dataset["name"]
        images = _images(payload, dataset)
        if content := record.content_maps:
            model = (models or {}).get(record.name)
            maps = (
                _maps_of_model(model, dataset, images)
                if model
                else _maps_of_record(content, dataset, images)
            )
            entries.append(_content_entry(payload, record, images, maps))
        else:
            shown = [image for *_, image in images if image in payload.data["images"]]
            file = payload.file(record.name, record.attention)
            entries.append(_entry(record) | {"file": file, "images": shown})
    payload.data["models"] = entries
    return payload


def _images(payload: Payload, dataset: str) -> list[StoredImage]:
    """Add the images whose maps the records store, and return each image's kind, number and name.

    CIFAR-10 images are added only if the data set is on this machine.
    """
    if dataset == "digits":
        digits = load_dataset(dataset)
        for n, label in enumerate(digits.test_labels[:SINGLE_IMAGES].tolist()):
            label = f"a {label}, test image {n + 1}"
            payload.picture(f"digit-{n}", label, digits.test_images[n, :, :, 0] / 255)
        return [("image", n, f"digit-{n}") for n in range(SINGLE_IMAGES)]
    for name in PHOTOGRAPHS:
        payload.picture(name, name, load_photograph(name, (32, 32)))
    if at_hand := dataset_at_hand(dataset):
        for n, label in enumerate(at_hand.test_labels[:SINGLE_IMAGES].tolist()):
            label = f"test image {n + 1}, {at_hand.classes[label]}"
            payload.picture(f"test-image-{n}", label, at_hand.test_images[n] / 255)
    photographs = [("photograph", n, name) for n, name in enumerate(PHOTOGRAPHS)]
    return photographs + [("image", n, f"test-image-{n}") for n in range(SINGLE_IMAGES)]


def stage_payload(scene: str | None = None, place: str | None = None) -> Payload:
    """Return the data for the explorer's "stage" view: colour photographs of 80 x 120 pixels.

    With a `scene`, the stage shows only that scene, offers no way to switch scenes, and does not
    keep its state in the page's address.
    """
    payload = Payload(place)
    payload.data["stage"] = [
        payload.picture(name, label, load_photograph(name, (80, 120)))
        for name, label in zip(PHOTOGRAPHS, ("a temple", "a flower"), strict=True)
    ]
    payload.data["scene"] = scene
    return payload


def maps_payload(maps: Tensor, image: Tensor | None = None) -> Payload:
    """Return the data for the explorer's "attention" view of given maps, shown over an image.

    `maps` have the shape `(L, N_h, H, W, H, W)` and are stored in half precision. `image` has the
    shape `(H', W')` or `(H', W', 3)` and values from 0 to 1. Raises ValueError for maps that have
    any other shape or are not probabilities.
    """
    shape = tuple(maps.shape)
    if len(shape) != 6 or shape[2:4] != shape[4:] or not maps.numel():
        raise ValueError(
            f"got maps of shape {shape}, expected (layers, heads, H, W, H, W): query, then key"
        )
    expect_probabilities(maps)
    payload = Payload()
    middle = maps[:, :, shape[2] // 2, shape[3] // 2].double()
    by_offset = map(mean_by_offset, maps.double())
    heads = [Heads(*layer) for layer in zip(middle, by_offset, strict=True)]
    files = [_maps_file(layer.half()) for layer in maps]
    entry = maps_entry(payload, files, shape[2:4], heads, image)
    payload.data["models"] = [{"id": "maps", "label": "attention maps", "source": ""} | entry]
    return payload


def maps_entry(
    payload: Payload,
    layers: Sequence[Tensors],
    size: tuple[int, int],
    heads: Iterable[Heads],
    image: Tensor | None,
) -> dict[str, Any]:
    """Return what an entry says of the maps and heads of layers of `size` `(H, W)` tokens.

    It adds a file for each layer, and the image behind the maps, which is grey by default.
    """
    label = "no image" if image is None else "the image"
    name = payload.picture("image", label, torch.full(size, 0.75) if image is None else image)
    files = [payload.file(f"layer {n}", tensors) for n, tensors in enumerate(layers, 1)]
    return {
        "tier": "given",
        "size": size,
        "content": {name: files},
        "images": [name],
        "best": best_offsets(heads),
    }
