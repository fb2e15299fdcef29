"""All models as data: their networks, recipes and published numbers, and the paper's tables.

Each model is a `ModelSpec`; `recipe` combines it with a tier. The published numbers are from
Cordonnier, Loukas and Jaggi (ICLR 2020).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from attnconv.cnn import WIDTH
from attnconv.networks import NETWORKS

from .studies.freed.arms import FIXED, FREED, PLACES, Start
from .studies.freed.network import free_cnn
from .studies.starts.arms import FACTORIAL_STARTS, VIT_STARTS, AttentionStart
from .studies.starts.network import vision_transformer
from .tiers import BRIEF_RECIPE, FREE_RECIPE, SMALL_RECIPE, TIERS


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
class ModelSpec:
    """The specification of a model: network, recipes, published numbers and style in figures.

    `build` returns a freshly initialised network, given its sizes by name. `encoding` names the
    encoding of its attention, and is None for CNNs, for networks made from CNNs and for vision
    transformers. `vit` names the initialisation of a vision transformer. `curve` is the model's
    colour and line style in figures. `parent` is the trained model from which this one starts,
    `prunes` says whether the parent's degenerate heads are removed first, and `start` describes how
    an arm of chapter 15 starts. `recipes` contains the model's deviations from the recipe of each
    tier.
    """

    label: str
    curve: tuple[str, str]
    build: Callable[..., nn.Module]
    head_label: str = ""
    encoding: str | None = None
    published: Published = Published()
    parent: str | None = None
    prunes: bool = False
    start: Start | None = None
    vit: str | None = None
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


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
        build=NETWORKS["resnet18"],
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
        build=NETWORKS["sa-quadratic"],
        head_label="quadratic, 9 heads",
        encoding="quadratic",
        published=Published(0.938, "12.1M", "6.2B", 0.9365),
        curve=("#0072B2", "-"),
    ),
    "sa-quadratic-16": ModelSpec(
        label="SA quadratic, 16 heads",
        build=NETWORKS["sa-quadratic-16"],
        head_label="quadratic, 16 heads",
        encoding="quadratic",
        published=Published(replicated=0.9311),  # appendix F gives no numbers
        curve=("#56B4E9", "-"),
    ),
    "sa-generalized": ModelSpec(
        label="SA quadratic, generalised",
        build=NETWORKS["sa-generalized"],
        head_label="generalised quadratic",
        encoding="generalized",
        published=Published(0.934, "12.1M", "6.2B"),
        curve=("#D55E00", "--"),
        # the pruned model starts from its weights
        recipes={"brief": {"checkpoint_every": BRIEF_RECIPE["epochs"]}},
    ),
    "sa-generalized-pruned": ModelSpec(
        label="SA quadratic, generalised, pruned",
        build=NETWORKS["sa-generalized-pruned"],
        head_label="generalised quadratic, pruned",
        encoding="generalized",
        published=Published(0.934, "9.7M", "4.9B"),
        curve=("#A87900", "-"),
        parent="sa-generalized",
        prunes=True,
        recipes=TRAINED_FURTHER,
    ),
    "sa-learned": ModelSpec(
        label="SA learned",
        build=NETWORKS["sa-learned"],
        head_label="learned, position only",
        encoding="learned",
        published=Published(0.918, "12.3M", "6.2B", 0.9036),
        curve=("#009E73", "-."),
    ),
    "sa-learned-content": ModelSpec(
        label="SA learned + content",
        build=NETWORKS["sa-learned-content"],
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
        build=NETWORKS["sa-generalized"],
        head_label="generalised quadratic, unpruned control",
        encoding="generalized",
        curve=("#D55E00", ":"),
        parent="sa-generalized",
        recipes=TRAINED_FURTHER,
    ),
    "cnn": ModelSpec(
        label="CNN",
        build=NETWORKS["cnn"],
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
    return ModelSpec(label, curve, partial(free_cnn, start), head_label, parent="cnn", start=start)


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
    build = partial(vision_transformer, name)
    return ModelSpec(start.label, start.curve, build, vit=name, recipes=recipes)


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
