"""Buttons that lead to the repository, to Binder and to Colab, and the address of the book.

The environment variable ATTNCONV_REPOSITORY holds the address of the repository, and
ATTNCONV_BRANCH the branch (by default main). Without it, the pages have no such buttons, and the
book has no address. The buttons are links: a page requests nothing from another host until a reader
follows one. Binder is offered for chapters whose peak memory, as `benchmarks/memory.py` measured
it, fits into the memory that Binder guarantees. Colab opens the branch `colab`, whose notebooks
start with a cell that installs the package (`tools/colab.py`). The book's address, which `pagemeta`
uses, is that of the repository's GitHub Pages, to which the publishing workflow uploads the book.
"""

import json
import os
import re
from pathlib import Path

from sphinx.errors import ConfigError

ADDRESS = "ATTNCONV_REPOSITORY"
EXPECTED = r"https://github\.com/[\w.-]+/[\w.-]+"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
MEASURED = RESULTS / "memory-cpu-2-cores.json"
BINDER_MIB = 1024  # what Binder guarantees
COLAB_BRANCH = "colab"


def theme_options(address, branch):
    """Return the theme's options for a repository. Raises ConfigError for an unusable address."""
    if not re.fullmatch(EXPECTED, address):
        raise ConfigError(
            f"{ADDRESS} is {address!r}, expected https://github.com/OWNER/NAME;"
            " correct it, or unset it to build pages without buttons"
        )
    return {
        "repository_url": address.removesuffix(".git"),
        "repository_branch": branch,
        "use_repository_button": True,
        "use_edit_page_button": True,
        "launch_buttons": {
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
        },
    }


def pages_address(repository):
    """Return the address at which GitHub Pages shows a repository's pages."""
    owner, name = repository.removesuffix(".git").split("/")[-2:]
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def add_addresses(app, config):
    """Set the theme's options and the book's address if the repository has an address."""
    if address := os.environ.get(ADDRESS):
        branch = os.environ.get("ATTNCONV_BRANCH") or "main"
        config.html_theme_options |= theme_options(address, branch)
        config.html_baseurl = pages_address(address)


def peak_memory(pagename):
    """Return the peak memory of a chapter in MiB, or None if it was not measured."""
    chapters = json.loads(MEASURED.read_text())["chapters"] if MEASURED.exists() else {}
    return chapters.get(Path(pagename).name, {}).get("peak_mib")


def runs_on_binder(pagename):
    """Return whether the measured memory of a chapter is less than Binder guarantees."""
    return (peak_memory(pagename) or BINDER_MIB) < BINDER_MIB


def fit_buttons(app, pagename, templatename, context, doctree):
    """Keep the launch buttons that work, and make Colab open the branch `colab`.

    Markdown pages cannot be opened as notebooks, and Binder lacks the memory for some chapters.
    """
    buttons = context.get("header_buttons", [])
    if str(app.env.doc2path(pagename)).endswith(".md"):
        buttons[:] = [each for each in buttons if each.get("label") != "launch-buttons"]
    for group in buttons:
        if group.get("label") == "launch-buttons":
            group["buttons"] = [
                each | {"url": re.sub("/blob/[^/]+/", f"/blob/{COLAB_BRANCH}/", each["url"])}
                for each in group["buttons"]
                if each["text"] != "Binder" or runs_on_binder(pagename)
            ]


def setup(app):
    app.connect("config-inited", add_addresses, priority=100)  # before the theme reads its options
    app.connect("html-page-context", fit_buttons, priority=502)  # after the theme's own
    return {"parallel_read_safe": True, "parallel_write_safe": True}
