"""Build the network of any model from names and values, such as a run's parameters."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from .data import DATASETS
from .specs import SPECS


def build_network(parameters: Mapping[str, Any], heads: Sequence[int] | None = None) -> nn.Module:
    """Return the freshly initialised network that a run's parameters describe.

    `parameters` maps names to values, as in a run record; the network takes those that it knows.
    `heads` is the number of heads in each layer of a pruned model; by default, it follows from the
    parameters.
    """
    data = DATASETS[parameters["dataset"]]
    given = {**parameters, "in_channels": data.channels, "image_size": data.image_size}
    if heads:
        given["num_heads"] = heads
    build = SPECS[parameters["model"]].build
    known = inspect.signature(build).parameters
    return build(**{name: value for name, value in given.items() if name in known})
