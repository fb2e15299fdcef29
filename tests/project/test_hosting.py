"""Buttons to the repository, Binder and Colab: from one setting, and none without it."""

import re
import subprocess
import sys

import pytest
import yaml
from helpers import ROOT
from sphinx.errors import ConfigError

sys.path.insert(0, str(ROOT / "book" / "ext"))
from hosting import theme_options

EXTENSIONS = ["myst_nb", "sphinx_book_theme", "hosting"]


def build(tmp_path, repository):
    """Build a page and a chapter with the book's theme; return their HTML."""
    notebook = (
        '{"cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Chapter"}],'
        ' "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},'
        ' "nbformat": 4, "nbformat_minor": 5}'
    )
    (tmp_path / "index.md").write_text("# Page\n\n```{toctree}\nchapter\n```\n")
    (tmp_path / "chapter.ipynb").write_text(notebook)
    settings = {"extensions": EXTENSIONS, "html_theme": "sphinx_book_theme"}
    lines = [f"import sys; sys.path.insert(0, {str(ROOT / 'book' / 'ext')!r})"]
    lines += [f"{name} = {value!r}" for name, value in settings.items()]
    (tmp_path / "conf.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(tmp_path), str(tmp_path / "html")]
    environment = {"PATH": "/usr/bin:/bin"} | repository
    subprocess.run(command, check=True, env=environment, timeout=300)
    return [(tmp_path / "html" / f"{name}.html").read_text() for name in ("index", "chapter")]


def hosts(html):
    """The addresses that links lead to, and those that the page itself would request."""
    links = set(re.findall(r'<a\b[^>]*\bhref="https?://([^/"]+)', html))
    requested = set(
        re.findall(r'<(?:script|link|img)\b[^>]*\b(?:src|href)="https?://([^/"]+)', html)
    )
    return links - {"sphinx-doc.org", "www.sphinx-doc.org"}, requested


def test_with_the_setting_pages_link_to_the_repository(tmp_path):
    page, chapter = build(tmp_path, {"ATTNCONV_REPOSITORY": "https://github.com/owner/name"})
    assert hosts(page) == ({"github.com"}, set())
    assert hosts(chapter) == ({"github.com", "mybinder.org", "colab.research.google.com"}, set())
    assert "/owner/name/edit/main/chapter.ipynb" in chapter


def test_without_it_no_page_links_to_another_host(tmp_path):
    assert [hosts(html) for html in build(tmp_path, {})] == [(set(), set())] * 2


@pytest.mark.parametrize("address", ["github.com/owner/name", "https://github.com/owner", "x"])
def test_other_addresses_are_refused(address):
    with pytest.raises(ConfigError, match=r"expected https://github\.com/OWNER/NAME"):
        theme_options(address, "main")


def test_the_workflow_gives_the_setting():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text())
    [step] = [s for s in workflow["jobs"]["publish"]["steps"] if s.get("run") == "make book"]
    assert step["env"] == {"ATTNCONV_REPOSITORY": "https://github.com/${{ github.repository }}"}
