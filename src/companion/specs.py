"""All models as data: their networks, recipes and published numbers, and the paper's tables.

Each model is a `ModelSpec`; `recipe` combines it with a tier. The published numbers are from
Cordonnier, Loukas and Jaggi (ICLR 2020).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast

from torch import nn

from attnconv.cnn import WIDTH
from attnconv.networks import NETWORKS, SelfAttentionNet, prune_degenerate_heads

from .studies.freed.arms import STARTS, Start
from .studies.freed.network import MIDDLE, begin, free_cnn
from .studies.starts.arms import ALL_STARTS, VIT_STARTS, AttentionStart
from .studies.starts.lite import vit_lite
from .studies.starts.network import vision_transformer
from .tiers import BRIEF_RECIPE, FREE_RECIPE, SMALL_RECIPE, TIERS, tiers_of


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


#: Turns the trained network of a parent, given the run's parameters by name, into the network with
#: which a run starts; also returns what the record says about the change.
Change = Callable[[nn.Module, Mapping[str, Any]], tuple[nn.Module, dict[str, Any]]]


@dataclass(frozen=True)
class WarmStart:
    """How a model starts from the weights of a trained one, its parent.

    `change` is applied to the parent's network, after which its accuracy is measured and recorded
    as `accuracy_name`. If `share` is given, the model starts from the weights that the parent
    stored after this share of its epochs. Otherwise, it starts from the parent's last checkpoint,
    and the parent is trained first if there is none.
    """

    parent: str
    change: Change | None = None
    accuracy_name: str = ""
    share: float | None = None


@dataclass(frozen=True)
class ModelSpec:
    """The specification of a model: network, recipes, published numbers and style in figures.

    `build` returns a freshly initialised network, given its sizes by name. `curve` is the model's
    colour and line style in figures. `attention` says what a record contains of the model's
    attention: nothing (""), the parameters of its "heads" after several epochs, these "heads and
    shifts" (the mean attention on each offset), or "maps" for test images. `grid` is the input size
    in pixels of its attention layers, if it does not follow from the pooling. `tiers` lists the
    tiers in which the model may be trained (empty: all), and `keeps_weights` says whether the tiers
    that keep weights keep this model's. `recipes` contains the model's deviations from the recipe
    of each tier.
    """

    label: str
    curve: tuple[str, str]
    build: Callable[..., nn.Module]
    head_label: str = ""
    attention: Literal["", "heads", "heads and shifts", "maps"] = ""
    grid: int | None = None
    published: Published = Published()
    warm_start: WarmStart | None = None
    tiers: tuple[str, ...] = ()
    keeps_weights: bool = True
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def parent(self) -> str | None:
        """The model from whose weights this one starts, if any."""
        return self.warm_start.parent if self.warm_start else None


def _prune(network: nn.Module, parameters: Mapping[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    criterion = {name: parameters[name] for name in ("max_condition", "min_eigenvalue")}
    pruned, removed = prune_degenerate_heads(cast(SelfAttentionNet, network), **criterion)
    return pruned, {"removed_heads": removed, **criterion}


#: The recipes for training sa-generalized further, with or without pruning.
TRAINED_FURTHER = {
    "paper": {"epochs": 100, "learning_rate": 0.01},
    "quick": {"epochs": 4, "learning_rate": 3e-4},
    "brief": {"epochs": 2, "learning_rate": 3e-4, "parent_epochs": BRIEF_RECIPE["epochs"]},
    "small": {"epochs": 7, "learning_rate": 2e-4, "parent_epochs": SMALL_RECIPE["epochs"]},
    "small-long": {"epochs": 20, "parent_epochs": TIERS["small-long"].changes["epochs"]},
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
        attention="heads",
        published=Published(0.938, "12.1M", "6.2B", 0.9365),
        curve=("#0072B2", "-"),
    ),
    "sa-quadratic-16": ModelSpec(
        label="SA quadratic, 16 heads",
        build=NETWORKS["sa-quadratic-16"],
        head_label="quadratic, 16 heads",
        attention="heads",
        published=Published(replicated=0.9311),  # appendix F gives no numbers
        curve=("#56B4E9", "-"),
    ),
    "sa-generalized": ModelSpec(
        label="SA quadratic, generalised",
        build=NETWORKS["sa-generalized"],
        head_label="generalised quadratic",
        attention="heads",
        published=Published(0.934, "12.1M", "6.2B"),
        curve=("#D55E00", "--"),
        # the pruned model starts from its weights
        recipes={"brief": {"checkpoint_every": BRIEF_RECIPE["epochs"]}},
    ),
    "sa-generalized-pruned": ModelSpec(
        label="SA quadratic, generalised, pruned",
        build=NETWORKS["sa-generalized-pruned"],
        head_label="generalised quadratic, pruned",
        attention="heads",
        published=Published(0.934, "9.7M", "4.9B"),
        curve=("#A87900", "-"),
        warm_start=WarmStart("sa-generalized", _prune, "test_accuracy_after_pruning"),
        recipes=TRAINED_FURTHER,
    ),
    "sa-learned": ModelSpec(
        label="SA learned",
        build=NETWORKS["sa-learned"],
        head_label="learned, position only",
        attention="heads",
        published=Published(0.918, "12.3M", "6.2B", 0.9036),
        curve=("#009E73", "-."),
    ),
    "sa-learned-content": ModelSpec(
        label="SA learned + content",
        build=NETWORKS["sa-learned-content"],
        head_label="learned + content",
        attention="maps",
        published=Published(0.871, "29.5M", "15B", 0.8636),
        curve=("#B0508A", ":"),
        recipes={"brief": {"epochs": 4, "checkpoint_every": 4}},  # the explorer needs its weights
    ),
}


#: The control of chapter 10 and the models of chapters 14 and 15 by name.
BEYOND = {
    "sa-generalized-on": ModelSpec(
        label="SA quadratic, generalised, unpruned control",
        build=NETWORKS["sa-generalized"],
        head_label="generalised quadratic, unpruned control",
        attention="heads",
        curve=("#D55E00", ":"),
        warm_start=WarmStart("sa-generalized"),
        recipes=TRAINED_FURTHER,
    ),
    "cnn": ModelSpec(
        label="CNN",
        build=NETWORKS["cnn"],
        curve=("#000000", "--"),
        tiers=tiers_of("cifar10"),  # digits are too small for it
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


def _arm(start: Start) -> ModelSpec:
    def change(cnn: nn.Module, parameters: Mapping[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
        return begin(cnn, start, parameters["start_alpha"], parameters["seed"]), {}

    return ModelSpec(
        start.label,
        start.curve,
        partial(free_cnn, start),
        head_label=f"CNN, {start.label}" if start.heads else "",
        attention="heads" if start.heads else "",
        grid=MIDDLE,
        warm_start=WarmStart("cnn", change, "test_accuracy_at_start", start.share),
        tiers=("small-free",),
    )


#: The arms of chapter 15, which start from a CNN, by name.
ARMS = {name: _arm(start) for name, start in STARTS.items()}


BEYOND |= ARMS


def _vit(name: str, start: AttentionStart) -> ModelSpec:
    return ModelSpec(
        start.label,
        start.curve,
        partial(vision_transformer, name),
        attention="heads and shifts",
        tiers=tuple(tier for tier in TIERS if f"vit-{name}" in TIERS[tier].models),
        keeps_weights=name == "convolution",
        recipes={"vit-10k": {"start_alpha": start.alpha}} if start.alpha else {},
    )


#: The vision transformers that chapter 17 compares first, by name.
VITS = {f"vit-{name}": _vit(name, start) for name, start in VIT_STARTS.items()}


#: The vision transformers that its further questions need, by name.
FURTHER_VITS = {
    f"vit-{name}": _vit(name, start) for name, start in ALL_STARTS.items() if name not in VIT_STARTS
}


BEYOND |= VITS | FURTHER_VITS


#: The yardstick of chapter 17, with the accuracy and size published by Hassani et al. (2021).
LITE = {
    "vit-lite-6-4": ModelSpec(
        "ViT-Lite-6/4",
        ("#999933", "-"),
        vit_lite,
        published=Published(0.9094, "3.19M"),
        tiers=("vit-lite",),
        keeps_weights=False,
    )
}


BEYOND |= LITE


#: All models that can be trained, by name.
SPECS = MODELS | BEYOND


def recipe(model: str, tier: str) -> dict[str, Any]:
    """Return the default parameters of a run, given its model and tier.

    In a variant of another tier, the model's settings for that tier come before the variant's
    changes, and its settings for the variant itself come last.
    """
    chosen = TIERS[tier]
    recipes = SPECS[model].recipes
    common = {**chosen.recipe, **recipes.get(chosen.variant_of, {}), **chosen.changes}
    found = {**common, **recipes.get(tier, {})}
    return found | {"learning_rate": round(found["learning_rate"] * chosen.rate_factor, 6)}


def deviations(model: str, tier: str) -> set[str]:
    """Return the names of the parameters in which a model deviates from a tier's recipe."""
    recipes = SPECS[model].recipes
    return {*recipes.get(tier, {}), *recipes.get(TIERS[tier].variant_of, {})}


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
