"""Links from a statement to its code, its fast version, its tests, its proofs and its chapter.

:::{in-code} theory.attention.multi_head_self_attention
:fast: layers.attention.attend
:test: attnconv/theory/test_attention.py::test_multi_head_self_attention_equals_torch
:proof: eq_12
:chapter: 01-attention-and-convolution
:::

The argument names functions of the theory, which compute literally what the statement says;
`:fast:` names the layers that compute the same quickly. Functions are named within `attnconv`,
tests within `tests/`, chapters within `notebooks/`, and proofs by their theorems. All options but
`:test:` may be left out. A name that does not exist raises ValueError.
"""

import ast
import importlib
import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from machinechecked import find_theorem, theorem_link
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxDirective

TESTS = Path(__file__).parents[2] / "tests"


def find_object(name: str) -> tuple[str, str]:
    """Return the file, without ending, and the name of an object like `layers.attention.attend`."""
    module, _, inside = f"attnconv.{name}".rpartition(".")
    found = getattr(importlib.import_module(module), inside, None)
    if found is None:
        raise ValueError(f"a page names {name}, but {module} has no {inside}")
    return found.__module__.replace(".", "/"), inside


def find_test(name: str) -> tuple[str, str]:
    """Return the file, without ending, and name of a test, `attnconv/test_cost.py::test_x`."""
    file, _, test = name.partition("::")
    if test not in tests_in(TESTS / file):
        raise ValueError(f"a page names the test {name}, but tests/{file} has no {test}")
    return file.removesuffix(".py"), test


def tests_in(path: Path) -> dict[str, int]:
    """Return the number of the first line, from 0, of each test of a file.

    Decorators count as lines of the test.
    """
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
    """A line of links below a statement."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = dict.fromkeys(
        ("fast", "test", "proof", "chapter"), directives.unchanged_required
    )

    def run(self) -> list[nodes.Node]:
        """Return the line, with a label and its links for each option that is given."""
        functions, fast = (
            [self._link("_modules", *find_object(name)) for name in names.split()]
            for names in (self.arguments[0], self.options.get("fast", ""))
        )
        tests = [self._link("_tests", *find_test(name)) for name in self.options["test"].split()]
        proofs = [self._theorem(name) for name in self.options.get("proof", "").split()]
        line = nodes.paragraph(classes=["in-code"])
        for label, links in (
            ("Code", functions),
            ("Fast version", fast),
            ("Test", tests),
            ("Machine-checked", proofs),
            ("Chapter", [_chapter(name) for name in self.options.get("chapter", "").split()]),
        ):
            if not links:
                continue
            part = nodes.inline("", "", nodes.strong("", label), nodes.Text(" "))
            for number, link in enumerate(links):
                part += [nodes.Text(", ") if number else nodes.Text(""), link]
            line += [part, nodes.Text(" ")]
        return [line]

    def _theorem(self, name: str) -> nodes.Node:
        find_theorem(name)
        return theorem_link(name)

    def _link(self, folder: str, file: str, name: str) -> nodes.reference:
        """Return a link to a name in the page of a source file, which is not a Sphinx document."""
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
    """Yield a page with the source of each test file, with an anchor at each test."""
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
