"""How the arms of chapter 15 start from a CNN, as data."""

from dataclasses import dataclass

TIER = "small-free"  # tier of the runs in chapter 15


@dataclass(frozen=True)
class Start:
    """The settings for starting an arm of chapter 15 from a CNN.

    The arm starts after a fraction `share` of the CNN's training. `heads` is "grid" if the heads
    start on the kernels' pixels, "random" if they start at random positions, and None if the
    network remains a CNN. `freed` names the parameters of the encoding that are trained.
    """

    share: float
    heads: str | None
    freed: tuple[str, ...]


FIXED, PLACES, FREED = (), ("centers",), ("centers", "spread")
