"""Attention and convolution, live: on a page of the book and in a notebook, by the same JavaScript.

No framework, no other file, no other host: the modules in `js/` are joined to one script, each
after those that it imports. Letters in them as in the paper: H x W pixels, N_h heads, q query and k
key pixel, delta = k - q. A pixel is [row, column], from 0; an image or a map is one array of H * W
numbers, row by row. Layers and heads are counted from 1 where they are shown.
"""

import re
from importlib import resources

MODULES = (
    "numbers",
    "files",
    "models",
    "dom",
    "view",
    "attention-state",
    "attention",
    "layer",
    "convolution",
    "pixel",
    "mount",
)


def source(*names: str) -> str:
    """The text of files of this folder, one after the other."""
    return "".join(
        resources.files(__name__).joinpath(name).read_text(encoding="utf-8") for name in names
    )


def script(host: str = "") -> str:
    """All modules as one, and a host, "page" or "widget": what stands in a page, where modules
    cannot import each other."""
    names = [*MODULES, *([host] if host else [])]
    return re.sub(
        r'(?m)^import \{[^}]*\} from "\./[^"]+";\n',
        "",
        source(*(f"js/{name}.js" for name in names)),
    )
