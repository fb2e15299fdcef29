"""The parameters of the other chapters."""

from typing import Literal

from pydantic import Field

from .base import Parameters


class ImitationParameters(Parameters):
    """Chapter 8: heads that learn to imitate a convolution."""

    kernel_size: Literal[3, 5] = 3
    steps: int = Field(1500, ge=1)
    weight_decay: float = Field(0.1, ge=0)
    values_at_zero: bool = True
    seed: int = Field(0, ge=0, lt=2**32)


class ResultsParameters(Parameters):
    """Chapters 10 to 13: which records they show, of which tier, and the seed of the runs they make
    themselves."""

    runs: str = ""
    tier: Literal["auto", "paper", "small"] = "auto"
    seed: int = Field(0, ge=0, lt=2**32)
