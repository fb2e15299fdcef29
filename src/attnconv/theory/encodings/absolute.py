"""Absolute encodings, for equations (3) and (7)."""

import torch
from torch import Tensor, nn

from ..grid import pixels


def sinusoidal_encoding(*sizes: int, dim: int, base: float = 10_000.0) -> Tensor:
    """Fixed absolute encoding P: `(*sizes, dim)`, float32; sines and cosines per axis (Vaswani et
    al., 2017), concatenated.

    `dim` must be a multiple of twice the number of axes.
    """
    per_axis, rest = divmod(dim, 2 * len(sizes))
    if rest or not per_axis:
        raise ValueError(
            f"dim is {dim}, expected a positive multiple of {2 * len(sizes)} for {len(sizes)} axes"
        )
    frequency = base ** (-torch.arange(per_axis, dtype=torch.float64) / per_axis)
    angle = pixels(*sizes).unsqueeze(-1) * frequency  # (T, n, per_axis)
    waves = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return waves.reshape(*sizes, dim).float()


class LearnedAbsoluteEncoding(nn.Module):
    """Learned encoding P: a free vector per pixel, `(*sizes, dim)`, at first N(0, 0.02^2)."""

    def __init__(self, *sizes: int, dim: int):
        super().__init__()
        self.vectors = nn.Parameter(0.02 * torch.randn(*sizes, dim))

    def forward(self) -> Tensor:
        return self.vectors
