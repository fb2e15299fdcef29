"""Interactive views of attention and convolution, with one script for pages and notebooks.

The JavaScript modules in `js/` are joined into this script, each after the modules that it imports.
The script depends on no framework, other file or remote host. It uses the paper's letters: H x W
pixels, N_h heads, q query and k key pixel, delta = k - q. A pixel is [row, column], counted from 0;
an image or a map is an array of H * W numbers in row-major order. Displayed layers and heads are
numbered from 1.
"""

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

# Each module comes after those that it imports.
MODULES = (
    *("numbers", "text", "files", "models", "attention-state"),
    *("separable", "heads-state", "dom", "view", "head-grid", "attention"),
    *("picture", "descent", "client"),
    *("stage-picture", "stage-plane", "stage-beams", "stage-slider", "scene-heads"),
    *("descent-state", "scene-descent"),
    *("network-state", "network-runs", "network-pictures", "network-twin", "network-clouds"),
    *("scene-network", "stage", "mount"),
)
# The modules of the Web Worker that runs networks.
WORKER_MODULES = (
    *("numbers", "files", "arrays", "attention-network", "convolution-network", "networks"),
    *("picture", "service"),
)


def source(*names: str) -> str:
    """Return the concatenated text of the named files in this folder."""
    folder = resources.files(__name__)
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def script(host: str = "") -> str:
    """Join the JavaScript modules for a host into one script without imports.

    The host is "page", "widget" or "worker". The worker's script is not a module, because Chromium
    does not start module workers from a page that was opened as a file.
    """
    names = [*(WORKER_MODULES if host == "worker" else MODULES), *([host] if host else [])]
    joined = source(*(f"js/{name}.js" for name in names))
    joined = re.sub(r'(?m)^import \{[^}]*\} from "\./[^"]+";\n', "", joined)
    return re.sub("(?m)^export ", "", joined) if host == "worker" else joined


def page_html(view: str, data: Mapping[str, Any], still: str) -> str:
    """Return the "attention" or "stage" view as HTML that works without a Jupyter kernel.

    `data` comes from a `payload.Payload`; `still` is the text shown if scripts do not run.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c")  # so that no text can close the element
    style = source("explorer.css", *(["stage.css", "network.css"] if view == "stage" else []))
    return (
        f"<style>\n{style}</style>\n"
        f'<div data-explorer="{view}" class="{view}"><p>{html.escape(still)}</p></div>\n'
        f'<script type="application/json" id="explorer-data">{text}</script>\n'
        f'<script type="module">\n{script("page")}</script>\n'
    )
