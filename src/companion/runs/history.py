"""The attention of a model, as stored in its run record.

For position-only attention, the record contains the parameters of the heads after several epochs.
For content-based attention, it contains maps of test images. Letters: n saved steps, L layers, N_h
heads, Q query pixels, B images, H x W pixels.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnconv.layers.attention import ContentAttention
from attnconv.layers.encodings import (
    GeneralizedQuadraticEncoding,
    PositionEncoding,
    QuadraticEncoding,
    RelativeBias,
)
from attnconv.networks import SelfAttentionNet
from attnconv.theory.attention import spatial_softmax

from ..store import by_prefix
from ..studies.freed.network import attention_layers


def heads_per_layer(model: nn.Module) -> list[int]:
    """Return the number of heads in each attention layer (empty for models without attention)."""
    return [attention.num_heads for attention in getattr(model, "attentions", [])]


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that describe a model's heads, such as `layer1.centers`, on the CPU.

    They are named as in the encodings' `snapshot` methods. The heads of a vision transformer are
    described by their relative position biases, such as `layer1.table`. The result is empty for
    models with content-based attention, whose heads are not described by a few numbers, and for
    models without attention.
    """
    if tables := bias_tables(model):
        return {f"layer{number}.table": table for number, table in enumerate(tables, start=1)}
    layers = model.attentions if isinstance(model, SelfAttentionNet) else attention_layers(model)
    return {
        f"layer{number}.{name}": value.cpu()
        for number, layer in enumerate(layers, start=1)
        if not isinstance(layer, ContentAttention)
        for name, value in layer.encoding.snapshot().items()
    }


def bias_tables(model: nn.Module) -> list[Tensor]:
    """Return each layer's relative position bias for all offsets k - q: `(N_h, 2H - 1, 2W - 1)`.

    The tables are returned as records store them: detached, on the CPU, in half precision. The
    result is empty for a model without such biases.
    """
    attentions = [getattr(block, "attn", None) for block in getattr(model, "blocks", [])]
    holders = [getattr(attention, "rel_pos", None) for attention in attentions]
    found = []
    for holder in filter(None, holders):
        extents = [2 * size - 1 for size in holder.window_size]
        table = holder.relative_position_bias_table.detach().T.unflatten(1, extents)
        found.append(table.flip(1, 2).half().cpu())  # timm lists the offsets q - k
    return found


@dataclass(frozen=True)
class PositionHistory:
    """The position-only heads of a model at several points in training.

    `epochs` `(n,)` are the numbers of epochs completed; `by_layer` holds the `snapshot` tensors of
    each layer's encoding, such as `centers` `(n, N_h, 2)`. Both are empty for a model without such
    heads.
    """

    epochs: Tensor
    by_layer: list[dict[str, Tensor]]

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "PositionHistory":
        """Read a history from the tensors returned by `stack_snapshots`."""
        parts = by_prefix(tensors)
        count = sum(name.startswith("layer") for name in parts)
        layers = [parts[f"layer{number}"] for number in range(1, count + 1)]
        return cls(tensors["epochs"] if layers else torch.empty(0, dtype=torch.int64), layers)

    def encodings(self, moment: int = -1) -> list[PositionEncoding]:
        """Return the encoding of each layer at the saved step with index `moment`."""
        return [
            from_snapshot({name: values[moment] for name, values in layer.items()})
            for layer in self.by_layer
        ]

    def layers(self, name: str) -> list[Tensor]:
        """Return the tensor `name`, such as `centers` `(n, N_h, 2)`, of each layer that has it."""
        return [layer[name] for layer in self.by_layer if name in layer]


