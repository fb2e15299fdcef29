"""The parameters of a run, validated before anything starts; and those of any notebook."""

import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import nn

from .data import CHANNELS, IMAGE_SIZES, REPOSITORY
from .models import MODELS, build_model

DATASETS = ("digits", "cifar10")
TIERS = {"digits": ("quick", "brief"), "cifar10": ("paper", "small", "small-long")}  # of each data set, its usual one first
RESERVED = {"In", "Out", "exit", "quit", "get_ipython", "open"}


def _one_of(allowed: tuple[str, ...]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return value

    return AfterValidator(check)


def _from_text(text: str) -> Any:
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


class Parameters(BaseModel):
    """A notebook's parameters: no unknown names, no silent conversions, one message that names what was wrong."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def check(cls, values: Mapping[str, Any]) -> Self:
        """The validated parameters. ValueError: each wrong field with the value given, what was expected and the known names."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise ValueError(cls._message(error)) from None

    @classmethod
    def from_notebook(cls, namespace: Mapping[str, Any], before: Set[str]) -> Self:
        """The parameters from a notebook's `globals()`: every name defined since `before`, so that a mistyped one is found."""
        new = set(namespace) - set(before) - RESERVED
        return cls.check({name: namespace[name] for name in new if not name.startswith("_") and name != "before"})

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> Self:
        """The parameters from a command line, read as papermill reads its own: numbers, True, False and None, else text."""
        return cls.check({name: _from_text(text) for name, text in texts.items()})

    @classmethod
    def _message(cls, error: ValidationError) -> str:
        lines = []
        for problem in error.errors():
            name = ".".join(map(str, problem["loc"]))
            if not name:  # of several parameters together
                lines.append(problem["msg"].removeprefix("Value error, "))
            elif problem["type"] == "extra_forbidden":
                lines.append(f"unknown parameter {name} = {problem['input']!r}")
            else:
                lines.append(f"{name} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}")
        return "; ".join(lines) + f". Known parameters: {', '.join(cls.model_fields)}"


# What the paper's experiment uses (its Table 2 and, where that is silent, the published code), and the quick tier's choices:
# the same network made small enough for 8 x 8 digits on a CPU. Without dropout its attention stays separable.
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
    "center_std": 2.0,
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
# All of CIFAR-10 on two cores: the same network, narrower and on 8 x 8 tokens, with one recipe for all attention models. Every
# choice was made on held-out training images (book/small-tier.md). The width is what float16 weights of 1.5 MB allow.
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
LONG_RECIPE = SMALL_RECIPE | {"epochs": 150}  # heads need time to settle
# The runs that chapters 10 to 13 train while the book builds: all seven models within a minute on two cores.
BRIEF_RECIPE = DIGITS_RECIPE | {"epochs": 5, "batch_size": 20, "hidden": 32, "intermediate": 64}
RECIPES = {
    "quick": DIGITS_RECIPE,
    "brief": BRIEF_RECIPE,
    "paper": PAPER_RECIPE,
    "small": SMALL_RECIPE,
    "small-long": LONG_RECIPE,
}
MOMENTUM = 0.9  # of sgd, everywhere
MODEL_RECIPES = {
    ("resnet18", "paper"): {"schedule": "multistep", "warm_up": 0.0},
    ("sa-generalized-pruned", "paper"): {"epochs": 100, "learning_rate": 0.01},
    ("sa-generalized-pruned", "quick"): {"epochs": 4, "learning_rate": 3e-4},
    ("resnet18", "brief"): {"epochs": 2, "batch_size": 50},
    ("sa-generalized", "brief"): {"checkpoint_every": BRIEF_RECIPE["epochs"]},  # whose weights the pruned model starts from
    ("sa-generalized-pruned", "brief"): {"epochs": 2, "learning_rate": 3e-4, "parent_epochs": BRIEF_RECIPE["epochs"]},
    ("sa-learned-content", "brief"): {"epochs": 4, "checkpoint_every": 4},  # whose weights the explorer needs
    ("resnet18", "small"): {"learning_rate": 3e-3},
    ("sa-generalized-pruned", "small"): {"epochs": 7, "learning_rate": 2e-4, "parent_epochs": SMALL_RECIPE["epochs"]},
}
MILESTONES = (80 / 300, 150 / 300, 250 / 300)  # of the published ResNet18's schedule, as shares of its 300 epochs


def recipe(model: str, tier: str) -> dict[str, Any]:
    """The parameters that a run of this model in this tier has unless told otherwise."""
    return RECIPES[tier] | MODEL_RECIPES.get((model, tier), {})


class RunParameters(Parameters):
    """One training run. What is not given, or None, is the recipe's of its tier: for cifar10 the paper's unless told, a quick
    one for digits. The small tiers' recipe is what their runs are compared by: to change it takes `override`.

    Where the paper's text and the published code differ the default is the code's, since it made the paper's numbers.
    """

    # what is trained, on what, for how long
    model: Annotated[str, _one_of(tuple(MODELS))] = Field("sa-quadratic", description=f"one of {', '.join(MODELS)}")
    dataset: Annotated[str, _one_of(DATASETS)] = Field("digits", description="digits or cifar10")
    tier: Annotated[str, _one_of(sum(TIERS.values(), ()))] = Field(
        description="whose recipe: quick (the default) or brief for digits; paper (the default), small or small-long for cifar10"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of the start, the order, the windows and dropout")
    epochs: int = Field(ge=1, le=10_000, description="passes over the training images")
    train_images: int | None = Field(None, ge=1, description="only the first so many; None: all")
    test_images: int | None = Field(None, ge=1, description="only the first so many; None: all")
    held_out: int = Field(0, ge=0, description="so many training images, the last, are tested on instead of the test images")
    override: bool = Field(False, description="allow other parameters than a small tier's recipe; the tables leave such runs out")

    # how it is trained
    batch_size: int = Field(ge=1, description="of all processes together")
    optimizer: Literal["sgd", "adamw"] = Field(description="sgd (momentum 0.9) or adamw")
    learning_rate: float = Field(gt=0, le=1, description="its highest value")
    weight_decay: float = Field(1e-4, ge=0, le=1, description="of everything but centres, spreads and roots")
    schedule: Literal["cosine", "multistep", "constant"] = Field(description="cosine, multistep or constant, after the warm-up")
    schedule_every: Literal["epoch", "step"] = Field(description="epoch (as published: the first epoch's rate is 0) or step")
    warm_up: float = Field(ge=0, lt=1, description="share of the run over which the rate rises linearly from 0")
    position_rate: float = Field(gt=0, description="learning rate of centres, spreads and roots, relative to the others'")
    augment: bool = Field(description="random crops after padding by 4, and mirroring")

    # the network
    width: int = Field(64, ge=1, description="of resnet18: channels of the first of its four stages")
    num_layers: int = Field(ge=1, description="attention layers")
    hidden: int = Field(ge=2, description="hidden dimension D")
    intermediate: int = Field(ge=1, description="hidden dimension of each block's perceptron")
    pooling: int = Field(ge=1, description="pixels a side that become one token")
    dropout: float = Field(ge=0, lt=1, description="of each block's two outputs")
    attention_dropout: float = Field(ge=0, lt=1, description="of the attention probabilities")
    center_std: float = Field(ge=0, description="standard deviation of the first centres; the text's N(0, 2 I) would be sqrt(2)")
    alpha_form: Literal["square", "direct"] = Field(
        "square", description="alpha = spread^2 / 2 (square), or trained itself (direct)"
    )
    learned_dim: int | None = Field(None, ge=1, description="numbers per row and column shift; None: hidden, with content half")
    share_encoding: bool = Field(False, description="one r_delta for all layers, as the text says (2.3)")

    # sa-generalized-pruned: which heads of the trained sa-generalized go
    max_condition: float = Field(1e3, gt=0, description="heads above this condition number are pruned; the text's is 1e5")
    min_eigenvalue: float = Field(1e-5, ge=0, description="heads below this largest eigenvalue are pruned")
    parent_epochs: int | None = Field(
        None, ge=1, le=10_000, description="of sa-generalized, where it has to be trained first; None: three times as many"
    )

    precision: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto: bfloat16 on a GPU, float32 on a CPU")

    # where and how it is computed: the same run, up to rounding and to which numbers dropout draws
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: a GPU if there is one")
    compile: Literal["auto", "off", "default", "reduce-overhead", "max-autotune"] = Field(
        "auto", description="torch.compile's mode or off; auto: reduce-overhead (CUDA graphs) on a GPU, off on a CPU"
    )
    micro_batch: int | None = Field(
        None, ge=1, description="images at a time within a batch; None: as fit the processor's memory"
    )
    processes: int = Field(1, ge=1, description="of this machine, training together; or use torchrun or accelerate launch")
    checkpoint_every: int = Field(ge=0, description="epochs between checkpoints; 0: none, not even when stopped")
    resume: bool = Field(description="go on from a checkpoint of this run; False: start afresh and replace what is there")
    runs: str = Field("", description="folder of the records; empty: the repository's data/runs")
    checkpoints: str = Field("", description="folder of the checkpoints; empty: the repository's data/cache/checkpoints")
    data_root: str = Field("", description="folder of the data; empty: that of ATTNCONV_DATA, else the repository's data")

    @model_validator(mode="before")
    @classmethod
    def _from_recipe(cls, values: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in values.items() if value is not None}
        model, dataset = (given.get(name, cls.model_fields[name].default) for name in ("model", "dataset"))
        tiers = TIERS.get(str(dataset), ())
        tier = str(given.setdefault("tier", next(iter(tiers), "quick")))
        if tiers and tier in RECIPES and tier not in tiers:
            raise ValueError(f"tier = {tier!r}: expected {' or '.join(tiers)} for {dataset}")
        usual = recipe(str(model), tier if tier in RECIPES else "quick")
        if tier in ("small", "small-long") and not given.get("override"):
            cls._expect_the_recipe(tier, usual, given)
        return usual | given

    @classmethod
    def _expect_the_recipe(cls, tier: str, usual: dict[str, Any], given: dict[str, Any]) -> None:
        for name in sorted(given.keys() & cls.model_fields.keys() - FREE_IN_A_TIER):
            expected = usual.get(name, cls.model_fields[name].default)
            if given[name] != expected:
                raise ValueError(
                    f"{name} = {given[name]!r}: the tier {tier} has {name} = {expected!r}; leave it out, or set override to True"
                    " for a run that its tables leave out"
                )

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.model == "sa-learned-content" and self.learned_dim is None and self.hidden % 2:
            raise ValueError(f"hidden = {self.hidden}: expected an even number for {self.model}, or learned_dim")
        return self

    @property
    def name(self) -> str:
        """The name of the run's folders."""
        data = self.dataset if self.tier in ("quick", "paper") else f"{self.dataset}-{self.tier}"
        return f"{self.model}--{data}--seed{self.seed}"

    @property
    def keeps_weights(self) -> bool:
        """Whether its weights are kept beside the record: one seed of each model of the small tiers."""
        return self.tier in ("small", "small-long") and self.seed == 0

    @property
    def record_folder(self) -> Path:
        return Path(self.runs or REPOSITORY / "data" / "runs") / self.name

    @property
    def checkpoint_folder(self) -> Path:
        return Path(self.checkpoints or REPOSITORY / "data" / "cache" / "checkpoints") / self.name

    def on(self, device: str) -> Self:
        """With `auto` resolved for a device type, cuda or cpu."""
        automatic = {"device": device}
        if self.precision == "auto":
            automatic["precision"] = "bfloat16" if device == "cuda" else "float32"
        if self.compile == "auto":
            automatic["compile"] = "reduce-overhead" if device == "cuda" else "off"
        return self.model_copy(update=automatic)

    def identity(self) -> dict[str, Any]:
        """What makes it this run: two runs with the same identity may continue each other."""
        return self.model_dump(exclude=PLACE)

    def parent(self) -> Self:
        """Of a pruned run: the run of the generalised model that it starts from."""
        epochs = self.parent_epochs or 3 * self.epochs
        apart = {"parent_epochs", "max_condition", "min_eigenvalue", *MODEL_RECIPES[self.model, self.tier]}
        changed = {"model": "sa-generalized", "epochs": epochs, "checkpoint_every": self.checkpoint_every or epochs}
        return type(self).check(self.model_dump(exclude=apart) | changed)

    def learning_rate_at(self, epoch: int, step: int, steps: int) -> float:
        """The learning rate of a step of an epoch, both from 0, with `steps` steps per epoch."""
        by_epoch = self.schedule_every == "epoch"
        now, end = (epoch, self.epochs) if by_epoch else (epoch * steps + step, self.epochs * steps)
        rise = self.warm_up * end
        if now < rise:
            return self.learning_rate * now / rise
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * (now - rise) / (end - rise))) / 2
        if self.schedule == "multistep":
            return self.learning_rate * 0.1 ** sum(now >= share * end for share in MILESTONES)
        return self.learning_rate


