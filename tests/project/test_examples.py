"""The API pages serve users of the public functions.

The docstring of each function lists its parameters, its example runs, and pages link to it.
"""

import doctest
import inspect
import pkgutil
import re

import pytest
from helpers import ROOT

import attnconv

FUNCTIONS = {name: getattr(attnconv, name) for name in attnconv.__all__}
PAGES = [*ROOT.glob("book/**/*.md"), *ROOT.glob("notebooks/*.ipynb")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_each_public_function_runs(name, capsys):
    if name == "init_as_convolution":
        pytest.importorskip("timm")
    found = doctest.DocTestFinder(recurse=False).find(FUNCTIONS[name], name, globs={})
    assert any(name in example.source for test in found for example in test.examples)
    doctest.DocTestRunner().run(found[0])
    assert not (printed := capsys.readouterr().out), printed


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_of_each_public_function_lists_its_parameters(name):
    text = inspect.getdoc(FUNCTIONS[name])
    sections = dict(re.findall(r"^(Args|Returns|Raises):\n((?:    .*\n)+)", text, re.M))
    assert list(sections) == ["Args", "Returns", "Raises"]
    listed = [item.lstrip("*") for item in re.findall(r"^    (\S+): ", sections["Args"], re.M)]
    assert listed == list(inspect.signature(FUNCTIONS[name]).parameters)


def test_links_to_the_api_pages_name_what_is_defined_there():
    """Sphinx is silent about a link without a target, because signatures name types of others."""
    text = "".join(page.read_text() for page in PAGES)
    targets = set(re.findall(r"\{py:\w+\}`[^`<]+<([^`>]+)>`", text))
    assert len(targets) > 15 and text.count("{py:") == len(re.findall(r"\{py:\w+\}`[^`<]+<", text))
    for target in targets:
        found = pkgutil.resolve_name(target)
        assert inspect.ismodule(found) or found.__module__ == target.rpartition(".")[0], target


def test_each_section_on_the_use_of_the_package_links_the_first_mention_of_a_function():
    page = (ROOT / "book" / "use.md").read_text()
    prose = re.sub(r"^```\{code-cell\}.*?^```$", "", page, flags=re.M | re.S)
    mentions = [
        found
        for section in prose.split("\n## ")
        for name in FUNCTIONS
        if (found := re.search(rf"(\{{py:func\}})?`(attnconv\.)?{name}\b", section))
    ]
    assert len(mentions) > 10
    assert not [found[0] for found in mentions if not found[1]]
