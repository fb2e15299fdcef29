"""What a record keeps of a model's attention: its heads' parameters over the epochs or, with
content, maps of test images.

Letters: n moments, L layers, N_h heads, Q query pixels, B images, H x W pixels.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..store import by_prefix
from ..theory.attention import spatial_softmax
from ..theory.encodings import (
    GeneralizedQuadraticEncoding,
    PositionEncoding,
    QuadraticEncoding,
    RelativeBias,
)


@dataclass(frozen=True)
class PositionHistory:
    """Heads that depend on the shift alone, at several moments of training.

    `epochs` `(n,)`; `by_layer`: what each layer's encoding gives as its `snapshot`, say `centers`
    `(n, N_h, 2)`. Both are empty for a model without such heads.
    """

    epochs: Tensor
    by_layer: list[dict[str, Tensor]]

    @classmethod
    def of_snapshots(cls, snapshots: Mapping[int, Mapping[str, Tensor]]) -> "PositionHistory":
        """From `models.snapshot`'s tensors by the number of epochs done."""
        names = next(iter(snapshots.values()))
        stacked = {
            name: torch.stack([moment[name] for moment in snapshots.values()]) for name in names
        }
        return cls.from_tensors({"epochs": torch.tensor(list(snapshots))} | stacked)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "PositionHistory":
        """From `epochs` and `layer1.centers` and so on."""
        layers = {
            name: values for name, values in by_prefix(tensors).items() if name.startswith("layer")
        }
        in_order = [layers[f"layer{number}"] for number in range(1, len(layers) + 1)]
        return cls(tensors["epochs"] if layers else torch.empty(0, dtype=torch.int64), in_order)

    def to_tensors(self) -> dict[str, Tensor]:
        if not self.by_layer:
            return {}
        layers = enumerate(self.by_layer, start=1)
        return {"epochs": self.epochs} | {
            f"layer{n}.{name}": value for n, layer in layers for name, value in layer.items()
        }

    def encodings(self, moment: int = -1) -> list[PositionEncoding]:
        """Each layer's encoding at one of the moments `epochs`."""
        return [
            from_snapshot({name: values[moment] for name, values in layer.items()})
            for layer in self.by_layer
        ]

    def layers(self, name: str) -> list[Tensor]:
        """One of the snapshots' tensors for each layer, say `centers` `(n, N_h, 2)`; empty where
        the model has no such thing."""
        return [layer[name] for layer in self.by_layer if name in layer]


def from_snapshot(snapshot: Mapping[str, Tensor]) -> PositionEncoding:
    """The encoding that a layer's `snapshot` was taken of, with the same scores up to rounding, on
    its device. Not trained.

    From `centers` and `alpha`, `centers` and `precision`, or `row_scores` and `column_scores`.
    ValueError for anything else.
    """
    names = set(snapshot)
    if names == {"centers", "alpha"}:
        encoding = QuadraticEncoding(0, alpha_form="direct")
        encoding.centers, encoding.spread = (
            nn.Parameter(snapshot[name].clone()) for name in ("centers", "alpha")
        )
    elif names == {"centers", "precision"}:
        encoding = GeneralizedQuadraticEncoding(0)
        # a degenerate head's has no Cholesky factor
        values, vectors = torch.linalg.eigh(snapshot["precision"])
        encoding.centers = nn.Parameter(snapshot["centers"].clone())
        encoding.root = nn.Parameter(vectors * values.clamp(min=0).sqrt().unsqueeze(-2))
    elif names == {"row_scores", "column_scores"}:
        encoding = RelativeBias(
            snapshot["row_scores"].unsqueeze(2) + snapshot["column_scores"].unsqueeze(1)
        )
    else:
        raise ValueError(
            f"got a snapshot of {', '.join(sorted(names)) or 'nothing'}, expected what an"
            " encoding's snapshot() gives"
        )
    encoding.num_heads = len(next(iter(snapshot.values())))
    return encoding.requires_grad_(False)


@dataclass(frozen=True)
class ScoreParts:
    """Scores in the parts of `encodings.learned_content_parts`, whose sum they are, at the query
    pixels of some images: `content` `(..., Q, H, W)`, `rows` `(..., Q, H)`, `columns`
    `(..., Q, W)`."""

    content: Tensor
    rows: Tensor
    columns: Tensor

    def maps(self) -> Tensor:
        """The attention probabilities, `(..., Q, H, W)`."""
        return spatial_softmax(
            self.content.float() + self.rows.unsqueeze(-1) + self.columns.unsqueeze(-2)
        )

    def of(self, *index: int) -> "ScoreParts":
        """Of one image, or of one image and layer."""
        return ScoreParts(self.content[index], self.rows[index], self.columns[index])


@dataclass(frozen=True)
class ContentMaps:
    """A model with content at the end of training, from `queries` `(Q, 2)`.

    `mean_maps` `(L, N_h, Q, H, W)`, averaged over test images; `shift_probabilities`
    `(L, N_h, 2H - 1, 2W - 1)`, the mean probability of each shift that stays in the image, over
    images and queries; `single`: the scores `(B, L, N_h, Q, ...)` of single images, by kind,
    "image" (the first of the test set) and, of a model that takes colours, "photograph".
    """

    queries: Tensor
    mean_maps: Tensor
    shift_probabilities: Tensor
    single: Mapping[str, ScoreParts]

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ContentMaps":
        kinds = [
            name.removesuffix("_content_scores")
            for name in tensors
            if name.endswith("_content_scores")
        ]
        single = {
            kind: ScoreParts(*(tensors[f"{kind}_{part}_scores"] for part in _PARTS))
            for kind in kinds
        }
        return cls(tensors["queries"], tensors["mean_maps"], tensors["shift_probabilities"], single)

    def to_tensors(self) -> dict[str, Tensor]:
        tensors = {
            name: getattr(self, name) for name in ("queries", "mean_maps", "shift_probabilities")
        }
        for kind, scores in self.single.items():
            parts = zip(_PARTS, (scores.content, scores.rows, scores.columns), strict=True)
            tensors |= {f"{kind}_{part}_scores": values for part, values in parts}
        return tensors

    def query_number(self, row: int, column: int) -> int:
        """Which of the query pixels that one is."""
        return int((self.queries == torch.tensor([row, column])).all(dim=1).nonzero())


_PARTS = ("content", "row", "column")  # in the file's names
