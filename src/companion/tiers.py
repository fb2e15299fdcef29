"""The tiers: data set, recipe and models of the runs that are compared with one another."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnconv.networks import PAPER_SIZES

from .studies.freed.arms import STARTS
from .studies.starts.arms import ALL_STARTS

# The paper's experiment: Table 2, completed from the published code.
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
    **PAPER_SIZES,
    "checkpoint_every": 10,
    "resume": True,
}


# The quick tier: the same network, small enough for 8 x 8 digits on a CPU. Without dropout, its
# attention stays separable.
DIGITS_RECIPE = {
    "epochs": 10,
    "batch_size": 25,
    "optimizer": "adamw",
    "learning_rate": 3e-3,
    "schedule": "cosine",
    "schedule_every": "step",
    "warm_up": 0.1,
    "position_rate": 10.0,  # centres move by pixels, weights by fractions
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


# All of CIFAR-10 on two cores: the same network, but narrower and on 8 x 8 tokens, with one recipe
# for all attention models. Every choice was made on held-out training images (book/small-tier.md).
# The width is the largest for which the float16 weights fit into 1.5 MB.
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


# Chapter 15: a small CNN is trained for `parent_epochs`, then each arm for `epochs`. With Adam, the
# sum of the learning rates limits how far a centre can move: two pixels for position_rate 1.
FREE_RECIPE = SMALL_RECIPE | {
    "epochs": 5,
    "parent_epochs": 8,
    "batch_size": 125,
    "position_rate": 1.0,
    "label_smoothing": 0.2,
    "padding": 2,
    "width": 24,
}


# Chapters 17 and 18: timm vision transformers on part of CIFAR-10. The learning rate was chosen on
# held-out training images (data/pilot-vit).
VIT_RECIPE = SMALL_RECIPE | {
    "epochs": 20,
    "train_images": 10_000,
    "batch_size": 128,
    "learning_rate": 1e-3,
    "weight_decay": 0.05,
    "warm_up": 0.05,
    "position_rate": 1.0,
    "hidden": 108,
    "intermediate": 216,
    "start_alpha": 2.0,
}


# The yardstick of chapter 17: all of CIFAR-10, the published sizes and, as far as possible, the
# published recipe (studies.starts.lite). It needs a GPU.
LITE_RECIPE = PAPER_RECIPE | {
    "epochs": 200,
    "batch_size": 128,
    "optimizer": "adamw",
    "learning_rate": 5e-4,
    "weight_decay": 0.03,
    "label_smoothing": 0.1,
    "schedule_every": "step",
    "warm_up": 10 / 200,
    "num_layers": 6,
    "hidden": 256,
    "intermediate": 512,
    "pooling": 4,
    "dropout": 0.0,
    "attention_dropout": 0.1,
}


# The runs of chapters 8 to 11 during the book build: all seven models train within a minute on two
# cores.
BRIEF_RECIPE = DIGITS_RECIPE | {"epochs": 5, "batch_size": 20, "hidden": 32, "intermediate": 64}


@dataclass(frozen=True)
class Tier:
    """The conditions under which models are trained and compared on one data set.

    In a `fixed` tier, runs are compared by recipe, so a run that changes a parameter must set
    `override`. `may_differ` names parameters that may vary within a table, because the book's pages
    state them with each number. `variant_of` is the tier whose model-specific settings also apply
    here, before `changes`. `models` lists the models that may be trained in this tier (empty: all).
    `rate_factor` multiplies the models' learning rates. `keeps_weights` says whether the weights of
    seed 0 are committed, and `needs_gpu` whether runs are meant for a GPU.
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
    needs_gpu: bool = False


# Pilot runs on held-out training images (data/pilot-scaling) showed that, at 0.3 times the width,
# twice the learning rate is clearly better for both models. Narrower networks therefore use rate *
# width ** NARROW_EXPONENT (the rule is studies.scaling.measures.RATE_RULE).
NARROW_EXPONENT = math.log(2) / math.log(0.3)


def _scaled(width: float = 1.0, **changes: Any) -> Tier:
    """Return a variant of the small tier whose widths are multiplied by `width`."""
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


def _vit(keeps_weights: bool = False, **changes: Any) -> Tier:
    """Return a tier of chapters 17 and 18, whose recipe is `VIT_RECIPE` with the given changes."""
    models = tuple(f"vit-{start}" for start in ALL_STARTS)
    return Tier(
        "cifar10",
        VIT_RECIPE | changes,
        fixed=True,
        variant_of="vit-10k",
        models=models,
        keeps_weights=keeps_weights,
    )


#: The tiers by name.
TIERS = {
    "quick": Tier("digits", DIGITS_RECIPE),
    "brief": Tier("digits", BRIEF_RECIPE),
    "paper": Tier(
        "cifar10",
        PAPER_RECIPE,
        may_differ=("seed", "precision", "epochs", "parent_epochs"),
        needs_gpu=True,
    ),
    "small": Tier("cifar10", SMALL_RECIPE, fixed=True, keeps_weights=True),
    "small-long": Tier(
        "cifar10",
        SMALL_RECIPE,
        fixed=True,
        variant_of="small",
        changes={"epochs": 60},  # heads may need more time to settle
        keeps_weights=True,
    ),
    "small-free": Tier(
        "cifar10", FREE_RECIPE, fixed=True, models=("cnn", *STARTS), keeps_weights=True
    ),
    # 0.3, because a quarter of the ResNet's 10 channels is not an integer
    "small-third": _scaled(0.3),
    "small-half": _scaled(0.5),
    "small-double": _scaled(2.0),
    "small-quadruple": _scaled(4.0),
    "small-tokens": _scaled(pooling=2),
    "small-double-long": _scaled(2.0, epochs=60),
    # 5,000 and 10,000 images: the same number of steps; all images: two and a half times as many
    "vit-5k": _vit(train_images=5_000, epochs=40),
    "vit-10k": _vit(keeps_weights=True),
    "vit-50k": _vit(train_images=50_000, epochs=10),
    "vit-10k-long": _vit(epochs=100),
    "vit-lite": Tier("cifar10", LITE_RECIPE, fixed=True, models=("vit-lite-6-4",), needs_gpu=True),
}


def tiers_of(dataset: str) -> tuple[str, ...]:
    """Return the names of the tiers for a data set, with the default tier first."""
    return tuple(name for name, tier in TIERS.items() if tier.dataset == dataset)
