"""Measure whether starting as a convolution helps a vision transformer (chapter 17).

All accuracies are on the 10,000 test images after the last epoch. Runs in the same setting differ
in the seed.
"""

import torch
from torch import Tensor, nn

from attnconv.heads import mean_by_offset

from ...contrasts import Accuracies, Contrast, accuracies_by_tier, contrast
from ...heads import heads_of, mean_attention
from ...runs.record import RunRecord
from ...runs.select import Records
from ...specs import VITS

OURS = "vit-convolution"
DEFAULT = "vit-default"
SHIFTS = "shift_probabilities"  # the name among a record's attention tensors
#: The tiers in which chapter 17 compares starts.
VIT_TIERS = ("vit-5k", "vit-10k", "vit-50k", "vit-10k-long")
#: The tiers between which the gain over timm's start is compared.
PAIRS = {"data": ("vit-5k", "vit-50k"), "lasts": ("vit-10k", "vit-10k-long")}

#: How the learning rate for all starts was chosen before the first run.
RATE_RULE = (
    "vit-default alone, seed 0, 10,000 training images and the last 5,000 held out, 8 epochs, at"
    " 0.0005, 0.001 and 0.002: all starts take the rate at which it is best on the held-out images,"
    " so that the baseline is as strong as these rates make it."
)


def accuracies_of(records: Records) -> dict[str, dict[str, list[float]]]:
    """Return the accuracies of all finished runs of chapter 17, by model and tier."""
    return accuracies_by_tier(records, VITS, VIT_TIERS)


def compare_starts(found: Accuracies, one: str, other: str, tier: str) -> Contrast:
    """Return the mean accuracy of the start `one` minus that of the start `other` in a tier.

    The standard error uses one standard deviation per start, pooled over all tiers with at least
    two seeds.
    """
    return contrast(found, {(one, tier): 1, (other, tier): -1})


def compare_gains(found: Accuracies, first: str, last: str) -> Contrast:
    """Return the convolution start's gain over timm's in tier `first` minus that in tier `last`."""
    return contrast(
        found, {(OURS, first): 1, (DEFAULT, first): -1, (OURS, last): -1, (DEFAULT, last): 1}
    )


def share_that_stayed(record: RunRecord) -> float:
    """Return the share of heads whose position bias alone still favours their initial offset."""
    then, now = (
        torch.stack([heads.offsets for heads in heads_of(record, moment)]) for moment in (0, -1)
    )
    return (now == then).all(dim=-1).double().mean().item()


def shift_probabilities(model: nn.Module, images: Tensor) -> Tensor:
    """Return the mean attention on each offset: `(L, N_h, 2H - 1, 2W - 1)`, float16.

    The mean is over the normalised images `(B, C, H', W')` and the queries for which the offset
    stays inside the image; see `mean_by_offset`. Attention scores include content.
    """
    return torch.stack([mean_by_offset(maps).half() for maps in mean_attention(model, images)])
