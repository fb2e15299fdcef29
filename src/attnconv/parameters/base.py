"""Parameters of a notebook or a command: read from texts or from a notebook's names, and checked
before anything starts."""

from collections.abc import Mapping, Set
from typing import Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

RESERVED = {"In", "Out", "exit", "quit", "get_ipython", "open"}


def one_of(allowed: tuple[str, ...]) -> AfterValidator:
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
    """A notebook's parameters: no unknown names, no silent conversions, one message that names what
    was wrong."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def names(cls) -> set[str]:
        """Of its fields, those of its bases too."""
        return set(cls.model_fields)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Of the fields that have one, by name."""
        fields = cls.model_fields.items()
        return {name: field.default for name, field in fields if not field.is_required()}

    @classmethod
    def check(cls, values: Mapping[str, Any]) -> Self:
        """The validated parameters. ValueError: each wrong field with the value given, what was
        expected and the known names."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise ValueError(cls._message(error)) from None

    @classmethod
    def from_notebook(cls, namespace: Mapping[str, Any], before: Set[str]) -> Self:
        """The parameters from a notebook's `globals()`: every name defined since `before`, so that
        a mistyped one is found."""
        new = set(namespace) - set(before) - RESERVED
        return cls.check(
            {name: namespace[name] for name in new if not name.startswith("_") and name != "before"}
        )

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> Self:
        """The parameters from a command line, read as papermill reads its own: numbers, True, False
        and None, else text."""
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
                lines.append(
                    f"{name} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}"
                )
        return "; ".join(lines) + f". Known parameters: {', '.join(cls.model_fields)}"
