"""The common style of all figures, and functions that draw maps, lines and marks.

Nonnegative values are drawn in cividis, and signed values in PuOr.
"""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

SHEET = {"dpi": 120, "layout": "constrained", "facecolor": "white"}
DASHES = ("-", "--", "-.", ":")


class LineFigure(Figure):
    """A figure of line plots, shown as SVG on the pages."""

    def _repr_svg_(self) -> str:
        file = io.StringIO()
        with plt.rc_context({"svg.hashsalt": "attnconv"}):  # so that equal figures give equal files
            self.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()


def finish(figure: Figure, source: str = "") -> Figure:
    """Name the source of a figure's data below it, then close and return the figure."""
    if source:
        figure.supxlabel(source, x=0.99, ha="right", fontsize=7, color="0.35")
    plt.close(figure)  # a notebook shows the returned figure; an open figure would be shown twice
    return figure


def subplots(
    rows: int, columns: int, width: float, height: float, **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure of the given size in inches, and its axes as a `rows` x `columns` array."""
    return plt.subplots(rows, columns, figsize=(width, height), squeeze=False, **SHEET, **options)


def line_plots(
    rows: int, columns: int, width: float, height: float, grid: str = "both", **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure for line plots, and its axes as a `rows` x `columns` array.

    `grid` says which axes get light grid lines: "x", "y" or "both".
    """
    figure, axes = subplots(rows, columns, width, height, FigureClass=LineFigure, **options)
    for ax in axes.flat:
        ax.grid(color="0.92", axis=grid)
    return figure, axes


def line_plot(width: float, height: float, **options: Any) -> tuple[Figure, Axes]:
    """Return a figure for a single line plot, and its axes; see `line_plots`."""
    figure, axes = line_plots(1, 1, width, height, **options)
    return figure, axes[0, 0]


def beside(width: float, height: float, **options) -> tuple[Axes, SubFigure]:
    """Return axes that fill the left part of a new figure, and its right part as a subfigure."""
    sheet = plt.figure(figsize=(width, height), **SHEET)
    left, right = sheet.subfigures(1, 2, squeeze=False, **options)[0]
    return left.subplots(), right


def bare(ax: Axes) -> None:
    """Remove the ticks from both axes of a plot."""
    ax.set_xticks([])
    ax.set_yticks([])


def mark_query(ax: Axes, query: Sequence[int], size: float = 1.0) -> None:
    """Frame the query pixel `(row, column)` with a square whose side is `size` pixels."""
    row, column = query
    for color, width in (("white", 2.2), ("black", 1.0)):  # visible on dark and on bright pixels
        corner = column - size / 2, row - size / 2
        ax.add_patch(Rectangle(corner, size, size, fill=False, color=color, lw=width, zorder=3))


def crop(maps: Tensor, query: Sequence[int], reach: int) -> tuple[Tensor, tuple[int, int]]:
    """Return the part of maps `(..., H, W)` near a query pixel, and the query's place in that part.

    The part extends `reach` pixels from the query in each direction, or to the border of the maps.
    """
    row, column = query
    top, left = max(row - reach, 0), max(column - reach, 0)
    near = maps[..., top : row + reach + 1, left : column + reach + 1]
    return near, (row - top, column - left)


def halo(color: str) -> withStroke:
    """Return a path effect that outlines a mark in the given colour."""
    return withStroke(linewidth=2, foreground=color)


def draw_maps(
    axes: np.ndarray,
    maps: Sequence[Tensor] | Tensor,
    titles: Sequence[str] | None = None,
    query: Sequence[int] | None = None,
    limits: tuple[float | None, float | None] = (0, None),
    **title_style: Any,
) -> list[AxesImage]:
    """Draw each map `(H, W)` on one of the axes, hide the remaining axes, and return the images.

    The default `titles` are "head 1", "head 2", ...; pass () for none. `query` is the pixel to mark
    in each map. `limits` are the values at the ends of the colour scale; None stands for the
    smallest or largest value of each map.
    """
    images = []
    titles = [f"head {n + 1}" for n in range(len(maps))] if titles is None else titles
    for number, ax in enumerate(axes.flat):
        bare(ax)
        if number >= len(maps):
            ax.set_axis_off()
            continue
        content = maps[number].detach().numpy()
        images.append(ax.imshow(content, cmap="cividis", vmin=limits[0], vmax=limits[1]))
        if query is not None:
            mark_query(ax, query)
        if titles:
            ax.set_title(titles[number], **{"fontsize": 8} | title_style)
    return images


def map_grid(
    maps: Sequence[Tensor] | Tensor,
    titles: Sequence[str] | None,
    columns: int,
    cell: tuple[float, float],
    margin: tuple[float, float] = (0.0, 0.0),
    **options: Any,
) -> tuple[Figure, list[AxesImage]]:
    """Draw maps `(H, W)` in a new figure, with `columns` per row (0: all); see `draw_maps`.

    `cell` is the width and height of each map in inches; `margin` is added to the total width and
    height of the maps.
    """
    columns = min(columns or len(maps), len(maps))
    rows = -(-len(maps) // columns)
    size = cell[0] * columns + margin[0], cell[1] * rows + margin[1]
    figure, axes = subplots(rows, columns, *size)
    return figure, draw_maps(axes, maps, titles, **options)


def map_rows(
    axes: np.ndarray,
    rows: Sequence[Sequence[Tensor] | Tensor] | Tensor,
    labels: Sequence[str],
    titles: Sequence[Sequence[str] | None] = (),
    **options: Any,
) -> None:
    """Draw one list of maps on each row of axes, with a label on the left; see `draw_maps`.

    `titles` contains the titles for each row; rows beyond its end have none.
    """
    for number, (line, maps, label) in enumerate(zip(axes, rows, labels, strict=True)):
        draw_maps(line, maps, titles[number] if number < len(titles) else (), **options)
        line[0].set_ylabel(label, fontsize=8)


def draw_line(ax: Axes, x: Sequence[float] | np.ndarray, values: Any, **style: Any) -> None:
    """Draw values `(n,)`, or the mean of values `(seeds, n)` with a band that spans their range."""
    by_seed = np.atleast_2d(values)
    ax.plot(x, by_seed.mean(axis=0), **style)
    if len(by_seed) > 1:
        lowest, highest = by_seed.min(axis=0), by_seed.max(axis=0)
        ax.fill_between(x, lowest, highest, color=style["color"], alpha=0.2, lw=0)
