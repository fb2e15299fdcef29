"""The explorer for notebooks: an anywidget that runs the pages' script and shares its state."""

from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets
from torch import Tensor

from ..runs.record import RunRecord
from . import script, source
from .payload import Payload, attention_payload, maps_payload

STATE = ("model", "layer", "head", "image", "part", "softmax", "scale", "query", "epoch")


class Explorer(anywidget.AnyWidget):
    """An interactive view of attention maps in a notebook, created by `explore` or `explore_maps`.

    `state` maps names to text, as in the address of the book's explorer page, for example
    `{"layer": "2", "head": "3", "query": "4,4"}`. Setting `state` changes the view, and the
    reader's choices change `state`. While the query follows the pointer, it is reported only when
    the pointer stops.
    """

    _esm = script("widget")
    _css = source("explorer.css")
    data = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)

    @classmethod
    def of(cls, payload: Payload, state: dict) -> "Explorer":
        """Return a view that shows a payload of attention maps in the given state.

        `state` maps names to text, numbers, or lists or tuples of these, such as
        `{"query": (4, 4)}`. Raises ValueError for unknown names.
        """
        if unknown := sorted(set(state) - set(STATE)):
            raise ValueError(
                f"unknown {', '.join(unknown)} for this view, expected some of {', '.join(STATE)}"
            )
        texts = {name: _text(value) for name, value in state.items()}
        return cls(data=payload.data, state=texts)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)


def explore(records: RunRecord | Sequence[RunRecord], **state) -> Explorer:
    """Return an interactive view of the heads of trained models, given their run records.

    For `state`, see `Explorer.of`. Raises ValueError if there are no records, or if a record's
    model has no attention.
    """
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
    return Explorer.of(attention_payload(records), state)


def explore_maps(maps: Tensor, image: Tensor | None = None, **state) -> Explorer:
    """Return an interactive view of any model's attention maps, shown over an image.

    `maps` have the shape `(L, N_h, H, W, H, W)`, query axes before key axes. `image` has the shape
    `(H', W')` or `(H', W', 3)` and values from 0 to 1. For `state`, see `Explorer.of`.
    """
    return Explorer.of(maps_payload(maps, image), state)