def stack_snapshots(snapshots: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Stack the snapshots of a model's heads, keyed by the number of completed epochs.

    Returns `epochs` `(n,)`, `layer1.centers` `(n, N_h, 2)` and so on, or an empty dictionary if the
    snapshots are empty.
    """
    moments = list(snapshots.values())
    stacked = {name: torch.stack([moment[name] for moment in moments]) for name in moments[0]}
    return {"epochs": torch.tensor(list(snapshots))} | stacked if stacked else {}


def from_snapshot(snapshot: Mapping[str, Tensor]) -> PositionEncoding:
    """Rebuild a position encoding from its `snapshot`, on the snapshot's device.

    Its scores are unchanged up to rounding, but it cannot be trained. A snapshot contains either
    `centers` and `alpha`, `centers` and `precision`, `row_scores` and `column_scores`, or `table`.
    Raises ValueError for anything else.
    """
    names = set(snapshot)
    if names == {"centers", "alpha"}:
        encoding = QuadraticEncoding(0, alpha_form="direct")
        encoding.centers = nn.Parameter(snapshot["centers"].clone())
        encoding.spread = nn.Parameter(snapshot["alpha"].clone())
    elif names == {"centers", "precision"}:
        encoding = GeneralizedQuadraticEncoding(0)
        # the precision of a degenerate head has no Cholesky factor
        values, vectors = torch.linalg.eigh(snapshot["precision"])
        encoding.centers = nn.Parameter(snapshot["centers"].clone())
        encoding.root = nn.Parameter(vectors * values.clamp(min=0).sqrt().unsqueeze(-2))
    elif names == {"table"}:
        encoding = RelativeBias(snapshot["table"].float())
    elif names == {"row_scores", "column_scores"}:
        rows = snapshot["row_scores"].unsqueeze(2)
        encoding = RelativeBias(rows + snapshot["column_scores"].unsqueeze(1))
    else:
        raise ValueError(
            f"got a snapshot of {', '.join(sorted(names)) or 'nothing'}, expected the tensors of an"
            " encoding's snapshot()"
        )
    encoding.num_heads = len(next(iter(snapshot.values())))
    return encoding.requires_grad_(False)


@dataclass(frozen=True)
class ScoreParts:
    """Three parts whose sum is the attention scores of the query pixels, for each image.

    The parts are `content` `(..., Q, H, W)`, `rows` `(..., Q, H)` and `columns` `(..., Q, W)`; see
    `ContentAttention.score_parts`.
    """

    content: Tensor
    rows: Tensor
    columns: Tensor

    def maps(self) -> Tensor:
        """Return the attention probabilities `(..., Q, H, W)`, the softmax of the scores."""
        return spatial_softmax(
            self.content.float() + self.rows.unsqueeze(-1) + self.columns.unsqueeze(-2)
        )

    def of(self, *index: int) -> "ScoreParts":
        """Return the parts for one image, or for one image and one layer."""
        return ScoreParts(self.content[index], self.rows[index], self.columns[index])


@dataclass(frozen=True)
class ContentMaps:
    """The attention of a trained content-based model at the query pixels `queries` `(Q, 2)`.

    `mean_maps` `(L, N_h, Q, H, W)` are averaged over test images. `shift_probabilities`
    `(L, N_h, 2H - 1, 2W - 1)` give the mean probability of each offset, over the images and the
    queries for which the offset stays inside the image. `single` holds the scores
    `(B, L, N_h, Q, ...)` of single images, by kind: "image" (the first test images) and, for models
    of colour images, "photograph".
    """

    queries: Tensor
    mean_maps: Tensor
    shift_probabilities: Tensor
    single: Mapping[str, ScoreParts]

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ContentMaps":
        """Read maps from the tensors returned by `to_tensors`."""
        end = "_content_scores"
        kinds = [name.removesuffix(end) for name in tensors if name.endswith(end)]
        single = {
            kind: ScoreParts(*(tensors[f"{kind}_{part}_scores"] for part in _PARTS))
            for kind in kinds
        }
        queries, maps, shifts = (tensors[name] for name in _WHOLE)
        return cls(queries, maps, shifts, single)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tensors to be stored in a record, by name."""
        tensors = {name: getattr(self, name) for name in _WHOLE}
        for kind, scores in self.single.items():
            parts = zip(_PARTS, vars(scores).values(), strict=True)
            tensors |= {f"{kind}_{part}_scores": values for part, values in parts}
        return tensors

    def query_number(self, row: int, column: int) -> int:
        """Return the index in `queries` of the query pixel at the given row and column."""
        return int((self.queries == torch.tensor([row, column])).all(dim=1).nonzero())


# as in the names of a file's tensors, in the order of the fields
_WHOLE = ("queries", "mean_maps", "shift_probabilities")
_PARTS = ("content", "row", "column")
