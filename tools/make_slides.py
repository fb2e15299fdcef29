"""Build the slides of a talk in _build/slides from tools/talk.md, offline: `make slides`.

Slides are separated by `---`; `Note:` begins the speaker's notes; `{scene} heads` shows a scene of
the explorer's stage in a frame. Code cells run in order in one namespace. The value of a cell's
last line is shown: a figure (the cell's first line, `# alt: ...`, describes it for screen readers)
or a table. `{{expression:format}}` in the text is replaced with the value of the expression, so
that no number is typed by hand.
"""

import ast
import html
import json
import re
import shutil
import sys
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from matplotlib.figure import Figure
from mdit_py_plugins.dollarmath import dollarmath_plugin

from companion.explorer import page_html
from companion.explorer.payload import stage_payload
from companion.store import write_file

ROOT = Path(__file__).resolve().parents[1]
TALK = Path(__file__).with_name("talk.md")
SLIDES = ROOT / "_build" / "slides"
VENDOR = ROOT / "book" / "vendor"
FILES = ("reveal/reveal.js", "reveal/reveal.css", "reveal/notes.js", "mathjax/tex-svg-full.js")
SCENES = {"heads": "Scene 1: nine heads", "descent": "Scene 2: gradient descent"}
CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```\n", re.M | re.S)
FRAME = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="talk.css"></head>
<body class="frame"><div class="stage-host">{view}</div>
<script>
  addEventListener("keydown", ({{ key }}) => key === "Escape" && parent.postMessage("leave", "*"));
</script>
</body></html>"""


def markdown():
    def formula(tex, options):
        return html.escape(f"\\[{tex}\\]" if options["display_mode"] else f"\\({tex}\\)")

    return MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, renderer=formula)


class Talk:
    """The slides as HTML, and the figures, made while the cells run in order."""

    def __init__(self):
        self.names, self.figures, self.text = {}, [], markdown()

    def value(self, code):
        """Run a cell; return the value of its last line, or None if that is not an expression."""
        tree = ast.parse(code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, TALK.name, "exec"), self.names)
        expression = last and compile(ast.Expression(last.value), TALK.name, "eval")
        return expression and eval(expression, self.names)

    def shown(self, code):
        """Run a cell and return its value as HTML."""
        value = self.value(code)
        if isinstance(value, Figure):
            if not (alt := re.match("# alt: (.*)", code)):
                raise ValueError(f"a figure has no text; begin its cell with `# alt: ...`:\n{code}")
            name = f"figure-{len(self.figures) + 1}.svg"
            value.savefig(SLIDES / name, format="svg")
            self.figures.append(name)
            return f'<p class="figure"><img src="{name}" alt="{html.escape(alt[1])}"></p>'
        return "" if value is None else value._repr_html_()

    def filled(self, text):
        """Replace each {{expression:format}} with its value."""
        return re.sub(
            r"\{\{(.+?)\}\}(?!\})", lambda found: eval(f"f'''{{{found[1]}}}'''", self.names), text
        )

    def slide(self, source):
        """Return a slide as HTML."""
        source, _, notes = source.partition("\nNote:")
        source = re.sub(r"(?m)^\{scene\} (\w+)$", lambda found: frame(found[1]), source)
        parts = CELL.split(source)  # text and cells alternate
        made = [
            self.shown(part) if n % 2 else self.text.render(self.filled(part))
            for n, part in enumerate(parts)
        ]
        notes = self.text.render(self.filled(notes))
        return f'<section>{"".join(made)}<aside class="notes">{notes}</aside></section>\n'


def frame(scene):
    """Write the page of a scene of the stage, and return a frame that shows it.

    While the frame has the focus, it receives the keys; Escape leaves it.
    """
    view = page_html("stage", stage_payload(scene).data, "This scene needs JavaScript.")
    page = FRAME.format(title=SCENES[scene], view=view)
    write_file(SLIDES / f"{scene}.html", page.encode())
    return f'<iframe title="{SCENES[scene]}" data-src="{scene}.html" data-preload></iframe>'


def build():
    """Write the slides and all files that they load; return the number of slides."""
    shutil.rmtree(SLIDES, ignore_errors=True)
    SLIDES.mkdir(parents=True)
    for name in FILES:
        shutil.copy(VENDOR / name, SLIDES)
    for name in ("talk.css", "talk.js"):
        shutil.copy(TALK.with_name(name), SLIDES)
    talk = Talk()
    slides = [talk.slide(source) for source in re.split(r"(?m)^---\n", TALK.read_text())]
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    formulas = json.dumps(config["sphinx"]["config"]["mathjax3_config"])
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(config["title"])}: a talk</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="reveal.css"><link rel="stylesheet" href="talk.css">
<script>window.MathJax = {formulas};</script><script defer src="tex-svg-full.js"></script></head>
<body><div class="reveal"><div class="slides">
{"".join(slides)}</div></div>
<script src="reveal.js"></script><script src="notes.js"></script><script src="talk.js"></script>
</body></html>
"""
    write_file(SLIDES / "index.html", page.encode())
    return len(slides)


if __name__ == "__main__":
    number = build()
    print(f"== slides: {number} in {SLIDES.relative_to(ROOT)}/index.html", file=sys.stderr)
