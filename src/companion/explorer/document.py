"""Write a model's attention to a single HTML file that works offline."""

import html
from pathlib import Path

from torch import Tensor

from attnconv.inspection import AttentionReport

from ..store import user_path, write_file
from . import page_html, source
from .codes import maps_in_bytes, queries_per_axis
from .payload import Payload, maps_entry


def save_html(
    report: AttentionReport,
    path: str | Path,
    image: Tensor | None = None,
    title: str = "Attention report",
) -> Path:
    """Write an attention report to a single HTML file and return the file's path.

    The file contains the report's table and the explorer's view of the mean maps. It works offline
    and takes at most about 8 MB, and what the image takes: the maps are stored in 8 bits and, if
    they are too large, only for a grid of query pixels. `image`, `(H', W')` or `(H', W', 3)` with
    values from 0 to 1, is shown behind the query pixels; pass it if the report covers a single
    image. Layers of the same size are shown as one model. Raises FileNotFoundError if the folder of
    `path` does not exist, and ValueError for a report without layers.
    """
    path = user_path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.parent} for {path.name}; create it first"
        )
    view = page_html("attention", report_payload(report, image).data, "This view needs JavaScript.")
    title = html.escape(title)
    page = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>'
        '\n<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'\n<link rel="icon" href="data:,">\n<style>\n{source("report.css")}</style>\n</head>'
        "\n<body>\n<main>"
        f"\n<h1>{title}</h1>\n{view}<h2>Measures</h2>"
        '\n<div class="numbers" tabindex="0" role="region" aria-label="measures">'
        f"{report._repr_html_()}</div>\n</main>\n</body>\n</html>\n"
    )
    write_file(path, page.encode())
    return path


def report_payload(report: AttentionReport, image: Tensor | None = None) -> Payload:
    """Return the data for the "attention" view of a report, with one model per layer size."""
    if not report.layers:
        raise ValueError(
            "got a report without layers, expected at least one; see inspect_attention"
        )
    payload = Payload()
    entries = []
    sizes = list(dict.fromkeys(layer.grid for layer in report.layers))
    heads_of = {
        grid: sum(len(layer.maps) for layer in report.layers if layer.grid == grid)
        for grid in sizes
    }
    count = queries_per_axis(heads_of)
    for grid in sizes:
        layers = [layer for layer in report.layers if layer.grid == grid]
        label = "{} × {} tokens".format(*grid)
        maps = [maps_in_bytes(layer.maps, count) for layer in layers]
        heads = [layer.heads for layer in layers]
        what = f"Layers from {layers[0].name} to {layers[-1].name}, means over the images."
        entry = {"id": label, "label": label, "source": what}
        entries.append(entry | maps_entry(payload, maps, grid, heads, image))
    payload.data["models"] = entries
    return payload
