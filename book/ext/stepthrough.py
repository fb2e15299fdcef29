"""Proofs and definitions of `proofs/` with a note beside each part, for readers without Coq.

:::{line-by-line} theorem_1
Theorem theorem_1 (R : realType) (Dp : nat) : (3 <= Dp)%N ->
: A note, in one line, on the lines above it.
:::

`line-by-line` shows a statement. `step-through` shows a proof sentence by sentence, with what is
left to prove after each sentence, as `proofs/check.py` recorded it; `stepper.js` turns the proof
into a panel, and without JavaScript it is a list. In both directives, the parts must together be
the file's text; otherwise, they raise ValueError. `definition` shows definitions of the files
beside its content, which explains them.
"""

import html
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from docutils.statemachine import StringList
from machinechecked import find_theorem
from sphinx.util.docutils import SphinxDirective

PROOFS = Path(__file__).parents[2] / "proofs"
sys.path.insert(0, str(PROOFS))
# Coq's names for the type of pixels and shifts
PIXELS = r"(prod_eqType int_eqType int_eqType|pair_zmodType int_ZmodType int_ZmodType)"
SCRIPT, STYLE = "stepper.js", "proofs.css"  # in book/static


class Part(NamedTuple):
    """Lines of a file, and a note on them."""

    text: str
    note: str


def parts_of(content: Sequence[str], name: str, text: str) -> list[Part]:
    """Split `content` into parts, each of them lines with a note below.

    Raises ValueError unless the lines of all parts are `text`, apart from spaces.
    """
    parts, lines = [], []
    for line in content:
        if line.startswith(": "):
            parts.append(Part("\n".join(lines), line[2:]))
            lines = []
        else:
            lines.append(line)
    shown, wanted = squeezed("\n".join(part.text for part in parts)), squeezed(text)
    if lines or shown != wanted:
        same = next((n for n, (a, b) in enumerate(zip(shown, wanted, strict=False)) if a != b), -1)
        raise ValueError(
            f"the page does not follow {name} as the file has it: the page has"
            f" {shown[max(0, same - 20) :][:80]!r}, the file {wanted[max(0, same - 20) :][:80]!r}"
            f"{'; the last lines have no note' if lines else ''}"
        )
    return parts


def squeezed(text: str) -> str:
    return " ".join(text.split())


def steps_of(name: str) -> list[dict[str, str]]:
    path = PROOFS / "goals" / f"{name}.json"
    if not path.exists():
        raise ValueError(f"a page steps through {name}, but {path.parent} has no {name}.json")
    return json.loads(path.read_text())


def definition_of(name: str) -> str:
    """Return the text of a definition. Raises ValueError if no file has it."""
    from sources import statement  # a module of `proofs`; a book without that is built, too

    for path in sorted(PROOFS.glob("*.v")):
        if found := statement(path.read_text(), name):
            return found[2].strip()
    raise ValueError(f"a page names the definition {name}, but {PROOFS} has no {name}")


class Beside(SphinxDirective):
    """Source on the left, and what it means on the right."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def note(self, text: Sequence[str]) -> nodes.container:
        meaning = nodes.container("", classes=["meaning"])
        self.state.nested_parse(StringList(list(text), ""), self.content_offset, meaning)
        return meaning

    def pair(self, code: str, text: Sequence[str]) -> nodes.container:
        block = nodes.literal_block(code, code, language="coq")
        return nodes.container("", block, self.note(text), classes=["beside"])


class LineByLine(Beside):
    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        parts = parts_of(self.content, name, find_theorem(name)["statement"])
        return [self.pair(part.text, [part.note]) for part in parts]


class Definition(Beside):
    def run(self) -> list[nodes.Node]:
        names = self.arguments[0].split()
        pair = self.pair("\n".join(map(definition_of, names)), self.content)
        pair["ids"] = [f"definition-{name}" for name in names]
        return [pair]


class StepThrough(Beside):
    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        steps = steps_of(name)
        parts = parts_of(self.content, name, " ".join(step["sentence"] for step in steps))
        count = len(steps) - 1
        said = (
            f"The proof of <code>{name}</code>, step by step: {count} sentence{'s' * (count > 1)}"
        )
        start = f'<details class="stepper" id="steps-{name}"><summary>{said}</summary><ol>'
        shown: list[nodes.Node] = [raw(start)]
        before, read, part = "", "", -1
        for step in steps:
            if part < 0 or squeezed(read) == squeezed(parts[part].text):
                read, part = "", part + 1
            read += f" {step['sentence']}"
            sentence = f'<pre class="sentence">{html.escape(step["sentence"])}</pre>'
            shown += [raw(f"<li>{sentence}"), self.note([parts[part].note])]
            shown.append(raw(f"{goals_html(step['goals'], before)}</li>"))
            before = step["goals"]
        return [*shown, raw("</ol></details>")]


def raw(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")


def goals_html(text: str, before: str) -> str:
    """Return the goals after a step of a proof as HTML.

    The current goal comes first: what is to be shown and what is known, where facts that were not
    known `before` come first, in bold. What is to be shown later follows.
    """
    text, before = (re.sub(PIXELS, "pixel", goals) for goals in (text, before))
    if "goal" not in text.partition("\n")[0] or text.startswith("No more"):
        return '<p class="done">Nothing is left to prove.</p>'
    first, *others = re.split(r"\n\s*goal \d+ is:\n", text)
    known, rule, wanted = first.partition("============================")
    if not rule:
        return '<p class="done">This case is proved.</p>' + "".join(map(_later, others))
    facts = [html.escape(fact) for fact in _facts(known)]
    old = {html.escape(fact) for fact in _facts(before.partition("=====")[0])}
    new = [f"<b>{fact}</b>" for fact in facts if fact not in old]
    listed = "\n".join([*new, *(fact for fact in facts if fact in old)])
    now = (
        f"<p>To show</p><pre>{html.escape(_dedented(wanted))}</pre><p>Known</p><pre>{listed}</pre>"
    )
    return now + "".join(map(_later, others))


def _later(goal: str) -> str:
    return f"<p>Later</p><pre>{html.escape(_dedented(goal))}</pre>"


def _facts(known: str) -> list[str]:
    """Return the variables and hypotheses of a goal, each with its continuation lines."""
    lines = known.splitlines()[1:]
    return re.findall(r"\S.*(?:\n {3,}.*)*", "\n".join(lines))


def _dedented(text: str) -> str:
    return "\n".join(
        line[2:] if line.startswith("  ") else line for line in text.splitlines()
    ).strip()


def add_files(app, pagename, templatename, context, doctree):
    """Add the script and the styles to pages that step through a proof or show the graph."""
    body = context.get("body", "")
    if 'class="stepper"' in body or 'class="statement-graph"' in body:
        app.add_js_file(SCRIPT, loading_method="defer")
        app.add_css_file(STYLE)


def setup(app):
    app.add_directive("line-by-line", LineByLine)
    app.add_directive("definition", Definition)
    app.add_directive("step-through", StepThrough)
    app.connect("html-page-context", add_files)
    return {"parallel_read_safe": True}
