"""Parameters of training runs, and their validation.

The parameters are grouped into classes: task, optimisation, networks, parent, and place of
computation. The command line and papermill accept them by name, without the groups.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from attnconv.cnn import WIDTH

from ..data import DATASETS
from ..specs import SPECS, deviations, recipe
from ..store import REPOSITORY, user_path
from ..studies.freed.network import START_ALPHA
from ..tiers import TIERS, tiers_of

RESERVED = {"In", "Out", "exit", "quit", "get_ipython", "open", "before"}


def one_of(allowed: tuple[str, ...]) -> AfterValidator:
    """Return a validator that accepts only the allowed values and lists them in its errors."""

    def check(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return value

    return AfterValidator(check)


def _expanded(folder: str) -> str:
    return str(user_path(folder)) if folder else ""


#: A folder's path, or "" for the default folder.
Folder = Annotated[str, AfterValidator(_expanded)]


def _from_text(text: str) -> Any:
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return text


class Parameters(BaseModel):
    """A base class that rejects unknown names, avoids silent conversions and reports all errors."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def names(cls) -> set[str]:
        """Return the names of all fields, including inherited ones."""
        return set(cls.model_fields)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the default value of each field that has one, by name."""
        fields = cls.model_fields.items()
        return {name: field.default for name, field in fields if not field.is_required()}

    @classmethod
    def check(cls, values: Mapping[str, Any]) -> Self:
        """Validate values given by name, and return the parameters.

        Raises ValueError with a message that names each invalid field, its value and what was
        expected, and lists the known names.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise ValueError(cls._message(error)) from None

    @classmethod
    def from_notebook(cls, namespace: Mapping[str, Any], before: Mapping[str, Any]) -> Self:
        """Return the parameters defined in a notebook, given its `globals()`.

        `before` is a copy of it from before the parameters were set. Every name that is new or has
        another value counts as a parameter, so that a misspelt name and the name of an import are
        errors.
        """
        new = {
            name: value
            for name, value in namespace.items()
            if name not in RESERVED and not name.startswith("_")
            if name not in before or value is not before[name]
        }
        return cls.check(new)

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> Self:
        """Return the parameters given as text on the command line.

        As in papermill, a value is read as a number, True, False or None if possible, else as text.
        The values of names and folders remain text.
        """
        fields = cls.model_fields
        names = {name for name in fields if fields[name].annotation is str}
        return cls.check(
            {name: text if name in names else _from_text(text) for name, text in texts.items()}
        )

    @classmethod
    def _message(cls, error: ValidationError) -> str:
        lines = []
        for problem in error.errors():
            message = problem["msg"].removeprefix("Value error, ")
            given = f"{'.'.join(map(str, problem['loc']))} = {problem['input']!r}"
            if not problem["loc"]:  # an error that concerns several parameters
                lines.append(message)
            elif problem["type"] == "extra_forbidden":
                lines.append(f"unknown parameter {given}")
            else:
                lines.append(f"{given}: {message}")
        return "; ".join(lines) + f". Known parameters: {', '.join(cls.model_fields)}"


MOMENTUM = 0.9  # momentum of sgd and nesterov, in every run


# when the published ResNet18's learning rate falls, as shares of its 300 epochs
MILESTONES = (80 / 300, 150 / 300, 250 / 300)


class Task(Parameters):
    """Parameters that choose the model, the data and the length of training."""

    model: Annotated[str, one_of(tuple(SPECS))] = Field(
        "sa-quadratic", description=f"one of {', '.join(SPECS)}"
    )
    dataset: Annotated[str, one_of(tuple(DATASETS))] = "digits"
    """digits or cifar10"""
    tier: Annotated[str, one_of(tuple(TIERS))] = Field(
        description=(
            "recipe: quick (the default) or brief for digits; paper (the default) or one of"
            f" {', '.join(tiers_of('cifar10')[1:])} for cifar10"
        )
    )
    seed: int = Field(0, ge=0, lt=2**32)
    """random seed for the initialisation, the order of images, the crops and dropout"""
    epochs: int = Field(ge=1, le=10_000)
    """passes over the training images"""
    train_images: int | None = Field(None, ge=1)
    """number of training images to use, from the start; None: all"""
    test_images: int | None = Field(None, ge=1)
    """number of test images to use, from the start; None: all"""
    held_out: int = Field(0, ge=0)
    """test on this many held-out training images, from the end, instead of the test images"""


