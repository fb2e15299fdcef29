"""Write Theorem 1's construction for one convolution to a file that numpy alone can read.

Usage: python tools/libraries/problem.py FILE.npz

The convolution has a 3 x 3 kernel, 8 input and 8 output channels, a bias and one pixel of zero
padding, on an image of 14 x 14 pixels. The file has in float64:

`image` (1, 14, 14, 8), `kernel` (3, 3, 8, 8), `bias` (8,) and `expected` (1, 14, 14, 8)
    the convolution and its output, `attnconv.theory.attention.convolution`.
`tokens` (1, 256, 8)
    the image with its padding, one token per pixel, row by row. Self-attention runs on these
    tokens; the outputs at the inner 14 x 14 tokens are those of the convolution.
`centers` (9, 2), `values` (9, 8, 8), `output` (72, 8)
    the offset, W_val and W_out of each head, from `heads_for`.
`scores` (9, 256, 256)
    -alpha ||k - q - offset||^2, equation (9), up to a constant per query. The largest score of a
    query is 0 and the next is -alpha = -128, so the softmax is one-hot in float32 and bfloat16.
`codes` (256, 5), `query_matrices` (9, 5, 6), `key_matrices` (9, 5, 6)
    absolute codes (1, y, x, y^2, x^2), in pixels from the centre, and matrices for which
    (codes @ W_qry) @ (codes @ W_key)^T equals `scores`. The entries of the queries, keys and
    products of a query's best key are exact in bfloat16.
"""

import sys

import numpy as np
import torch

from attnconv.theory.attention import convolution
from attnconv.theory.grid import pixels
from attnconv.theory.theorem1 import heads_for, quadratic_scores

SIZE, CHANNELS, ALPHA = 14, 8, 128


def absolute_codes(side, centers, alpha):
    """Return codes of the pixels and the matrices that turn them into queries and keys."""
    y, x = (pixels(side, side).double() - side // 2).T
    codes = torch.stack([torch.ones_like(y), y, x, y**2, x**2], dim=1)
    query = torch.zeros(len(centers), 5, 6).double()
    key = torch.zeros(5, 6).double()
    for axis in range(2):
        # -alpha (k - q')^2 = 2 alpha q' k - alpha k^2 - alpha q'^2, with q' = q + offset
        offset, position, square = centers[:, axis], 1 + axis, 3 + axis
        query[:, 0, axis], query[:, position, axis] = 2 * alpha * offset, 2 * alpha
        key[position, axis] = 1
        query[:, 0, 2 + axis] = -alpha
        key[square, 2 + axis] = 1
        query[:, 0, 4 + axis] = -alpha * offset**2
        query[:, position, 4 + axis] = -2 * alpha * offset
        query[:, square, 4 + axis] = -alpha
        key[0, 4 + axis] = 1
    return codes, query, key.expand(len(centers), -1, -1)


def problem():
    """Return the arrays that the module's docstring lists."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(1, SIZE, SIZE, CHANNELS, generator=generator).double()
    kernel = torch.randn(3, 3, CHANNELS, CHANNELS, generator=generator).double()
    bias = torch.randn(CHANNELS, generator=generator).double()
    heads = heads_for(kernel, ALPHA)
    side = SIZE + 2
    scores = quadratic_scores(heads.v, side, side)
    scores -= ALPHA * (heads.centers**2).sum(dim=1)[:, None, None]  # equation (9)'s constant
    codes, query, key = absolute_codes(side, heads.centers, ALPHA)
    assert torch.equal((codes @ query) @ (codes @ key).mT, scores)
    arrays = {
        "image": image,
        "kernel": kernel,
        "bias": bias,
        "expected": convolution(image, kernel, bias),
        "tokens": torch.nn.functional.pad(image, (0, 0, 1, 1, 1, 1)).flatten(1, 2),
        "centers": heads.centers,
        "values": heads.W_val,
        "output": heads.W_out,
        "scores": scores,
        "codes": codes,
        "query_matrices": query,
        "key_matrices": key,
    }
    return {name: array.numpy() for name, array in arrays.items()}


if __name__ == "__main__":
    np.savez(sys.argv[1], **problem())
