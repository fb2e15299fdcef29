"""Write a model's attention to a single HTML file that works offline."""

import html
from pathlib import Path

from torch import Tensor

from attnconv.inspection import AttentionReport

from ..store import write_file
from . import page_html
from .payload import Payload, best_shifts, maps_payload

# The explorer's dark-mode colours; its default colours are for light mode.
STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: #fff; color: #1f2328;
  font-family: system-ui, sans-serif; line-height: 1.45; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; }
.numbers { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.8rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.5rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #8c959f; }
th:first-child { text-align: left; font-weight: inherit; }
@media (prefers-color-scheme: dark) {
  :root { --pst-color-text-base: #e6edf3; --pst-color-background: #14181e;
    --pst-color-surface: #21262d; --pst-color-border: #6e7681; }
  body { background: #14181e; color: #e6edf3; }
}
"""


def save_html(
    report: AttentionReport,
    path: str | Path,
    image: Tensor | None = None,
    title: str = "Attention report",
) -> Path:
    """Write an attention report to a single HTML file and return the file's path.

    The file contains the report's table and the explorer's view of the mean maps, which are stored
    in half precision. It works offline and takes about `2.7 N_h T^2` bytes for each layer of T
    tokens. `image`, `(H', W')` or `(H', W', 3)` with values from 0 to 1, is shown behind the query
    pixels; pass it if the report covers a single image. Layers of the same size are shown as one
    model. Raises FileNotFoundError if the folder of `path` does not exist, and ValueError for a
    report without layers.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.parent} for {path.name}; create it first"
        )
    view = page_html("attention", report_payload(report, image).data, "This view needs JavaScript.")
    title = html.escape(title)
    page = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>'
        '\n<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'\n<link rel="icon" href="data:,">\n<style>{STYLE}</style>\n</head>\n<body>\n<main>'
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
    payload, entries = Payload(), []
    for grid in dict.fromkeys(layer.grid for layer in report.layers):
        layers = [layer for layer in report.layers if layer.grid == grid]
        parts = [maps_payload(layer.maps.unsqueeze(0), image).data for layer in layers]
        entry, (name,) = parts[0]["models"][0], parts[0]["images"]
        label = "{} × {} tokens".format(*grid)
        entry |= {
            "id": label,
            "label": label,
            "source": f"Layers from {layers[0].name} to {layers[-1].name}, means over the images.",
            "content": {name: [part["models"][0]["content"][name][0] for part in parts]},
            "best": best_shifts(layer.heads for layer in layers),
        }
        entries.append(entry)
        payload.data["images"] |= parts[0]["images"]
    payload.data["models"] = entries
    return payload
