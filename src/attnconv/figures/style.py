"""How every figure looks: size, ground, what is marked, and how it ends. cividis for amounts, PuOr
for signed values."""

import io
from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from ..models.specs import head_color

SHEET = {"dpi": 120, "layout": "constrained", "facecolor": "white"}


class LineFigure(Figure):
    """A figure of lines: a page shows it as SVG, sharp at any size."""

    def _repr_svg_(self) -> str:
        file = io.StringIO()
        with plt.rc_context({"svg.hashsalt": "attnconv"}):  # the same figure gives the same file
            self.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()


def finish(figure: Figure, source: str = "") -> Figure:
    """Close the figure, with a line under it that tells what it was drawn from."""
    if source:
        figure.supxlabel(source, x=0.99, ha="right", fontsize=7, color="0.35")
    plt.close(figure)  # the notebook shows what a cell returns; left open it would be shown twice
    return figure


def subplots(
    rows: int, columns: int, width: float, height: float, lines: bool = False, **options
) -> tuple[Figure, np.ndarray]:
    form = {"figsize": (width, height), "FigureClass": LineFigure if lines else Figure} | SHEET
    return plt.subplots(rows, columns, squeeze=False, **form, **options)


def beside(width: float, height: float, **options) -> tuple[Axes, SubFigure]:
    """A sheet in two parts: axes on the left, and what takes more of them on the right."""
    sheet = plt.figure(figsize=(width, height), **SHEET)
    left, right = sheet.subfigures(1, 2, squeeze=False, **options)[0]
    return left.subplots(), right


def first_of(axes: np.ndarray, count: int) -> Iterator[Axes]:
    """The first axes of a grid, bare, for as many maps; what is left of the grid is not drawn."""
    for number, ax in enumerate(axes.flat):
        bare(ax)
        if number < count:
            yield ax
        else:
            ax.set_axis_off()


def bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])


def mark_query(ax: Axes, query: Sequence[int], size: float = 1.0) -> None:
    row, column = query
    for color, width in (("white", 2.2), ("black", 1.0)):  # seen on dark pixels and on bright ones
        corner = column - size / 2, row - size / 2
        ax.add_patch(Rectangle(corner, size, size, fill=False, color=color, lw=width, zorder=3))


def halo(color: str) -> withStroke:
    return withStroke(linewidth=2, foreground=color)


def draw_paths(ax: Axes, centers: Tensor, reach: float) -> None:
    """Ways of heads `(moments, N_h, 2)`, in pixels: start as a ring, end as a disc; dashed: the
    square of a 3 x 3 kernel's pixels."""
    ax.add_patch(Rectangle((-1.5, -1.5), 3, 3, fill=False, color="0.5", ls="--", lw=0.8))
    for head in range(centers.shape[1]):
        color, (rows, columns) = head_color(head), centers[:, head].T.numpy()
        ax.plot(columns, rows, color=color, lw=1)
        ax.plot(columns[0], rows[0], "o", mfc="white", mec=color, ms=5)
        ax.plot(columns[-1], rows[-1], "o", color=color, ms=6)
    ax.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal")
