"""An encoding again from the few numbers that a figure needs of it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .gaussian import GeneralizedQuadraticEncoding, QuadraticEncoding
from .position import PositionEncoding, RelativeBias


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
