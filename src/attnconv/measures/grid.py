"""Whether heads that may move stay on the grid of a convolution: what a record of chapter 15 says
of its layers.

Letters: n moments, N_h heads. The layers of 3 x 3 kernels are counted; the first, of 2 x 2, is not.
"""

from statistics import mean

from torch import Tensor

from ..models.freed import covered, growth, mass_on_own_pixel, moved
from ..runs.record import RunRecord
from .heads import lemma_3_residual

KERNEL = 3  # pixels a side


def of_kernels(record: RunRecord, name: str) -> list[Tensor]:
    """`centers` `(n, 9, 2)` in pixels, or `alpha` `(n, 9)`, of each 3 x 3 layer."""
    return [values for values in record.history.layers(name) if values.shape[1] == KERNEL**2]


def pixels_covered(record: RunRecord) -> list[list[int]]:
    """How many of the nine pixels are the nearest of some head, by layer and moment."""
    layers = of_kernels(record, "centers")
    return [[covered(centers, KERNEL) for centers in moments] for moments in layers]


def covered_at(record: RunRecord, moment: int = -1) -> float:
    """How many of the nine pixels are covered, mean over the layers."""
    return mean(counts[moment] for counts in pixels_covered(record))


def pixels_taken(record: RunRecord) -> list[int]:
    """How many different pixels, of the kernel or not, are the nearest of some head in the end, by
    layer."""
    return [len(centers[-1].round().unique(dim=0)) for centers in of_kernels(record, "centers")]


def grown(record: RunRecord) -> list[tuple[Tensor, Tensor]]:
    """The factor by which the grid has grown and the share of the motion that this explains, `(n,)`
    each, by layer."""
    return [growth(centers, centers[0]) for centers in of_kernels(record, "centers")]


def distances_moved(record: RunRecord) -> list[Tensor]:
    """How far each head is from where it began, in pixels, `(n, 9)` by layer."""
    return [moved(centers, centers[0]) for centers in of_kernels(record, "centers")]


def median_moved(record: RunRecord) -> float:
    """How far the heads are from where they began in the end: the mean of the layers' medians."""
    return mean(distances[-1].median().item() for distances in distances_moved(record))


def own_mass(record: RunRecord) -> list[Tensor]:
    """What each head gives to the pixel nearest to its centre, `(n, 9)` by layer."""
    centers, alphas = (of_kernels(record, name) for name in ("centers", "alpha"))
    return [mass_on_own_pixel(*layer) for layer in zip(centers, alphas, strict=True)]


def residuals(record: RunRecord) -> list[float]:
    """The largest residual of Lemma 3, of each layer at the end."""
    return [
        lemma_3_residual(encoding, *record.grid, KERNEL).max().item()
        for encoding in record.history.encodings()
        if encoding.num_heads == KERNEL**2
    ]
