"""A slider over pictures that were drawn beforehand: it turns in a page too, where no kernel
runs."""

import base64
import html
import io
from collections.abc import Mapping

import ipywidgets
from matplotlib.figure import Figure


def knob(name: str, pictures: Mapping[str, Figure], start: int = 0) -> ipywidgets.VBox:
    """A slider called `name` that shows one of the pictures, by its value (the keys, which become
    the alternative texts)."""
    shown = [
        ipywidgets.HTML(_image(f"{name} {value}", figure)) for value, figure in pictures.items()
    ]
    stack = ipywidgets.Stack(shown, selected_index=start)
    slider = ipywidgets.SelectionSlider(
        options=list(pictures),
        index=start,
        description=name,
        style={"description_width": "initial"},
        layout={"width": "24rem", "max_width": "100%"},
    )
    ipywidgets.jslink((slider, "index"), (stack, "selected_index"))
    return ipywidgets.VBox([slider, stack])


def _image(alt: str, figure: Figure) -> str:
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    data = base64.b64encode(content.getvalue()).decode()
    return (
        f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}" style="max-width: 100%;'
        ' height: auto">'
    )
