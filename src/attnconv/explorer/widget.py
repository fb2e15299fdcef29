"""The explorer in a notebook: an anywidget around the same JavaScript. Its `state` is shared:
Python reads and sets the view."""

from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets
from torch import Tensor

from ..runs.record import RunRecord
from . import script, source
from .payload import Payload, attention_payload, convolution_payload, maps_payload, pixel_payload

STATES = {
    "attention": ("model", "layer", "head", "image", "part", "softmax", "scale", "query", "epoch"),
    "convolution": ("image", "kernel", "alpha", "border", "difference", "centers"),
    "pixel": ("image", "kernel", "alpha", "query", "step"),
}


class Explorer(anywidget.AnyWidget):
    """A view in a notebook; made by the functions below.

    `state`: text by name, the same as in the address of the book's page, such as
    `{"layer": "2", "head": "3", "query": "4,4"}`. Setting it changes the view; what the reader
    chooses is read from it. A query that follows the pointer is told when it rests.
    """

    _esm = script("widget")
    _css = source("explorer.css")
    view = traitlets.Unicode().tag(sync=True)
    data = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)

    @classmethod
    def of(cls, view: str, payload: Payload, state: dict) -> "Explorer":
        """A view of a payload in a state: text, numbers, lists of them, such as `query=(4, 4)`.
        ValueError for unknown names."""
        if unknown := sorted(set(state) - set(STATES[view])):
            raise ValueError(
                f"unknown {', '.join(unknown)} for this view, expected some of"
                f" {', '.join(STATES[view])}"
            )
        return cls(
            view=view,
            data=payload.data,
            state={name: _text(value) for name, value in state.items()},
        )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)


def explore(records: RunRecord | Sequence[RunRecord], **state) -> Explorer:
    """The heads of trained models, from their run records. ValueError for none, or for one without
    attention."""
    records = [records] if isinstance(records, RunRecord) else list(records)
    if not records:
        raise ValueError(
            "got no run records, expected at least one; find_runs() lists those of data/runs"
        )
    for record in records:
        if not record.attention:
            raise ValueError(
                f"{record.name} has no attention to look at; expected finished runs of"
                " self-attention models"
            )
    return Explorer.of("attention", attention_payload(records), state)


def explore_maps(maps: Tensor, image: Tensor | None = None, **state) -> Explorer:
    """Any model's maps `(L, N_h, H, W, H, W)`, query then key, over an image `(H', W')` or
    `(H', W', 3)` from 0 to 1."""
    return Explorer.of("attention", maps_payload(maps, image), state)


def explore_convolution(**state) -> Explorer:
    """A convolution, and nine heads that become it."""
    return Explorer.of("convolution", convolution_payload(), state)


def explore_pixel(**state) -> Explorer:
    """One output pixel, shift by shift and head by head."""
    return Explorer.of("pixel", pixel_payload(), state)