PLACE = {
    "device",
    "compile",
    "micro_batch",
    "processes",
    "checkpoint_every",
    "resume",
    "runs",
    "checkpoints",
    "data_root",
    "override",
}
# What a run of a small tier may have otherwise without `override`.
FREE_IN_A_TIER = PLACE | {"model", "dataset", "tier", "seed", "train_images", "test_images", "held_out", "precision"}


OF_THE_NETWORK = ("num_layers", "hidden", "intermediate", "pooling", "dropout", "attention_dropout", "center_std")
OF_THE_NETWORK += ("alpha_form", "learned_dim", "share_encoding")


def build_network(parameters: Mapping[str, Any], heads: Sequence[int] | None = None) -> nn.Module:
    """The network that a run's parameters (`RunParameters`, or a record's) describe, freshly initialised.

    `heads`: per layer, of a pruned model; None: the model's own.
    """
    data = parameters["dataset"]
    overrides: dict[str, Any] = {"in_channels": CHANNELS[data]}
    if parameters["model"] == "resnet18":
        return build_model("resnet18", **overrides, width=parameters.get("width", 64))
    overrides |= {name: parameters[name] for name in OF_THE_NETWORK} | {"image_size": IMAGE_SIZES[data]}
    return build_model(parameters["model"], **overrides, **({"num_heads": heads} if heads else {}))


class ImitationParameters(Parameters):
    """Chapter 8: heads that learn to imitate a convolution."""

    kernel_size: Literal[3, 5] = 3
    steps: int = Field(1500, ge=1)
    weight_decay: float = Field(0.1, ge=0)
    values_at_zero: bool = True
    seed: int = Field(0, ge=0, lt=2**32)


class ResultsParameters(Parameters):
    """Chapters 10 to 13: which records they show, of which tier, and the seed of the runs they make themselves."""

    runs: str = ""
    tier: Literal["auto", "paper", "small"] = "auto"
    seed: int = Field(0, ge=0, lt=2**32)
