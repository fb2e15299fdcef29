"""Measure where the heads of a layer attend, from their attention maps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .theory.grid import offset_set, pixels


@dataclass(frozen=True)
class Heads:
    """The attention of one layer's heads, with measures of where they attend.

    `maps` `(N_h, H, W)` are the maps of the middle query pixel; `by_offset` `(N_h, 2H - 1, 2W - 1)`
    is the result of `mean_by_offset`.
    """

    maps: Tensor
    by_offset: Tensor

    @property
    def query(self) -> tuple[int, int]:
        """The middle pixel of the image, which is the query pixel of `maps`."""
        return self.maps.shape[1] // 2, self.maps.shape[2] // 2

    @property
    def _near(self) -> Tensor:
        """`by_offset` for offsets of up to half the image, `(N_h, H', W')`.

        Each of these offsets stays inside the image for at least a quarter of the queries.
        """
        (i, j), (height, width) = self.query, self.maps.shape[1:]
        return self.by_offset[:, height - 1 - i : height + i, width - 1 - j : width + j]

    @property
    def mass(self) -> Tensor:
        """The mean probability of each head's best offset, `(N_h,)`; 1 for the heads in Lemma 1."""
        return self._near.flatten(1).amax(dim=1)

    @property
    def offsets(self) -> Tensor:
        """Each head's best offset k - q, the one with the largest mean probability: `(N_h, 2)`."""
        delta = pixels(*self._near.shape[1:]) - torch.tensor(self.query)
        return delta[self._near.flatten(1).argmax(dim=1)]

    def offsets_with_mass(self, kernel_size: int = 3, least_mass: float = 0.5) -> int:
        """Count the offsets of a K x K kernel that receive at least `least_mass` from some head."""
        kernel = {tuple(offset) for offset in offset_set((kernel_size, kernel_size)).tolist()}
        taken = self.offsets[self.mass >= least_mass].tolist()
        return len(kernel & {tuple(offset) for offset in taken})


def mean_by_offset(probabilities: Tensor) -> Tensor:
    """Average the probability of each offset over the queries for which it stays in the image.

    Maps `(N_h, H, W, H, W)` become `(N_h, 2H - 1, 2W - 1)`, with the most negative offset first.
    For a head that attends to one fixed offset, the result is 1 there. A head that always attends
    to the same pixel, or to the border because its centre is outside the image, has no such offset.
    """
    height, width = probabilities.shape[-2:]
    by_offset = probabilities.new_zeros(len(probabilities), 2 * height - 1, 2 * width - 1)
    count = probabilities.new_zeros(2 * height - 1, 2 * width - 1)
    for i in range(height):
        for j in range(width):
            rows = slice(height - 1 - i, 2 * height - 1 - i)
            columns = slice(width - 1 - j, 2 * width - 1 - j)
            by_offset[:, rows, columns] += probabilities[:, i, j]
            count[rows, columns] += 1
    return by_offset / count
