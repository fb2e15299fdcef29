"""Pages that show what is proved in `proofs/`, made from each theorem's comment and statement.

:::{machine-checked} lemma_1 lemma_1_padded
:::

The names are those of `proofs/statements.json`, which `proofs/check.py` writes from the sources;
any other name raises ValueError. `{statement-graph}` draws all theorems, each on its own line below
the theorems that it uses. An address such as `#graph=lemma_1` narrows the graph to the theorems
around one.
"""

import html
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxDirective

STATEMENTS = Path(__file__).parents[2] / "proofs" / "statements.json"
BOOK = Path(__file__).parents[1]
OVERVIEW = "proofs.html"  # the page with the graph
CODE = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]")  # as Coq's comments mark it


def find_theorem(name: str) -> dict[str, Any]:
    found = json.loads(STATEMENTS.read_text()).get(name)
    if found is None:
        raise ValueError(f"a page names the theorem {name}, but {STATEMENTS.name} has no {name}")
    return found


class MachineChecked(SphinxDirective):
    """Several theorems, one after the other."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(STATEMENTS))
        theorems = [_theorem(name) for name in self.arguments[0].split()]
        for heading, *_ in theorems:
            self.state.document.note_explicit_target(heading)
        return [part for theorem in theorems for part in theorem]


def _theorem(name: str) -> list[nodes.Node]:
    """Return a theorem's name with an anchor, its comment, what it rests on, and its statement."""
    theorem = find_theorem(name)
    heading = nodes.paragraph("", "", nodes.strong("", "", nodes.literal("", name)))
    heading["ids"], heading["names"] = [name], [name.lower()]
    if theorem["title"]:
        heading += [nodes.Text(": "), *_text(theorem["title"])]
    rests = [nodes.Text("Rests on ")]
    axioms = len(theorem["axioms"])
    rests.append(nodes.Text(f"{axioms} axioms" if axioms else "no axioms"))
    for number, other in enumerate(theorem["theorems"]):
        rests += [nodes.Text(", " if number else "; uses "), theorem_link(other)]
    address = f"{OVERVIEW}#graph={name}"
    graph = nodes.reference("", "in the graph", refuri=address, internal=True)
    stated = nodes.admonition("", classes=["dropdown"])
    stated += nodes.title("", f"{name} as Coq reads it")
    stated += _coq("\n".join(filter(None, (theorem["section"], theorem["statement"]))))
    stated += nodes.paragraph("", "In full, as Coq prints it:")
    stated += _coq(theorem["type"])
    return [
        heading,
        nodes.paragraph("", "", *_text(theorem["comment"])),
        nodes.paragraph("", "", *rests, nodes.Text(" ("), graph, nodes.Text(").")),
        stated,
    ]


def theorem_link(name: str) -> nodes.Node:
    """Return a link to a theorem, on whichever page shows it."""
    options = {"refdomain": "std", "reftype": "ref", "reftarget": name.lower()}
    return pending_xref("", nodes.literal("", name), refexplicit=True, refwarn=True, **options)


def pages() -> dict[str, str]:
    """Return the file name of the page that shows each theorem."""
    shown = re.compile(r"^:::\{machine-checked\} (.+)$", re.MULTILINE)
    return {
        name: f"{page.stem}.html"
        for page in BOOK.glob("proofs*.md")
        for names in shown.findall(page.read_text())
        for name in names.split()
    }


def _coq(text: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language="coq")


def _text(sentence: str) -> list[nodes.Node]:
    """Return the nodes of a comment, in which brackets enclose code."""
    parts = CODE.split(sentence)
    return [nodes.literal("", p) if n % 2 else nodes.Text(p) for n, p in enumerate(parts)]


