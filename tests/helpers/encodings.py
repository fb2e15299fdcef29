"""One encoding of each kind, and the quadratic encoding computed by a loop."""

import math

import torch

from attnconv.layers.encodings import (
    GeneralizedQuadraticEncoding,
    LearnedOffsetEmbedding,
    LearnedRelativeEncoding,
    QuadraticEncoding,
    RelativeBias,
)

H, W = 6, 7  # the image that they serve


def kinds(dtype=torch.float64):
    encodings = {
        "quadratic": QuadraticEncoding(4),
        "generalized": GeneralizedQuadraticEncoding(4),
        "learned": LearnedRelativeEncoding(4, LearnedOffsetEmbedding(H, W, dim=5)),
        "bias": RelativeBias(torch.randn(4, 2 * H - 1, 2 * W - 1)),
    }
    return {name: encoding.to(dtype) for name, encoding in encodings.items()}


def sharp(alpha, dtype):
    """Return an encoding of each kind for 12 x 12 pixels, with heads of sharpness alpha.

    Their centres lie on pixels and between them, some outside the image.
    """
    centers = torch.tensor([[0.0, 0.0], [0.5, -1.3], [-2.0, 3.0], [40.0, -25.0]])
    generalized = GeneralizedQuadraticEncoding(4)
    generalized.centers.data = centers
    generalized.root.data = math.sqrt(alpha) * (torch.eye(2) + torch.rand(4, 2, 2))
    learned = LearnedRelativeEncoding(4, LearnedOffsetEmbedding(12, 12, dim=5))
    for parameter in learned.parameters():
        parameter.data *= math.sqrt(alpha)
    encodings = {
        "quadratic": QuadraticEncoding.from_alpha(centers, alpha),
        "generalized": generalized,
        "learned": learned,
        "bias": RelativeBias(alpha * torch.randn(4, 23, 23)),
    }
    return {name: encoding.to(dtype).requires_grad_() for name, encoding in encodings.items()}


def quadratic_attention(offsets, alpha, height, width):
    """The quadratic encoding's attention by a loop over pixels, `(N_h, T, T)`, float64."""
    pixels = torch.cartesian_prod(torch.arange(height), torch.arange(width)).double()
    maps = []
    for offset in offsets.double():
        rows = [(-alpha * (pixels - q - offset).square().sum(dim=1)).softmax(0) for q in pixels]
        maps.append(torch.stack(rows))
    return torch.stack(maps)
