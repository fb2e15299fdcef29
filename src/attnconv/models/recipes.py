"""The tiers: on which data, by which recipe, and what runs that are shown together may have
otherwise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..theory.encodings import CENTER_STD

# What the paper's experiment uses (its Table 2 and, where that is silent, the published code), and
# the quick tier's choices: the same network made small enough for 8 x 8 digits on a CPU. Without
# dropout its attention stays separable.
PAPER_RECIPE = {
    "epochs": 300,
    "batch_size": 100,
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "schedule": "cosine",
    "schedule_every": "epoch",
    "warm_up": 0.05,
    "position_rate": 1.0,
    "augment": True,
    "num_layers": 6,
    "hidden": 400,
    "intermediate": 512,
    "pooling": 2,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "center_std": CENTER_STD,
    "checkpoint_every": 10,
    "resume": True,
}
DIGITS_RECIPE = {
    "epochs": 10,
    "batch_size": 25,
    "optimizer": "adamw",
    "learning_rate": 3e-3,
    "schedule": "cosine",
    "schedule_every": "step",
    "warm_up": 0.1,
    "position_rate": 10.0,  # the centres travel pixels, the weights fractions
    "augment": False,
    "num_layers": 3,
    "hidden": 48,
    "intermediate": 96,
    "pooling": 1,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "center_std": 1.0,
    "checkpoint_every": 0,
    "resume": False,
}
# All of CIFAR-10 on two cores: the same network, narrower and on 8 x 8 tokens, with one recipe for
# all attention models. Every choice was made on held-out training images (book/small-tier.md). The
# width is what float16 weights of 1.5 MB allow.
SMALL_RECIPE = PAPER_RECIPE | {
    "epochs": 20,
    "optimizer": "adamw",
    "learning_rate": 2e-3,
    "schedule_every": "step",
    "warm_up": 0.1,
    "position_rate": 10.0,
    "hidden": 60,
    "intermediate": 80,
    "pooling": 4,
    "width": 10,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "checkpoint_every": 1,
}
# Chapter 15's arms: a small CNN, trained for `parent_epochs`, then what it became for `epochs`.
# Adam's rates are distances: at the others' rate a centre can go two pixels.
FREE_RECIPE = SMALL_RECIPE | {
    "epochs": 5,
    "parent_epochs": 8,
    "batch_size": 125,
    "position_rate": 1.0,
    "label_smoothing": 0.2,
    "padding": 2,
    "width": 24,
}
# The runs that chapters 10 to 13 train while the book builds: all seven models within a minute on
# two cores.
BRIEF_RECIPE = DIGITS_RECIPE | {"epochs": 5, "batch_size": 20, "hidden": 32, "intermediate": 64}


@dataclass(frozen=True)
class Tier:
    """One recipe on one data set.

    `fixed`: runs are compared by the recipe, so changing a parameter requires `override`.
    `may_differ`: the parameters that may vary within a table, because each page prints them beside
    the number. `variant_of`: the tier whose models' own settings apply here too, before `changes`.
    `models`: the models that may be trained in this tier; empty means all. `rate_factor` multiplies
    the models' learning rates. `keeps_weights`: commit the weights of seed 0.
    """

    dataset: str
    recipe: Mapping[str, Any]
    fixed: bool = False
    may_differ: tuple[str, ...] = ("seed", "precision")
    variant_of: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    rate_factor: float = 1.0
    keeps_weights: bool = False


# Pilots on held-out training images (data/pilot-scaling): at 0.3 of the width twice the learning
# rate is clearly better for both models, so narrower networks take rate * width ** NARROW_EXPONENT
# (the rule is measures.scaling.RATE_RULE).
NARROW_EXPONENT = math.log(2) / math.log(0.3)


def _scaled(width: float = 1.0, **changes: Any) -> Tier:
    """Return a variant of the small tier with all widths multiplied by `width`, for the chapter on
    scaling."""
    widths = ("hidden", "intermediate", "width")
    changes |= {name: round(width * SMALL_RECIPE[name]) for name in widths}
    models = ("sa-quadratic",) if "pooling" in changes else ("sa-quadratic", "resnet18")
    return Tier(
        "cifar10",
        SMALL_RECIPE,
        fixed=True,
        variant_of="small",
        changes=changes,
        models=models,
        rate_factor=width**NARROW_EXPONENT if width < 1 else 1.0,
    )


TIERS = {
    "quick": Tier("digits", DIGITS_RECIPE),
    "brief": Tier("digits", BRIEF_RECIPE),
    "paper": Tier(
        "cifar10", PAPER_RECIPE, may_differ=("seed", "precision", "epochs", "parent_epochs")
    ),
    "small": Tier("cifar10", SMALL_RECIPE, fixed=True, keeps_weights=True),
    # heads need time to settle
    "small-long": Tier(
        "cifar10",
        SMALL_RECIPE,
        True,
        variant_of="small",
        changes={"epochs": 60},
        keeps_weights=True,
    ),
    "small-free": Tier("cifar10", FREE_RECIPE, fixed=True, keeps_weights=True),
    # 0.3 rather than a quarter of the width: a quarter of the ResNet's 10 channels is no integer
    "small-third": _scaled(0.3),
    "small-half": _scaled(0.5),
    "small-double": _scaled(2.0),
    "small-quadruple": _scaled(4.0),
    "small-tokens": _scaled(pooling=2),
    "small-double-long": _scaled(2.0, epochs=60),
}


def tiers_of(dataset: str) -> tuple[str, ...]:
    """The tiers on a data set, its usual one first."""
    return tuple(name for name, tier in TIERS.items() if tier.dataset == dataset)
