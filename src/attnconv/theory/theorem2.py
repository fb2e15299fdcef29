"""Theorem 2, the converse of Theorem 1: position-only attention is a normalised convolution.

The paper does not state this theorem.

Letters: B batch, H x W pixels, D channels, N_h heads.
"""

import torch
from torch import Tensor

from .attention import convolution
from .shapes import Float


def attention_by_convolution(
    X: Float[Tensor, "*B H W D"], scores: Float[Tensor, "2*H-1 2*W-1"]
) -> Float[Tensor, "*B H W D"]:
    """Return the weighted averages softmax(A) X of one head with scores A_qk = s(k - q).

    `scores` contains s for all offsets between pixels, in ascending order. With kappa = exp(s), the
    result is (kappa * X) / (kappa * 1): the zero-padded convolution of the image with kappa,
    divided by that of an image of ones.
    """
    kernel = (scores - scores.max()).exp()  # the constant cancels
    numerator = convolution(X, kernel[..., None, None] * torch.eye(X.shape[-1]).to(X))
    border_factor = convolution(torch.ones_like(X[..., :1]), kernel[..., None, None])
    return numerator / border_factor