class Optimisation(Parameters):
    """Parameters of the optimizer, the learning-rate schedule and the augmentation."""

    batch_size: int = Field(ge=1)
    """images per step, over all processes"""
    optimizer: Literal["sgd", "nesterov", "adamw"]
    """sgd (momentum 0.9), nesterov (sgd with Nesterov momentum) or adamw"""
    learning_rate: float = Field(gt=0, le=1)
    """peak learning rate"""
    weight_decay: float = Field(1e-4, ge=0, le=1)
    """weight decay of all parameters except centres, spreads and roots"""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """share of the training target distributed equally over all classes"""
    schedule: Literal["cosine", "multistep", "constant"]
    """cosine, multistep or constant, after the warm-up"""
    schedule_every: Literal["epoch", "step"]
    """when the rate changes: epoch (as published; the rate is 0 in the first epoch) or step"""
    warm_up: float = Field(ge=0, lt=1)
    """share of the run during which the rate rises linearly from 0"""
    position_rate: float = Field(gt=0)
    """learning rate of centres, spreads and roots, relative to that of other parameters"""
    norm_rate: float = Field(1.0, gt=0)
    """learning rate of the shifts of batch normalisation, relative to that of other parameters"""
    augment: bool
    """augment the training images by random cropping (after padding) and mirroring"""
    padding: int = Field(4, ge=0, le=16)
    """padding before random cropping, in pixels on each side"""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 on a GPU, float32 on a CPU"""


class Convolutional(Parameters):
    """The parameter that sets the size of the convolutional networks resnet18 and cnn."""

    width: int = Field(WIDTH, ge=1)
    """number of channels in the first stage of resnet18 or the first group of cnn"""


class Network(Parameters):
    """Parameters that set the size and form of the attention networks."""

    num_layers: int = Field(ge=1)
    """number of attention layers"""
    hidden: int = Field(ge=2)
    """hidden dimension D"""
    intermediate: int = Field(ge=1)
    """hidden dimension of the perceptron in each block"""
    pooling: int = Field(ge=1)
    """side in pixels of the square that becomes one token"""
    dropout: float = Field(ge=0, lt=1)
    """dropout rate for the two outputs of each block"""
    attention_dropout: float = Field(ge=0, lt=1)
    """dropout rate for the attention probabilities"""
    center_std: float = Field(ge=0)
    """standard deviation of the initial centres (sqrt(2) for N(0, 2 I) in the paper's text)"""
    alpha_form: Literal["square", "direct"] = "square"
    """square: alpha = spread^2 / 2; direct: alpha itself is trained"""
    learned_dim: int | None = Field(None, ge=1)
    """size of each row or column offset's vector; None: hidden, or half of it with content"""
    share_encoding: bool = False
    """share one r_delta among all layers, as in section 2.3"""


class Parent(Parameters):
    """Parameters for models that start from a parent: how to train it and what to change in it."""

    max_condition: float = Field(1e3, gt=0)
    """prune heads whose condition number is above this (1e5 in the paper's text)"""
    min_eigenvalue: float = Field(1e-5, ge=0)
    """prune heads whose largest eigenvalue is below this"""

    parent_epochs: int | None = Field(None, ge=1, le=10_000)
    """epochs of the parent model (see the specs); None: three times those of this run"""
    start_alpha: float = Field(START_ALPHA, gt=0)
    """initial alpha of the heads in the arms of chapter 15 and in vision transformers"""


class Folders(Parameters):
    """Folders on the machine that computes a run, which are not part of its record."""

    runs: Folder = ""
    """folder of the records; empty: the repository's data/runs"""
    checkpoints: Folder = ""
    """folder of the checkpoints; empty: the repository's data/cache/checkpoints"""
    data_root: Folder = ""
    """folder of the data; empty: ATTNCONV_DATA if set, else the repository's data"""


class Place(Folders):
    """Parameters that say where and how a run is computed.

    These parameters affect the results only through rounding and the random numbers of dropout.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU if there is one"""
    compile: Literal["auto", "off", "default", "reduce-overhead", "max-autotune"] = "auto"
    """mode of torch.compile, or off; auto: reduce-overhead (CUDA graphs) on a GPU, off on a CPU"""
    micro_batch: int | None = Field(None, ge=1)
    """images processed at a time within a batch; None: chosen to suit the processor's memory"""
    processes: int = Field(1, ge=1)
    """number of processes on this machine; alternatively, use torchrun or accelerate launch"""
    checkpoint_every: int = Field(ge=0)
    """epochs between checkpoints; 0: none, not even when the run is stopped"""
    resume: bool
    """continue from a checkpoint of this run; False: start again and replace existing files"""
    override: bool = False
    """allow parameters that differ from a small tier's recipe; tables exclude such runs"""


# pydantic lists fields from the last base to the first
class RunParameters(Place, Parent, Network, Convolutional, Optimisation, Task):
    """The parameters of a training run.

    Parameters that are missing or None come from the tier's recipe. The default tier has the
    paper's recipe for cifar10 and a quick one for digits. Runs of a small tier are compared with
    one another, so a deviation from its recipe requires `override`. Where the paper's text and the
    published code differ, the defaults follow the code, which produced the paper's numbers.
    """

    @model_validator(mode="before")
    @classmethod
    def _from_recipe(cls, values: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in values.items() if value is not None}
        model, dataset = (
            given.get(name, cls.model_fields[name].default) for name in ("model", "dataset")
        )
        tiers = tiers_of(str(dataset))
        tier = str(given.setdefault("tier", next(iter(tiers), "quick")))
        if tiers and tier in TIERS and tier not in tiers:
            raise ValueError(f"tier = {tier!r}: expected {' or '.join(tiers)} for {dataset}")
        if str(model) not in SPECS or tier not in TIERS:  # later rejected by name
            return {**TIERS["quick"].recipe, **given}
        usual = recipe(str(model), tier)
        if TIERS[tier].fixed and not given.get("override"):
            cls._expect_the_recipe(tier, usual, given)
        return usual | given

    @classmethod
    def _expect_the_recipe(cls, tier: str, usual: dict[str, Any], given: dict[str, Any]) -> None:
        for name in sorted(given.keys() & cls.model_fields.keys() - FREE_IN_A_TIER):
            expected = usual.get(name, cls.model_fields[name].default)
            if given[name] != expected:
                raise ValueError(
                    f"{name} = {given[name]!r}: the tier {tier} has {name} = {expected!r}; omit"
                    " it, or set override to True, which excludes the run from the tables"
                )

    @model_validator(mode="after")
    def _together(self) -> Self:
        size = DATASETS[self.dataset].image_size
        if size % self.pooling:
            raise ValueError(
                f"pooling = {self.pooling}: expected a divisor of {size}, the number of pixels per"
                f" side of the images of {self.dataset}"
            )
        both = f"model = {self.model!r}, tier = {self.tier!r}: expected"
        if (tiers := SPECS[self.model].tiers) and self.tier not in tiers:
            raise ValueError(f"{both} tier = {' or '.join(map(repr, tiers))} and dataset cifar10")
        if (models := TIERS[self.tier].models) and self.model not in models:
            raise ValueError(f"{both} {' or '.join(models)} in this tier")
        if self.model == "sa-learned-content" and self.learned_dim is None and self.hidden % 2:
            raise ValueError(
                f"hidden = {self.hidden}: expected an even number for {self.model}, or learned_dim"
            )
        return self

    @property
    def name(self) -> str:
        """The name of the run and of its folders."""
        tier = "" if self.tier == tiers_of(self.dataset)[0] else f"-{self.tier}"
        return f"{self.model}--{self.dataset}{tier}--seed{self.seed}"

    @property
    def keeps_weights(self) -> bool:
        """Return whether the weights are stored with the record.

        They are stored for seed 0 in some of the small tiers, but among the vision transformers
        only for the one that starts as a convolution.
        """
        chosen = TIERS[self.tier].keeps_weights and SPECS[self.model].keeps_weights
        return chosen and self.seed == 0

    @property
    def record_folder(self) -> Path:
        return Path(self.runs or REPOSITORY / "data" / "runs") / self.name

    @property
    def checkpoint_folder(self) -> Path:
        return Path(self.checkpoints or REPOSITORY / "data" / "cache" / "checkpoints") / self.name

    def on(self, device: str) -> Self:
        """Return the parameters with each `auto` resolved for a type of device, cuda or cpu."""
        automatic = {"device": device}
        if self.precision == "auto":
            automatic["precision"] = "bfloat16" if device == "cuda" else "float32"
        if self.compile == "auto":
            automatic["compile"] = "reduce-overhead" if device == "cuda" else "off"
        return self.model_copy(update=automatic)

    def identity(self) -> dict[str, Any]:
        """Return the parameters that identify the run in its record and its checkpoints."""
        return self.model_dump(exclude=Place.names())

    def parent(self) -> Self:
        """Return the parameters of the parent run, from whose model this run starts."""
        epochs = self.parent_epochs or 3 * self.epochs
        apart = Parent.names() | deviations(self.model, self.tier)
        changed = {
            "model": SPECS[self.model].parent,
            "epochs": epochs,
            "checkpoint_every": self.checkpoint_every or epochs,
        }
        return type(self).check(self.model_dump(exclude=apart) | changed)

    def learning_rate_at(self, epoch: int, step: int, steps: int) -> float:
        """Return the learning rate at a given step of an epoch with `steps` steps.

        The epoch and the step are counted from 0.
        """
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


#: Parameters that a run of a fixed tier may change without `override`.
FREE_IN_A_TIER = Place.names() | Task.names() - {"epochs"} | {"precision"}


class ResultsParameters(Parameters):
    """Parameters of chapters 8 to 11: the records to show, and the seed of the quick runs."""

    runs: Folder = ""
    tier: Literal["auto", "paper", "small"] = "auto"
    seed: int = Field(0, ge=0, lt=2**32)