class StatementGraph(SphinxDirective):
    """The graph of all theorems and of what each uses, drawn from the recorded dependencies."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(STATEMENTS))
        for page in BOOK.glob("proofs*.md"):
            self.env.note_dependency(str(page))
        drawn = graph(json.loads(STATEMENTS.read_text()), pages())
        return [nodes.raw("", drawn, format="html")]


STEP, LINE, MARGIN = 18, 24, 12  # pixels between lanes, between lines, around


def graph(theorems: dict[str, dict[str, Any]], pages: Mapping[str, str]) -> str:
    """Return an SVG with a line for each theorem.

    The line has the theorem's mark, curves from the theorems that it uses directly, and its name,
    which links to its page. Raises ValueError if a theorem stands above one that it uses.
    """
    direct = {
        name: _used_directly(theorem["theorems"], theorems) for name, theorem in theorems.items()
    }
    lanes = _lanes(direct)
    place = {
        name: (MARGIN + STEP * lanes[name], MARGIN + LINE * row)
        for row, name in enumerate(theorems)
    }
    column = MARGIN + STEP * (max(lanes.values()) + 1)
    edges = [
        _edge(f"{other} {name}", *place[other], *place[name])
        for name in theorems
        for other in direct[name]
    ]
    marks = [
        _mark(f"{pages[name]}#{name}", name, theorem, *place[name], column)
        for name, theorem in theorems.items()
    ]
    width = column + 9 * max(map(len, theorems))
    size = f'viewBox="0 0 {width} {2 * MARGIN + LINE * (len(theorems) - 1)}"'
    about = f'aria-label="{len(theorems)} theorems, and which uses which"'
    drawn = "".join(edges + marks)
    svg = f'<svg class="statement-graph" role="group" {about} {size} width="{width}">{drawn}</svg>'
    whole = '<a id="graph=all" href="#graph=all" hidden>Show all theorems</a>'
    return f'<div class="graph-of-statements">{whole}{svg}</div>'


def _lanes(direct: dict[str, list[str]]) -> dict[str, int]:
    """Return each mark's column, to the right of all that it uses and clear of passing lines."""
    row = {name: number for number, name in enumerate(direct)}
    last = {used: row[name] for name, all_used in direct.items() for used in all_used}
    lanes: dict[str, int] = {}
    for name, used in direct.items():
        if late := set(used) - lanes.keys():
            raise ValueError(f"{name} stands above {', '.join(sorted(late))}, which it uses")
        taken = {lane for other, lane in lanes.items() if last.get(other, -1) >= row[name]}
        first = 1 + max((lanes[other] for other in used), default=-1)
        lanes[name] = next(lane for lane in itertools.count(first) if lane not in taken)
    return lanes


def _used_directly(used: list[str], theorems: dict[str, dict[str, Any]]) -> list[str]:
    """Return the theorems in `used` that no other theorem in `used` uses."""
    return [n for n in used if not any(n in theorems[other]["theorems"] for other in used)]


def _edge(ends: str, x0: int, y0: int, x1: int, y1: int) -> str:
    """Return a curve straight down from the upper mark, then to the lower mark from its left."""
    return f'<path data-ends="{ends}" d="M{x0} {y0} V{y1 - LINE / 2} Q{x0} {y1} {x1} {y1}"/>'


def _mark(address: str, name: str, theorem: dict[str, Any], x: int, y: int, column: int) -> str:
    """Return a theorem's mark and name, as a link.

    The mark is full if the theorem uses no axioms and hollow if it uses those of classical logic.
    For a refutation, it is a diamond.
    """
    kinds = "classical" if theorem["axioms"] else "bare"
    if name.endswith("_refuted"):
        kinds += " refuted"
        mark = f'<path class="mark" d="M{x - 6} {y} l6 -6 6 6 -6 6z"/>'
    else:
        mark = f'<circle class="mark" cx="{x}" cy="{y}" r="5"/>'
    leader = f'<path class="leader" d="M{x + 9} {y} H{column - 6}"/>'
    text = f'<text x="{column}" y="{y}">{html.escape(name)}</text>'
    uses = f'id="graph={name}" data-uses="{" ".join(theorem["theorems"])}"'
    return f'<a class="{kinds}" href="{address}" {uses}>{leader}{mark}{text}</a>'


def setup(app):
    app.add_directive("machine-checked", MachineChecked)
    app.add_directive("statement-graph", StatementGraph)
    app.setup_extension("stepthrough")
    return {"parallel_read_safe": True}
