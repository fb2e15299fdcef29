"""The seven models of the paper, and those of the chapters beyond it: one spec for each, where
every fact about it stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .recipes import BRIEF_RECIPE, FREE_RECIPE, SMALL_RECIPE, TIERS

NUM_HEADS = 9  # of an attention layer, unless its model's spec says otherwise


@dataclass(frozen=True)
class Published:
    """A row of Table 4, as printed; `replicated`: the accuracy found by Varma and Prabhu (2020),
    one seed."""

    accuracy: float | None = None  # on CIFAR-10; None: the paper gives none
    parameters: str = ""
    flops: str = ""
    replicated: float | None = None


@dataclass(frozen=True)
class Start:
    """How an arm of chapter 15 starts from a CNN: after which `share` of its training; with `heads`
    on the "grid" of the kernels' pixels or at "random" places, or None, where it stays a CNN; and
    which parameters of their encoding are `freed`, that is trained."""

    share: float
    heads: str | None
    freed: tuple[str, ...]


@dataclass(frozen=True)
class ModelSpec:
    """What a model is. `encoding`: of its attention, None for CNNs and what becomes of them.
    `defaults`: keyword arguments of its network that may be overridden. `parent`: the model that a
    pruned one, or an arm of chapter 15, starts from, and `start` how that arm does. `curve`: colour
    and line style in figures. `recipes`: what it has otherwise than its tier's recipe."""

    label: str
    head_label: str
    encoding: str | None
    published: Published
    curve: tuple[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None
    start: Start | None = None
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def heads_before_pruning(self) -> int:
        """The heads per layer of the model that a pruned one starts from."""
        return SPECS[self.parent].defaults.get("num_heads", NUM_HEADS) if self.parent else NUM_HEADS


#: Per layer: of nine heads, [2, 4, 1, 2, 6, 0] were pruned (appendix E).
PUBLISHED_HEADS_LEFT = (7, 5, 8, 7, 3, 9)
#: The paper's models by name.
MODELS = {
    "resnet18": ModelSpec(
        label="ResNet18",
        head_label="",
        encoding=None,
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
        published=Published(replicated=0.9311),  # appendix F, without numbers
        curve=("#56B4E9", "-"),
        defaults={"num_heads": 16},
    ),
    "sa-generalized": ModelSpec(
        label="SA quadratic, generalised",
        head_label="generalised quadratic",
        encoding="generalized",
        published=Published(0.934, "12.1M", "6.2B"),
        curve=("#D55E00", "--"),
        # whose weights the pruned model starts from
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
        recipes={
            "paper": {"epochs": 100, "learning_rate": 0.01},
            "quick": {"epochs": 4, "learning_rate": 3e-4},
            "brief": {"epochs": 2, "learning_rate": 3e-4, "parent_epochs": BRIEF_RECIPE["epochs"]},
            "small": {"epochs": 7, "learning_rate": 2e-4, "parent_epochs": SMALL_RECIPE["epochs"]},
        },
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
        recipes={"brief": {"epochs": 4, "checkpoint_every": 4}},  # whose weights the explorer needs
    ),
}

#: The models of chapters 14 and 15 by name.
BEYOND = {
    "cnn": ModelSpec(
        label="CNN",
        head_label="",
        encoding=None,
        published=Published(),
        curve=("#000000", "--"),
        # settled on held-out training images, but for the crops and the epochs (chapter 14)
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
                "width": 64,
            },
            "small-free": {"epochs": FREE_RECIPE["parent_epochs"], "parent_epochs": None},
        },
    ),
}


def _arm(label: str, start: Start, curve: tuple[str, str]) -> ModelSpec:
    head_label = f"CNN, {label}" if start.heads else ""
    return ModelSpec(label, head_label, None, Published(), curve, parent="cnn", start=start)


FIXED, PLACES, FREED = (), ("centers",), ("centers", "spread")
#: What chapter 15 trains on from a CNN, by name.
ARMS = {
    "cnn-on": _arm("CNN, trained on", Start(1.0, None, FIXED), ("#000000", "-")),
    "grid-0": _arm("grid from the start, fixed", Start(0.0, "grid", FIXED), ("#000000", "--")),
    "grid-100": _arm("grid after all of it, fixed", Start(1.0, "grid", FIXED), ("#000000", ":")),
    "freed-0": _arm("freed from the start", Start(0.0, "grid", FREED), ("#56B4E9", "-")),
    "freed-25": _arm("freed after a quarter", Start(0.25, "grid", FREED), ("#0072B2", "--")),
    "freed-50": _arm("freed after half", Start(0.5, "grid", FREED), ("#0072B2", "-.")),
    "freed-100": _arm("freed after all of it", Start(1.0, "grid", FREED), ("#0072B2", "-")),
    "places-100": _arm(
        "places alone freed, after all of it", Start(1.0, "grid", PLACES), ("#009E73", ":")
    ),
    "random-fixed": _arm("random places, fixed", Start(0.0, "random", FIXED), ("#D55E00", "--")),
    "random-freed": _arm("random places, freed", Start(0.0, "random", FREED), ("#D55E00", "-")),
}
BEYOND |= ARMS
#: All models that can be trained, by name.
SPECS = MODELS | BEYOND


def recipe(model: str, tier: str) -> dict[str, Any]:
    """Return the parameters of a run of this model in this tier, unless told otherwise."""
    chosen = TIERS[tier]
    own = SPECS[model].recipes.get(chosen.variant_of or tier, {})
    found = {**chosen.recipe, **own, **chosen.changes}
    return found | {"learning_rate": round(found["learning_rate"] * chosen.rate_factor, 6)}


#: Colours of the heads, Okabe and Ito's, which readers with colour blindness can tell apart.
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
    """Of a head, from 0; they repeat after nine."""
    return HEAD_COLORS[head % len(HEAD_COLORS)]
