"""One encoding of each kind."""

import torch

from attnconv.theory.encodings import (
    GeneralizedQuadraticEncoding,
    LearnedRelativeEncoding,
    LearnedShiftEmbedding,
    QuadraticEncoding,
    RelativeBias,
)

H, W = 6, 7  # the image that they serve


def kinds(dtype=torch.float64):
    encodings = {
        "quadratic": QuadraticEncoding(4),
        "generalized": GeneralizedQuadraticEncoding(4),
        "learned": LearnedRelativeEncoding(4, LearnedShiftEmbedding(H, W, dim=5)),
        "bias": RelativeBias(torch.randn(4, 2 * H - 1, 2 * W - 1)),
    }
    return {name: encoding.to(dtype) for name, encoding in encodings.items()}
