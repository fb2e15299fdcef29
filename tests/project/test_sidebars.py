"""The extension that finds the sidebar's titles once changes no page."""

import sys

import pytest
from helpers import ROOT
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

sys.path.insert(0, str(ROOT / "book" / "ext"))
import sidebars

PAGES = {
    "index": "# Start\n\n```{toctree}\n:hidden:\nfirst\nsecond\n```\n\n## Aim\n",
    "first": "# First\n\n```{toctree}\n:hidden:\nbelow\n```\n\n## One\n\n### One in detail\n",
    "second": "# Second\n\nNo sections.\n",
    "below": "# Below\n\n## Three\n\n```{eval-rst}\n.. py:function:: area(radius)\n```\n",
}


def build(folder, extensions):
    """Return the pages of a small book and its environment."""
    folder.mkdir(exist_ok=True)
    (folder / "conf.py").write_text(
        f'extensions = {extensions}\nhtml_theme = "sphinx_book_theme"\nhtml_copy_source = False\n'
    )
    for name, text in PAGES.items():
        if not (folder / f"{name}.md").exists():
            (folder / f"{name}.md").write_text(text)
    with docutils_namespace():
        app = Sphinx(
            folder, folder, folder / "html", folder / "tree", "html", status=None, warning=None
        )
        app.build()
    return {name: (folder / "html" / f"{name}.html").read_text() for name in PAGES}, app.env


@pytest.mark.slow
def test_pages_are_the_same_with_and_without_it(tmp_path):
    plain, _ = build(tmp_path / "plain", ["myst_parser"])
    fast, env = build(tmp_path / "fast", ["myst_parser", "sidebars"])
    assert fast == plain
    for name, section in {"first": "one-in-detail", "below": "area"}.items():
        assert f'nav-link" href="#{section}"' in fast[name]
    assert not any(contents.next_node(sidebars.is_section) for contents in env.tocs.values())


@pytest.mark.slow
def test_a_page_keeps_its_contents_when_another_is_edited(tmp_path):
    pages = []
    for name, extensions in (("plain", ["myst_parser"]), ("fast", ["myst_parser", "sidebars"])):
        build(tmp_path / name, extensions)
        (tmp_path / name / "second.md").write_text("# Second\n\n## Four\n")
        pages.append(build(tmp_path / name, extensions)[0])
    plain, fast = pages
    assert fast == plain and "Four" in fast["second"]
