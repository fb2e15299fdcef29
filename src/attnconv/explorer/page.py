"""The explorer on a page of the book: HTML that needs no kernel and no other host."""

import html
import json

from . import script, source
from .payload import Payload


def page_html(view: str, payload: Payload, still: str) -> str:
    """A view, "attention", "convolution" or "pixel", as a part of a page. `still`: what is said
    where no script runs."""
    data = json.dumps(payload.data, separators=(",", ":"), allow_nan=False).replace(
        "<", "\\u003c"
    )  # so that no text can end the element
    return (
        f"<style>\n{source('explorer.css')}</style>\n"
        f'<div data-explorer="{view}"><p>{html.escape(still)}</p></div>\n'
        f'<script type="application/json" id="explorer-data">{data}</script>\n'
        f'<script type="module">\n{script("page")}</script>\n'
    )
