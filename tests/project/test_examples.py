"""The docstring of each public function lists its parameters, and its example runs."""

import doctest
import inspect
import re

import pytest

import attnconv

FUNCTIONS = {name: getattr(attnconv, name) for name in attnconv.__all__}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_each_public_function_runs(name, capsys):
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
