"""From a statement to its code: the function's source, its test and its chapter, one click each,
and all of them there.

:::{in-code} theory.attention.convolution layers.attention.attend
:test: test_attention.py::test_convolution_equals_torch
:proof: eq_12
:chapter: 01-attention-and-convolution
:::

Functions are named within `attnconv`, tests within `tests/`, chapters within `notebooks/`, proofs,
if there are, by their theorems; ValueError for one that is not there.
"""

import ast
import importlib
import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from machinechecked import find_theorem
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxDirective

TESTS = Path(__file__).parents[2] / "tests"


def find_object(name: str) -> tuple[str, str]:
    """`layers.attention.attend` as its file, without the ending, and its name in there."""
    module, _, inside = f"attnconv.{name}".rpartition(".")
    found = getattr(importlib.import_module(module), inside, None)
    if found is None:
        raise ValueError(f"a page names {name}, but {module} has no {inside}")
    return found.__module__.replace(".", "/"), inside


def find_test(name: str) -> tuple[str, str]:
    """`layers/test_attention_layers.py::test_x` as its file, without the ending, and the test."""
    file, _, test = name.partition("::")
    if test not in tests_in(TESTS / file):
        raise ValueError(f"a page names the test {name}, but tests/{file} has no {test}")
    return file.removesuffix(".py"), test


def tests_in(path: Path) -> dict[str, int]:
    """The tests of a file with the number of the line, from 0, where each begins, decorators
    included."""
    found = (
        [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        if path.exists()
        else []
    )
    return {
        node.name: min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        for node in found
        if node.name.startswith("test_")
    }


class InCode(SphinxDirective):
    """One line below a statement."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = dict.fromkeys(
        ("test", "proof", "chapter"), directives.unchanged_required
    )

    def run(self) -> list[nodes.Node]:
        """Code: the functions. Test: the tests. Machine-checked: theorems. Chapter: its number."""
        functions = [
            self._link("_modules", *find_object(name)) for name in self.arguments[0].split()
        ]
        tests = [self._link("_tests", *find_test(name)) for name in self.options["test"].split()]
        proofs = [self._theorem(name) for name in self.options.get("proof", "").split()]
        line = nodes.paragraph(classes=["in-code"])
        for label, links in (
            ("Code", functions),
            ("Test", tests),
            ("Machine-checked", proofs),
            ("Chapter", [_chapter(self.options["chapter"])]),
        ):
            if not links:
                continue
            part = nodes.inline("", "", nodes.strong("", label), nodes.Text(" "))
            for number, link in enumerate(links):
                part += [nodes.Text(", ") if number else nodes.Text(""), link]
            line += [part, nodes.Text(" ")]
        return [line]

    def _theorem(self, name: str) -> nodes.reference:
        find_theorem(name)
        return self._link("book", "proofs", name)

    def _link(self, folder: str, file: str, name: str) -> nodes.reference:
        """To a name in the page of a source file, which is no document of Sphinx's."""
        up = "../" * self.env.docname.count("/")
        return nodes.reference(
            "",
            "",
            nodes.literal("", name),
            refuri=f"{up}{folder}/{file}.html#{name}",
            internal=True,
        )


def _chapter(name: str) -> pending_xref:
    number = nodes.inline("", re.match(r"0*(\d+)", name)[1])
    target = {"refdomain": "std", "reftype": "doc", "reftarget": f"/notebooks/{name}"}
    return pending_xref("", number, **target, refexplicit=True, refwarn=True)


def test_pages(app):
    """A page with the source of each test file, each test a place in it."""
    for path in sorted(TESTS.rglob("test_*.py")):
        name = path.relative_to(TESTS).with_suffix("").as_posix()
        block = app.builder.highlighter.highlight_block(path.read_text(), "python")
        start, mark, code = block.partition("<pre>")
        lines = code.splitlines()
        for test, number in tests_in(path).items():
            lines[number] = f'<span id="{test}"></span>{lines[number]}'
        body = f"<h1>tests/{name}.py</h1>{start}{mark}" + "\n".join(lines)
        yield (
            f"_tests/{name}",
            {"parents": [], "title": f"tests/{name}.py", "body": body},
            "page.html",
        )


def setup(app):
    app.add_directive("in-code", InCode)
    app.connect("html-collect-pages", test_pages)
    return {"parallel_read_safe": True}
