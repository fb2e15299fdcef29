"""Figures of chapter 15: the movable heads of a converted CNN."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MultipleLocator
from torch import Tensor

from attnconv.layers.attention import attention_probabilities

from ...accuracy import Accuracy
from ...colors import head_color
from ...figures.style import bare, draw_line, finish, line_plot, line_plots, map_rows, subplots
from ...runs.record import RunRecord
from ...runs.select import Records
from ...specs import ARMS, SPECS
from .arms import TIER
from .measures import KERNEL, centers_of, distance_moved, kernel_layers, mass_on_nearest_pixel


def head_paths(centers: Tensor) -> Figure:
    """Draw the paths of the heads' centres `(steps, N_h, 2)` over the grid of pixel offsets.

    Each path starts at a ring with the number of the head, and ends at a disc.
    """
    figure, ax = line_plot(4.6, 4.4)
    _draw_paths(ax, centers, max(2.5, float(centers.abs().max()) + 0.4))
    for head, (row, column) in enumerate(centers[0].tolist()):
        place = {"xytext": (5, 4), "textcoords": "offset points"}
        ax.annotate(str(head + 1), (column, row), fontsize=8, color=head_color(head), **place)
    ax.set(xlabel=r"column offset $\Delta_2$", ylabel=r"row offset $\Delta_1$")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MultipleLocator(1))
    ax.grid(color="0.88")
    return finish(figure)


def _draw_paths(ax: Axes, centers: Tensor, reach: float) -> None:
    """Draw the paths of the heads' centres `(steps, N_h, 2)`, in pixels from the query.

    A path starts at a ring and ends at a disc. The dashed square encloses the pixels of a 3 x 3
    kernel. `reach` is the number of pixels shown on each side of the query.
    """
    ax.add_patch(Rectangle((-1.5, -1.5), 3, 3, fill=False, color="0.5", ls="--", lw=0.8))
    for head in range(centers.shape[1]):
        color = head_color(head)
        rows, columns = centers[:, head].T.numpy()
        ax.plot(columns, rows, color=color, lw=1)
        ax.plot(columns[0], rows[0], "o", mfc="white", mec=color, ms=5)
        ax.plot(columns[-1], rows[-1], "o", color=color, ms=6)
    ax.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal")


def layer_paths(record: RunRecord) -> Figure:
    """Draw the paths of the heads' centres during training, with a panel for each 3 x 3 layer.

    Each path has the colour of its head, starts at a ring and ends at a disc. Dots mark pixels.
    """
    layers = kernel_layers(record, "centers")  # (L, n, 9, 2)
    figure, axes = line_plots(2, -(-len(layers) // 2), 7.5, 5.4)
    reach = max(1.9, float(layers.abs().max()) + 0.2)
    around = np.arange(-int(reach), int(reach) + 1)
    for ax in axes.flat[len(layers) :]:
        ax.set_axis_off()
    for number, (ax, centers) in enumerate(zip(axes.flat, layers, strict=False), start=1):
        bare(ax)
        ax.plot(*map(np.ravel, np.meshgrid(around, around)), ".", color="0.75", ms=3, zorder=0)
        _draw_paths(ax, centers, reach)
        ax.set_title(f"3 × 3 layer {number}", fontsize=9)
    return finish(figure, record.source)


def heads_before_and_after(record: RunRecord, layer: int, side: int = 7) -> Figure:
    """Draw the attention maps of a 3 x 3 layer's heads before (top) and after training (bottom).

    `layer` counts the 3 x 3 layers from 1. The query is the middle of `side` x `side` pixels.
    """
    figure, axes = subplots(2, KERNEL**2, 7.5, 2.2)
    wanted = [n for n, c in enumerate(record.history.layers("centers")) if c.shape[1] == KERNEL**2]
    middle = side // 2
    rows = [
        attention_probabilities(record.history.encodings(moment)[wanted[layer - 1]], side, side)
        for moment in (0, -1)
    ]
    options = {"query": (middle, middle), "limits": (0, 1), "fontsize": 7}
    map_rows(axes, [maps[:, middle, middle] for maps in rows], ("start", "end"), [None], **options)
    return finish(figure, record.source)


def arm_accuracies(records: Records) -> Figure:
    """Draw each chapter 15 arm's final test accuracy, with a dot per seed and a bar at the mean."""
    records = records.at(TIER)
    arms = [arm for arm in ARMS if records.of(arm)]
    figure, ax = line_plot(7, 0.4 * len(arms) + 1, grid="x")
    for place, arm in enumerate(arms):
        runs = records.of(arm)
        color, _ = SPECS[arm].curve
        values = [record.accuracy for record in runs]
        ax.plot(values, [place] * len(values), "o", color=color, ms=5, alpha=0.7)
        ax.plot([Accuracy.of(runs).last] * 2, [place - 0.3, place + 0.3], color=color, lw=2)
    ax.set_yticks(range(len(arms)), [SPECS[arm].label for arm in arms])
    ax.set(xlabel="test accuracy", ylim=(len(arms) - 0.5, -0.5))
    return finish(figure)


def over_training(records: Records, arms: Sequence[str]) -> Figure:
    """Plot the heads' mass on the nearest pixel and the distance that they have moved, by epoch.

    Lines are means over heads, 3 x 3 layers and seeds; bands show the range over the seeds. The
    distance is measured in pixels from each head's initial position.
    """
    figure, axes = line_plots(1, 2, 7.5, 3.2)
    for arm in arms:
        if runs := records.at(TIER).of(arm):
            centers = centers_of(runs)  # (seeds, L, n, 9, 2)
            alphas = torch.stack([kernel_layers(record, "alpha") for record in runs])
            color, dashes = SPECS[arm].curve
            style = {"color": color, "linestyle": dashes, "label": SPECS[arm].label}
            measured = mass_on_nearest_pixel(centers, alphas), distance_moved(centers)
            for ax, values in zip(axes[0], measured, strict=True):
                draw_line(ax, runs[0].history.epochs.numpy(), values.mean(dim=(1, 3)), **style)
    labels = "mass on the nearest pixel", "distance from the start, pixels"
    for ax, label in zip(axes[0], labels, strict=True):
        ax.set(xlabel="epochs", ylabel=label, ylim=(0, None))
        ax.xaxis.set_major_locator(MultipleLocator(1))
    axes[0, 0].set_ylim(0, 1.02)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return finish(figure)
