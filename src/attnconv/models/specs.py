"""All models and tiers: settings, recipes, published numbers and the paper's tables.

Each model is a `ModelSpec` and each tier is a `Tier`; `recipe` combines the two. The published
numbers are from Cordonnier, Loukas and Jaggi (ICLR 2020).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..theory.encodings import CENTER_STD
from .attention_starts import FACTORIAL_STARTS, VIT_STARTS, AttentionStart

#: Channels of the first stage of the published ResNet18 and of the first group of the CNN.
WIDTH = 64

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
# Chapter 18: timm vision transformers on part of CIFAR-10. The learning rate was chosen on held-out
# training images (data/pilot-vit).
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
# The runs of chapters 10 to 13 during the book build: all seven models train within a minute on two
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
    seed 0 are committed.
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


# Pilot runs on held-out training images (data/pilot-scaling) showed that, at 0.3 times the width,
# twice the learning rate is clearly better for both models. Narrower networks therefore use rate *
# width ** NARROW_EXPONENT (the rule is measures.scaling.RATE_RULE).
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
    """Return a tier of chapter 18, whose recipe is `VIT_RECIPE` with the given changes."""
    models = tuple(f"vit-{start}" for start in VIT_STARTS | FACTORIAL_STARTS)
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
        "cifar10", PAPER_RECIPE, may_differ=("seed", "precision", "epochs", "parent_epochs")
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
    "small-free": Tier("cifar10", FREE_RECIPE, fixed=True, keeps_weights=True),
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
}


def tiers_of(dataset: str) -> tuple[str, ...]:
    """Return the names of the tiers for a data set, with the default tier first."""
    return tuple(name for name, tier in TIERS.items() if tier.dataset == dataset)


NUM_HEADS = 9  # heads of an attention layer, unless its model's spec says otherwise


@dataclass(frozen=True)
class Published:
    """The published results for a model, from Table 4 of the paper and from a replication.

    `accuracy` is the test accuracy on CIFAR-10, or None if the paper gives no number. `replicated`
    is the accuracy that Varma and Prabhu (2020) obtained with a single seed.
    """

    accuracy: float | None = None
    parameters: str = ""
    flops: str = ""
    replicated: float | None = None


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


@dataclass(frozen=True)
class ModelSpec:
    """The specification of a model: network, recipes, published numbers and style in figures.

    `encoding` names the encoding of its attention, and is None for CNNs, for networks made from
    CNNs and for vision transformers. `vit` names the initialisation of a vision transformer.
    `curve` is the model's colour and line style in figures. `defaults` contains the default keyword
    arguments of its network. `parent` is the trained model from which this one starts, `prunes`
    says whether the parent's degenerate heads are removed first, and `start` describes how an arm
    of chapter 15 starts. `recipes` contains the model's deviations from the recipe of each tier.
    """

    label: str
    curve: tuple[str, str]
    head_label: str = ""
    encoding: str | None = None
    published: Published = Published()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None
    prunes: bool = False
    start: Start | None = None
    vit: str | None = None
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def heads_before_pruning(self) -> int:
        """The number of heads per layer in the model from which a pruned model starts."""
        return SPECS[self.parent].defaults.get("num_heads", NUM_HEADS) if self.parent else NUM_HEADS


#: Heads left in each layer of the paper's pruned model: [2, 4, 1, 2, 6, 0] of nine were pruned.
PUBLISHED_HEADS_LEFT = (7, 5, 8, 7, 3, 9)
#: The recipes for training sa-generalized further, with or without pruning.
TRAINED_FURTHER = {
    "paper": {"epochs": 100, "learning_rate": 0.01},
    "quick": {"epochs": 4, "learning_rate": 3e-4},
    "brief": {"epochs": 2, "learning_rate": 3e-4, "parent_epochs": BRIEF_RECIPE["epochs"]},
    "small": {"epochs": 7, "learning_rate": 2e-4, "parent_epochs": SMALL_RECIPE["epochs"]},
}
#: The paper's models by name.
MODELS = {
    "resnet18": ModelSpec(
        label="ResNet18",
        published=Published(0.938, "11.2M", "1.1B", 0.9463),
        curve=("#000000", "-"),
        recipes={
            "paper": {"schedule": "multistep", "warm_up": 0.0},
            "brief": {"epochs": 2, "batch_size": 50},
            "small": {"learning_rate": 3e-3},
        },
    ),
    "sa-quadratic": ModelSpec(
        label="SA quadratic",
        head_label="quadratic, 9 heads",
        encoding="quadratic",
        published=Published(0.938, "12.1M", "6.2B", 0.9365),
        curve=("#0072B2", "-"),
    ),
    "sa-quadratic-16": ModelSpec(
        label="SA quadratic, 16 heads",
        head_label="quadratic, 16 heads",
        encoding="quadratic",
        published=Published(replicated=0.9311),  # appendix F gives no numbers
        curve=("#56B4E9", "-"),
        defaults={"num_heads": 16},
    ),
    "sa-generalized": ModelSpec(
        label="SA quadratic, generalised",
        head_label="generalised quadratic",
        encoding="generalized",
        published=Published(0.934, "12.1M", "6.2B"),
        curve=("#D55E00", "--"),
        # the pruned model starts from its weights
        recipes={"brief": {"checkpoint_every": BRIEF_RECIPE["epochs"]}},
    ),
    "sa-generalized-pruned": ModelSpec(
        label="SA quadratic, generalised, pruned",
        head_label="generalised quadratic, pruned",
        encoding="generalized",
        published=Published(0.934, "9.7M", "4.9B"),
        curve=("#A87900", "-"),
        defaults={"num_heads": PUBLISHED_HEADS_LEFT},
        parent="sa-generalized",
        prunes=True,
        recipes=TRAINED_FURTHER,
    ),
    "sa-learned": ModelSpec(
        label="SA learned",
        head_label="learned, position only",
        encoding="learned",
        published=Published(0.918, "12.3M", "6.2B", 0.9036),
        curve=("#009E73", "-."),
    ),
    "sa-learned-content": ModelSpec(
        label="SA learned + content",
        head_label="learned + content",
        encoding="content",
        published=Published(0.871, "29.5M", "15B", 0.8636),
        curve=("#B0508A", ":"),
        recipes={"brief": {"epochs": 4, "checkpoint_every": 4}},  # the explorer needs its weights
    ),
}

#: The control of chapter 12 and the models of chapters 14 and 15 by name.
BEYOND = {
    "sa-generalized-on": ModelSpec(
        label="SA quadratic, generalised, unpruned control",
        head_label="generalised quadratic, unpruned control",
        encoding="generalized",
        curve=("#D55E00", ":"),
        parent="sa-generalized",
        recipes=TRAINED_FURTHER,
    ),
    "cnn": ModelSpec(
        label="CNN",
        curve=("#000000", "--"),
        # chosen on held-out training images, except the crops and the epochs (chapter 14)
        recipes={
            "small": {
                "epochs": 18,
                "batch_size": 250,
                "optimizer": "nesterov",
                "learning_rate": 0.2,
                "weight_decay": 5e-4,
                "norm_rate": 64.0,
                "label_smoothing": 0.2,
                "warm_up": 0.2,
                "padding": 2,
                "width": WIDTH,
            },
            "small-free": {"epochs": FREE_RECIPE["parent_epochs"], "parent_epochs": None},
        },
    ),
}


def _arm(label: str, start: Start, curve: tuple[str, str]) -> ModelSpec:
    head_label = f"CNN, {label}" if start.heads else ""
    return ModelSpec(label, curve, head_label, parent="cnn", start=start)


FIXED, PLACES, FREED = (), ("centers",), ("centers", "spread")
#: The arms of chapter 15, which start from a CNN, by name.
ARMS = {
    "cnn-on": _arm("CNN, trained further", Start(1.0, None, FIXED), ("#000000", "-")),
    "grid-0": _arm("grid fixed, untrained CNN", Start(0.0, "grid", FIXED), ("#000000", "--")),
    "grid-100": _arm("grid fixed, trained CNN", Start(1.0, "grid", FIXED), ("#000000", ":")),
    "freed-0": _arm("freed before training", Start(0.0, "grid", FREED), ("#56B4E9", "-")),
    "freed-25": _arm("freed at 25 % of training", Start(0.25, "grid", FREED), ("#0072B2", "--")),
    "freed-50": _arm("freed at 50 % of training", Start(0.5, "grid", FREED), ("#CC79A7", "-.")),
    "freed-100": _arm("freed after training", Start(1.0, "grid", FREED), ("#882255", "-")),
    "places-100": _arm(
        "freed after training, alphas fixed", Start(1.0, "grid", PLACES), ("#009E73", ":")
    ),
    "random-fixed": _arm("random positions, fixed", Start(0.0, "random", FIXED), ("#D55E00", "--")),
    "random-freed": _arm("random positions, freed", Start(0.0, "random", FREED), ("#D55E00", "-")),
}
BEYOND |= ARMS


def _vit_spec(name: str, start: AttentionStart) -> ModelSpec:
    recipes = {"vit-10k": {"start_alpha": start.alpha}} if start.alpha else {}
    return ModelSpec(start.label, start.curve, vit=name, recipes=recipes)


#: The vision transformers of chapter 18 by name, and those that complete its factorial.
VITS = {f"vit-{name}": _vit_spec(name, start) for name, start in VIT_STARTS.items()}
FACTORIAL = {f"vit-{name}": _vit_spec(name, start) for name, start in FACTORIAL_STARTS.items()}
BEYOND |= VITS | FACTORIAL
#: All models that can be trained, by name.
SPECS = MODELS | BEYOND


def recipe(model: str, tier: str) -> dict[str, Any]:
    """Return the default parameters of a run, given its model and tier."""
    chosen = TIERS[tier]
    own = SPECS[model].recipes.get(chosen.variant_of or tier, {})
    found = {**chosen.recipe, **own, **chosen.changes}
    return found | {"learning_rate": round(found["learning_rate"] * chosen.rate_factor, 6)}


# --- the tables of the paper, in its order ---

TABLE_4 = (
    "resnet18",
    "sa-quadratic",
    "sa-generalized",
    "sa-generalized-pruned",
    "sa-learned",
    "sa-learned-content",
    "sa-quadratic-16",  # appendix F, which gives no numbers, so not in the printed table
)
TABLE_1 = ("resnet18", "sa-quadratic", "sa-learned", "sa-learned-content")

# Table 2: name as printed, value as printed, and the corresponding field of
# `runs.parameters.RunParameters`, if there is one.
TABLE_2 = (
    ("number of layers", "6", "num_layers"),
    ("number of heads", "9", None),
    ("hidden dimension", "400", "hidden"),
    ("intermediate dimension", "512", "intermediate"),
    ("invertible pooling width", "2", "pooling"),
    ("dropout probability", "0.1", "dropout"),
    ("layer normalization epsilon", "10⁻¹²", None),
    ("number of epochs", "300", "epochs"),
    ("batch size", "100", "batch_size"),
    ("learning rate", "0.1", "learning_rate"),
    ("weight decay", "0.0001", "weight_decay"),
    ("momentum", "0.9", None),
    ("cosine decay", "yes", "schedule"),
    ("linear warm up ratio", "0.05", "warm_up"),
)

#: Head colours, after Okabe and Ito, that colour-blind readers can tell apart.
HEAD_COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#882255",
    "#8C7A00",
    "#7F7F7F",
)


def head_color(head: int) -> str:
    """Return the colour of a head (numbered from 0); the colours repeat after nine heads."""
    return HEAD_COLORS[head % len(HEAD_COLORS)]
