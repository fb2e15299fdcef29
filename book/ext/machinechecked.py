"""What is proved in `proofs/`, on its page: from each theorem's own comment and statement.

:::{machine-checked} lemma_1 lemma_1_padded
:::

The names are those of `proofs/statements.json`, which `proofs/check.py` writes from the sources;
ValueError for one that is not there.
"""

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

STATEMENTS = Path(__file__).parents[2] / "proofs" / "statements.json"
CODE = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]")  # as Coq's comments mark it


def find_theorem(name: str) -> dict[str, Any]:
    found = json.loads(STATEMENTS.read_text()).get(name)
    if found is None:
        raise ValueError(f"a page names the theorem {name}, but {STATEMENTS.name} has no {name}")
    return found


class MachineChecked(SphinxDirective):
    """Theorems, one after the other."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(STATEMENTS))
        theorems = [_theorem(name) for name in self.arguments[0].split()]
        for heading, *_ in theorems:
            self.state.document.note_explicit_target(heading)
        return [part for theorem in theorems for part in theorem]


def _theorem(name: str) -> list[nodes.Node]:
    """Its name, to link to; its sentence; its statement; what it rests on."""
    theorem = find_theorem(name)
    heading = nodes.paragraph("", "", nodes.strong("", "", nodes.literal("", name)))
    heading["ids"], heading["names"] = [name], [name.lower()]
    if theorem["title"]:
        heading += [nodes.Text(": "), *_text(theorem["title"])]
    rests = [nodes.Text("Rests on ")]
    axioms = len(theorem["axioms"])
    rests.append(nodes.Text(f"{axioms} axioms of classical logic" if axioms else "no axioms"))
    for number, other in enumerate(theorem["theorems"]):
        link = nodes.reference("", "", nodes.literal("", other), refid=other, internal=True)
        rests += [nodes.Text(", " if number else "; uses "), link]
    full = nodes.admonition("", classes=["dropdown"])
    full += nodes.title("", "In full, with what its section assumes")
    full += _coq(theorem["type"])
    return [
        heading,
        nodes.paragraph("", "", *_text(theorem["comment"])),
        _coq(theorem["statement"]),
        nodes.paragraph("", "", *rests, nodes.Text(".")),
        full,
    ]


def _coq(text: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language="coq")


def _text(sentence: str) -> list[nodes.Node]:
    """A comment, in which brackets are code."""
    parts = CODE.split(sentence)
    return [nodes.literal("", p) if n % 2 else nodes.Text(p) for n, p in enumerate(parts)]


def setup(app):
    app.add_directive("machine-checked", MachineChecked)
    return {"parallel_read_safe": True}
