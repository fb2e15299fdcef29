"""How close trained heads come to Lemma 1: what a run record says of where each head looks.

Letters: L layers, N_h heads, H x W pixels. A map is what one head attends to from the middle query
pixel (H // 2, W // 2).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..layers.attention import attention_probabilities
from ..runs.record import RunRecord
from ..theory.encodings import PositionEncoding
from ..theory.expressivity import expresses_convolution
from ..theory.grid import pixels, shift_set
from .content import mean_by_shift


@dataclass(frozen=True)
class Heads:
    """One layer's heads: `maps` `(N_h, H, W)` from the middle query pixel; `by_shift`
    `(N_h, 2H - 1, 2W - 1)`, see `maps.mean_by_shift`; and `centers` `(N_h, 2)` where heads have
    parameters for them."""

    maps: Tensor
    by_shift: Tensor
    centers: Tensor | None = None

    @property
    def query(self) -> tuple[int, int]:
        return self.maps.shape[1] // 2, self.maps.shape[2] // 2

    @property
    def _near(self) -> Tensor:
        """`by_shift` of the shifts up to half the image, which at least a quarter of the queries
        have: `(N_h, H', W')`."""
        (i, j), (height, width) = self.query, self.maps.shape[1:]
        return self.by_shift[:, height - 1 - i : height + i, width - 1 - j : width + j]

    @property
    def mass(self) -> Tensor:
        """The mean probability of the best single shift, `(N_h,)`: 1 is what Lemma 1 asks of each
        head."""
        return self._near.flatten(1).amax(dim=1)

    @property
    def shifts(self) -> Tensor:
        """The best single shift, k - q, `(N_h, 2)`."""
        delta = pixels(*self._near.shape[1:]) - torch.tensor(self.query)
        return delta[self._near.flatten(1).argmax(dim=1)]

    @property
    def alone(self) -> Tensor:
        """Whether no other head of the layer has the same best shift, `(N_h,)`."""
        return (self.shifts[:, None] == self.shifts[None]).all(dim=2).sum(dim=1) == 1

    @property
    def entropy(self) -> Tensor:
        """Of the map from the middle, in nats, `(N_h,)`: 0 for one pixel, ln(HW) for all alike. Its
        exponential is an effective number of pixels."""
        return torch.special.entr(self.maps).sum(dim=(1, 2))

    @property
    def distance(self) -> Tensor:
        """How far the head looks from the middle, on average over its map: the mean of `|k - q|` in
        pixels, `(N_h,)`."""
        delta = pixels(*self.maps.shape[1:]) - torch.tensor(self.query)
        return self.maps.flatten(1) @ delta.to(self.maps.dtype).norm(dim=1)

    @property
    def off_pixel(self) -> Tensor:
        """Distance of each centre to the nearest pixel, `(N_h,)`; NaN where heads have no
        centre."""
        if self.centers is None:
            return torch.full((len(self.maps),), float("nan"))
        return (self.centers - self.centers.round()).norm(dim=1)

    def covered(self, kernel_size: int = 3, least_mass: float = 0.5) -> int:
        """How many of the K x K shifts are the best shift of a head that puts at least `least_mass`
        on it."""
        kernel = {tuple(shift) for shift in shift_set((kernel_size, kernel_size)).tolist()}
        return len(
            kernel & {tuple(shift) for shift in self.shifts[self.mass >= least_mass].tolist()}
        )

    def by_locality(self) -> Tensor:
        """The heads' numbers, the most local first, as Figure 5 orders them."""
        return self.mass.argsort(descending=True, stable=True)


def heads_of(record: RunRecord, moment: int = -1) -> list[Heads]:
    """Each layer's heads; of a model with content their mean over test images, at the end of
    training.

    ValueError for a model without attention.
    `moment`: which of `record.history.epochs`; there is only the last one with content.
    """
    if content := record.content_maps:
        middle = content.query_number(record.grid[0] // 2, record.grid[1] // 2)
        maps = content.mean_maps[:, :, middle].double()  # (L, N_h, H, W)
        maps = maps / maps.sum(dim=(-2, -1), keepdim=True)  # which half precision has rounded
        return [
            Heads(*layer) for layer in zip(maps, content.shift_probabilities.double(), strict=True)
        ]
    if not (encodings := record.history.encodings(moment)):
        raise ValueError(
            f"{record.name} has no attention to look at; expected a run of a self-attention model"
        )
    return [_heads(encoding.double(), *record.grid) for encoding in encodings]


def _heads(encoding: PositionEncoding, height: int, width: int) -> Heads:
    probabilities = attention_probabilities(encoding, height, width)
    maps = probabilities[:, height // 2, width // 2]
    return Heads(maps, mean_by_shift(probabilities), getattr(encoding, "centers", None))


def lemma_3_residual(
    encoding: PositionEncoding, height: int, width: int, kernel_size: int = 3
) -> Tensor:
    """Lemma 3 for a layer as trained: how far its heads stay from selecting each shift, `(K, K)`;
    see `expresses_convolution`."""
    maps = attention_probabilities(encoding.double(), height, width)
    return expresses_convolution(maps, kernel_size).residual


def lost_mass(alphas: Tensor, offset: tuple[float, float], reach: int = 8) -> Tensor:
    """What a quadratic head gives to other pixels than its best: 1 - mass, for each alpha `(n,)`,
    in float64.

    `offset`: how far its centre is from a pixel. On it, the mass is 1 / theta^2 with theta the sum
    of exp(-alpha n^2) over the integers (equation 18). Other pixels' shares are summed, since 1 -
    mass would lose them to rounding.
    """
    delta = pixels(2 * reach + 1, 2 * reach + 1) - reach - torch.tensor(offset, dtype=torch.float64)
    scores = -alphas.double()[:, None] * delta.square().sum(dim=1)
    others = scores.sort(dim=1, descending=True).values[:, 1:]
    return (others.logsumexp(dim=1) - scores.logsumexp(dim=1)).exp()
