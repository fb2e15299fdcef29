"""Interactive views of attention and convolution, with one script for pages and notebooks.

The JavaScript modules in the folders of `js/` are joined into this script, each after the modules
that it imports. The folders are `numerics`, one for each scene of the stage (`heads`, `descent`,
`network`), `trained` for the view of trained heads, and `shell` for what the views share and for
their hosts. The script depends on no framework, other file or remote host. It uses the paper's
letters: H x W pixels, N_h heads, q query and k key pixel, delta = k - q. A pixel is [row, column],
counted from 0; an image or a map is an array of H * W numbers in row-major order. Displayed layers
and heads are numbered from 1.
"""

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from posixpath import dirname, normpath
from typing import Any

IMPORT = re.compile(r'(?m)^import \{[^}]*\} from "([^"]+)";\n')


def source(*names: str) -> str:
    """Return the concatenated text of the named files in this folder."""
    folder = resources.files(__name__)
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def modules(host: str) -> dict[str, str]:
    """Return the text of each JavaScript module that a host needs, by its path in `js/`.

    The host is a module of `js/shell/`. Each module comes after those that it imports.
    """
    found: dict[str, str] = {}

    def add(path: str) -> None:
        if path not in found:
            text = source(f"js/{path}")
            for imported in IMPORT.findall(text):
                add(normpath(f"{dirname(path)}/{imported}"))
            found[path] = text

    add(f"shell/{host}.js")
    return found


def script(host: str) -> str:
    """Join the JavaScript modules that a host needs into one script without imports.

    The host is "page", "widget" or "worker". The worker's script is not a module, because Chromium
    does not start module workers from a page that was opened as a file.
    """
    joined = IMPORT.sub("", "".join(modules(host).values()))
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
