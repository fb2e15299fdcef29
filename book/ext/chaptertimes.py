"""A line under the title of each executed chapter.

It says how long the chapter takes to read, how long it took to run, and how much memory it needs.
"""

import os

from docutils import nodes
from hosting import ADDRESS, peak_memory, runs_on_binder
from myst_nb.sphinx_ import NbMetadataCollector

from companion.runs.record import processor

WORDS_A_MINUTE = 150  # of a text with formulas and code


def add_times(app, doctree):
    docname = app.env.docname
    run = NbMetadataCollector.get_exec_data(app.env, docname)
    if not (docname.startswith("notebooks/") and run and run["runtime"]):
        return
    words = sum(len(part.astext().split()) for part in doctree.findall(_is_read))
    reading = f"Read in about {max(1, round(words / WORDS_A_MINUTE))} minutes"
    running = (
        f"run in {run['runtime']:.0f} seconds when this book was built ({processor()},"
        f" {os.cpu_count()} cores)"
    )
    title = next(iter(doctree.findall(nodes.title)))
    title.parent.insert(
        title.parent.index(title) + 1,
        nodes.paragraph("", f"{reading}; {running}{memory(docname)}.", classes=["chapter-times"]),
    )


def memory(docname):
    """Return, in words, how much memory a chapter needs.

    If the book is hosted and the chapter needs more memory than Binder has, this is said as well.
    """
    if not (peak := peak_memory(docname)):
        return ""
    text = f"; needs up to {peak / 1024:.2f} GB of memory"
    if os.environ.get(ADDRESS) and not runs_on_binder(docname):
        text += ", more than Binder guarantees, so Binder is not offered here"
    return text


def _is_read(node):
    return isinstance(
        node, nodes.paragraph | nodes.literal_block | nodes.math_block
    ) and not _is_output(node)


def _is_output(node):
    while node is not None:
        if "cell_output" in node.get("classes", []):
            return True
        node = node.parent
    return False


def setup(app):
    app.connect("doctree-read", add_times)
    return {"parallel_read_safe": True}
