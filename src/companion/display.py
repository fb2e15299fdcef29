"""Tables, notes and sliders that select pictures, for pages and notebooks."""

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets
from matplotlib.figure import Figure

from .claims.claim import VERDICTS
from .runs.record import RunRecord
from .runs.select import Records, command_of

# the numbers that a page quotes, by the names under which its text refers to them.
Numbers = dict[str, float | str]


@dataclass(frozen=True)
class Link:
    """A link in a table cell to another page of the book."""

    text: str
    address: str

    def __str__(self) -> str:
        return self.text

    def html(self) -> str:
        return f'<a href="{html.escape(self.address)}">{html.escape(self.text)}</a>'


Cell = str | tuple[str | Link, ...]


@dataclass(frozen=True)
class Table:
    """A table of text with a header, shown as HTML in a page and as Markdown elsewhere.

    `name` is its anchor in a page, and `caption` ends with the source of the numbers. `folded` is
    for tables that few readers need: a page collapses the table and labels it with this text,
    unless it is "". `stacked` is for cells that contain sentences: on a narrow screen, the cells of
    a row are shown one below another. With a label `more`, a page shows the first `shown` columns
    and collapses the others below each row, under this label.
    """

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: str = ""
    stacked: bool = False
    shown: int = 0
    more: str = ""

    @classmethod
    def of(
        cls, name: str, caption: str, rows: Sequence[Mapping[str, Cell]], **options: Any
    ) -> "Table":
        """Make a table from rows that map column names to cells; a missing cell becomes `-`."""
        header = list(dict.fromkeys(column for row in rows for column in row))
        cells = [[row.get(column, "-") for column in header] for row in rows]
        return cls(name, caption, header, cells, **options)

    def _repr_html_(self) -> str:
        if self.folded:
            whole = replace(self, folded="")._repr_html_()
            return f"<details><summary>{html.escape(self.folded)}</summary>{whole}</details>"
        kind = "table stacked" if self.stacked else "table"
        shown = self.header[: self.shown] if self.more else self.header
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in shown)
        body = "".join(self._row_html(row) for row in self.rows)
        return (
            f'<figure class="made-table" id="{self.name}"><div class="table-scroll" tabindex="0"'
            f' role="region" aria-label="{html.escape(self.name)}"><table class="{kind}">'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
            f"<figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )

    def _row_html(self, row: Sequence[Cell]) -> str:
        first, *cells = map(_cell_html, row)
        shown = self.shown - 1 if self.more else len(cells)
        visible = "".join(f"<td>{cell}</td>" for cell in cells[:shown])
        whole = f'<tr><th scope="row">{first}</th>{visible}</tr>'
        if not self.more:
            return whole
        names = map(html.escape, self.header[self.shown :])
        rest = zip(names, cells[shown:], strict=True)
        terms = "".join(f"<dt>{name}</dt><dd>{cell}</dd>" for name, cell in rest)
        details = f"<details><summary>{html.escape(self.more)}</summary><dl>{terms}</dl></details>"
        return f'{whole}<tr class="aside"><td colspan="{self.shown}">{details}</td></tr>'

    def markdown(self) -> str:
        """Return the table as Markdown, followed by its caption."""
        rows = [[text_of(cell) for cell in row] for row in self.rows]
        lines = [self.header, ["---"] * len(self.header), *rows]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines) + f"\n{self.caption}\n"

    def __repr__(self) -> str:
        return self.markdown()


def text_of(cell: Cell) -> str:
    """Return the content of a table cell as plain text."""
    return cell if isinstance(cell, str) else ", ".join(map(str, cell))


def _cell_html(cell: Cell) -> str:
    if isinstance(cell, str):
        text = html.escape(cell)
        return f'<span class="verdict {text}">{text}</span>' if cell in VERDICTS else text
    return ", ".join(part.html() if isinstance(part, Link) else html.escape(part) for part in cell)


