"""The parameters of a run, validated before anything starts; and those of any notebook."""

import math
from collections.abc import Mapping, Set
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from .models import MODELS

RESERVED = {"In", "Out", "exit", "quit", "get_ipython", "open"}


def _one_of(allowed: tuple[str, ...]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return value

    return AfterValidator(check)


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
    def _message(cls, error: ValidationError) -> str:
        lines = []
        for problem in error.errors():
            name = ".".join(map(str, problem["loc"]))
            if problem["type"] == "extra_forbidden":
                lines.append(f"unknown parameter {name} = {problem['input']!r}")
            else:
                lines.append(f"{name} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}")
        return "; ".join(lines) + f". Known parameters: {', '.join(cls.model_fields)}"


class RunParameters(Parameters):
    """One quick training run (chapter 9): which model on which data, and how long."""

    model: Annotated[str, _one_of(tuple(sorted(MODELS)))] = "sa-quadratic"
    dataset: Annotated[str, _one_of(("digits",))] = "digits"
    epochs: int = Field(20, ge=1, le=10_000)
    batch_size: int = Field(50, ge=1)
    learning_rate: float = Field(3e-3, gt=0, le=1)
    warm_up: float = Field(0.1, ge=0, lt=1)
    seed: int = Field(0, ge=0, lt=2**32)

    def learning_rate_at(self, step: int, steps: int) -> float:
        """Linear warm-up over the first part of the steps, then a cosine to zero."""
        rise = min(1.0, (step + 1) / max(1.0, self.warm_up * steps))
        return self.learning_rate * rise * (1 + math.cos(math.pi * step / steps)) / 2


class ImitationParameters(Parameters):
    """Chapter 8: heads that learn to imitate a convolution."""

    kernel_size: Literal[3, 5] = 3
    steps: int = Field(2500, ge=1)
    weight_decay: float = Field(0.1, ge=0)
    values_at_zero: bool = True
    seed: int = Field(0, ge=0, lt=2**32)
