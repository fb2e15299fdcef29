"""Buttons that lead to the repository, to Binder and to Colab, if its address is known.

The environment variable ATTNCONV_REPOSITORY holds the address, and ATTNCONV_BRANCH the branch (by
default main). Without it the pages have no such buttons. They are links: a page requests nothing
from another host until a reader follows one.
"""

import os
import re

from sphinx.errors import ConfigError

ADDRESS = "ATTNCONV_REPOSITORY"
EXPECTED = r"https://github\.com/[\w.-]+/[\w.-]+"


def theme_options(address, branch):
    """Return the options of the theme for a repository; ConfigError for an unusable address."""
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


def add_buttons(app, config):
    if address := os.environ.get(ADDRESS):
        branch = os.environ.get("ATTNCONV_BRANCH") or "main"
        config.html_theme_options |= theme_options(address, branch)


def only_for_chapters(app, pagename, templatename, context, doctree):
    """Remove the launch buttons of Markdown pages, which Colab cannot open as notebooks."""
    if str(app.env.doc2path(pagename)).endswith(".md"):
        buttons = context.get("header_buttons", [])
        buttons[:] = [each for each in buttons if each.get("label") != "launch-buttons"]


def setup(app):
    app.connect("config-inited", add_buttons, priority=100)  # before the theme reads its options
    app.connect("html-page-context", only_for_chapters, priority=502)  # after the theme's own
    return {"parallel_read_safe": True, "parallel_write_safe": True}