def knob(name: str, pictures: Mapping[str, Figure], start: int = 0) -> ipywidgets.VBox:
    """Return a slider that selects one of several pictures and works in a page without a kernel.

    `pictures` maps the slider's values to figures, which are drawn beforehand; `start` is the index
    of the figure shown first. Each picture's alternative text consists of `name` and its value.
    """
    shown = [
        ipywidgets.HTML(_image(f"{name} {value}", figure)) for value, figure in pictures.items()
    ]
    stack = ipywidgets.Stack(shown, selected_index=start)
    slider = ipywidgets.SelectionSlider(
        options=list(pictures),
        index=start,
        description=name,
        style={"description_width": "initial"},
        layout={"width": "24rem", "max_width": "100%"},
    )
    ipywidgets.jslink((slider, "index"), (stack, "selected_index"))
    return ipywidgets.VBox([slider, stack])


def png_of(figure: Figure) -> bytes:
    """Return the content of a PNG file that shows a figure; equal figures give equal bytes."""
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def _image(alt: str, figure: Figure) -> str:
    data = base64.b64encode(png_of(figure)).decode()
    style = "max-width: 100%; height: auto"
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}" style="{style}">'


@dataclass(frozen=True)
class Note:
    """A note made of sentences, some with a command, shown as HTML in a page and as text elsewhere.

    A page can link to a sentence by its anchor, which consists of the prefix `anchor` and the
    sentence; if `anchor` is "", the sentences have no anchors.
    """

    lines: tuple[tuple[str, str], ...]
    anchor: str = ""

    @classmethod
    def of(cls, text: str, command: str = "") -> "Note":
        """Make a note from a single sentence and, optionally, a command."""
        return cls(((text, command),))

    def _repr_html_(self) -> str:
        return f'<div class="note">{"".join(self._line(*line) for line in self.lines)}</div>'

    def _line(self, text: str, command: str) -> str:
        # a page breaks a long command between the spans
        words = " ".join(f"<span>{html.escape(word)}</span>" for word in command.split())
        copied = f'<div class="highlight"><pre>{words}</pre></div>' if command else ""
        name = f' id="{html.escape(self.anchor + text)}"' if self.anchor else ""
        return f"<p{name}>{html.escape(text)}</p>{copied}"

    def __repr__(self) -> str:
        return "\n".join(f"{text} {command}".strip() for text, command in self.lines)


def glue_all(numbers: Numbers) -> None:
    """Make numbers available to the text of the page that is being built, under their names."""
    from myst_nb import glue  # only needed, and installed, where the book is built

    for name, value in numbers.items():
        glue(name, value, display=False)


def commands_of(runs: Sequence[RunRecord]) -> Note:
    """Return a note with the command that repeats each run; the anchor of a run is `run-NAME`."""
    return Note(tuple((record.name, command_of(record)) for record in runs), anchor="run-")


def figure_or_note(records: Records, draw: Callable[[RunRecord], Any], model: str) -> Any:
    """Return a drawing of a model's first run, or a note that says how to create its record."""
    if runs := records.of(model):
        return draw(runs[0])
    text = f"{records.name}, {model} on CIFAR-10: {records.state(model)}. This command creates the"
    text += " record on a GPU:" if records.tier == "paper" else " record:"
    return Note.of(text, records.command(model))


def tier_note(records: Records, *models: str) -> Note:
    """Return a note that names the tier a chapter shows and says how to run the paper tier."""
    tier = records.tier if any(map(records.of, models)) else "quick"
    text = f"Figures and tables show the {tier} tier"
    text += "".join(
        f"; {model} on digits ({records.name}: {records.state(model)})"
        for model in models
        if not records.of(model)
    )
    text += "".join(
        f"; {model}: {records.state(model)}"
        for model in models
        if records.of(model) and records.state(model)
    )
    missing = missing_on_paper(records, *models)
    more, command = missing.lines[0] if missing else ("", "")
    return Note.of(f"{text}. {more}".strip(), command)


def missing_on_paper(records: Records, *models: str) -> Note | None:
    """Return a note that lists the models not run in the paper tier, or None if there are none."""
    paper = records.at("paper")
    if not (missing := [model for model in models if not paper.of(model)]):
        return None
    text = (
        "The paper tier (the paper's sizes, 300 epochs, a GPU) has not been run for"
        f" {', '.join(missing)}. The command for the first is:"
    )
    return Note.of(text, paper.command(missing[0]))
