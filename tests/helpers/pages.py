"""Tests of the facts that the book's pages state in words."""

import functools

import nbformat

from . import ROOT


@functools.cache
def text_of(page):
    """Return the text and the captions of a page, which is a file below the repository's root."""
    path = ROOT / page
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    parts = []
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif figure := cell.metadata.get("mystnb", {}).get("figure"):
            parts.append(figure["caption"])
    return "\n".join(parts)


def states(page, *excerpts):
    """Decorate a test of a fact that a page states, so that a failure names page and sentence.

    Each excerpt is part of a sentence of the page. The test also fails if the page no longer
    contains an excerpt, so that the text does not change without its test.
    """

    def decorate(test):
        @functools.wraps(test)
        def checked(*args, **kwargs):
            for excerpt in excerpts:
                assert excerpt in text_of(page), f"{page} no longer says {excerpt!r}"
            try:
                test(*args, **kwargs)
            except AssertionError as error:
                error.add_note(f"This is no longer true, but {page} says: {' … '.join(excerpts)}")
                raise

        return checked

    return decorate
