"""What a table is: HTML in a page, Markdown elsewhere."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Table:
    """Cells of text under a header. `name` is its anchor in a page, `caption` ends with its source.

    `folded`: a line to open the table by in a page, where it is of use to few; "" shows it.
    `stacked`: cells of sentences, which a page sets one below another on a narrow screen.
    """

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: str = ""
    stacked: bool = False

    @classmethod
    def of(
        cls, name: str, caption: str, rows: Sequence[Mapping[str, str]], **options: Any
    ) -> "Table":
        """From rows that name their cells; `-` stands where a row lacks one of the others'."""
        header = list(dict.fromkeys(column for row in rows for column in row))
        cells = [[row.get(column, "-") for column in header] for row in rows]
        return cls(name, caption, header, cells, **options)

    def _repr_html_(self) -> str:
        if self.folded:
            whole = replace(self, folded="")._repr_html_()
            return f"<details><summary>{html.escape(self.folded)}</summary>{whole}</details>"
        kind = "table stacked" if self.stacked else "table"
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in self.header)
        body = "".join(self._line(row) for row in self.rows)
        return (
            f'<figure class="made-table" id="{self.name}"><div class="table-scroll" tabindex="0"'
            ' role="region"'
            f' aria-label="{html.escape(self.name)}"><table'
            f' class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
            f"</table></div><figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )

    def _line(self, row: Sequence[str]) -> str:
        first, *others = (html.escape(cell) for cell in row)
        return (
            f'<tr><th scope="row">{first}</th>'
            + "".join(f"<td>{cell}</td>" for cell in others)
            + "</tr>"
        )

    def markdown(self) -> str:
        """The table in Markdown, its caption below."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines) + f"\n{self.caption}\n"

    def __repr__(self) -> str:
        return self.markdown()
