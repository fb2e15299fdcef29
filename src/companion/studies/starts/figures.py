"""The figures of chapters 17 and 18: accuracy for each start, and heads of rotary encodings."""

from collections.abc import Sequence
from statistics import mean

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from attnconv.theory.rotary import axial_frequencies, rotary_biases, rotary_gap, rotary_scores

from ...figures.style import DASHES, draw_line, draw_maps, finish, line_plots, subplots
from ...runs.select import Records
from ...specs import SPECS, VITS
from .measures import PAIRS

BY_START = "vit-10k"
WIDTHS = dict(zip(PAIRS["lasts"], (1.0, 2.2), strict=True))
SIDE, QUERY = 15, (8, 5)  # of the image with heads of rotary encodings, in pixels
BASES = [10 ** (1 + n / 8) for n in range(25)]  # from 10 to 10,000


def starts(records: Records) -> Figure:
    """Plot the test accuracy of each start on 10,000 training images, and accuracy by epoch.

    On the left, each disc is one seed, and each bar is a mean over seeds. On the right, each line
    is a mean over seeds with a band that spans their range. Thin lines show runs of 20 epochs, and
    thick lines show runs of 100 epochs.
    """
    figure, axes = line_plots(1, 2, 9.5, 3.6)
    by_start, by_epoch = axes.flat
    _draw_by_start(by_start, records.at(BY_START))
    for tier, width in WIDTHS.items():
        for model in ("vit-default", "vit-convolution"):
            runs = records.at(tier).of(model)
            if runs:
                accuracies = [[epoch["test_accuracy"] for epoch in run.metrics] for run in runs]
                epochs = range(1, len(accuracies[0]) + 1)
                color = SPECS[model].curve[0]
                label = f"{SPECS[model].label}, {len(epochs)} epochs"
                draw_line(by_epoch, epochs, accuracies, color=color, lw=width, label=label)
    by_epoch.set(xlabel="epoch", ylabel="test accuracy")
    if by_epoch.lines:
        by_epoch.legend(fontsize=8)
    return finish(figure)


def _draw_by_start(ax: Axes, records: Records) -> None:
    runs = {SPECS[model].label: records.of(model) for model in VITS}
    runs = {label: found for label, found in runs.items() if found}
    for row, found in enumerate(runs.values()):
        accuracies = [run.accuracy for run in found]
        color = SPECS[found[0].info.parameters["model"]].curve[0]
        ax.plot(accuracies, [row] * len(accuracies), "o", color=color, ms=5, alpha=0.7)
        ax.plot(mean(accuracies), row, "|", color=color, ms=16, mew=2)
    ax.set(xlabel="test accuracy after the last epoch", ylim=(len(runs) - 0.5, -0.5))
    ax.set_yticks(range(len(runs)), runs)


def sums_of_cosines(dims: Sequence[int], offset: tuple[int, int], alpha: float) -> Figure:
    """Draw attention maps of heads with axial rotary encodings, and the gap by base.

    The image has 15 x 15 pixels. Above, a map for each head dimension in `dims`, with the base 100,
    the head's `offset` and a lead of `alpha` over the second-best pixel. Below, the gap for these
    and further dimensions; see `rotary_gap`.
    """
    figure, axes = subplots(2, len(dims), 5.8, 4.6)
    on_maps = axes[0]
    for ax in axes[1]:
        ax.remove()
    by_base = figure.add_subplot(axes[1, 0].get_gridspec()[1, :])
    maps = [rotary_map(dim, offset, alpha) for dim in dims]
    titles = [f"{dim // 4} frequenc{'y' if dim == 4 else 'ies'} per axis" for dim in dims]
    limits = (0, float(torch.stack(maps).max()))
    draw_maps(on_maps, maps, titles, query=QUERY, limits=limits)
    shown = sorted({*dims, 8, 32}, reverse=True)
    for number, dim in enumerate(shown):
        gaps = [rotary_gap(axial_frequencies(dim, base), SIDE, SIDE) for base in BASES]
        color = colormaps["viridis"](0.9 * number / len(shown))
        style = {"color": color, "linestyle": DASHES[number % 4], "label": str(dim)}
        draw_line(by_base, BASES, gaps, **style)
    by_base.set(xscale="log", yscale="log", xlabel="base", ylabel="gap γ")
    by_base.grid(color="0.92")
    beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False}
    by_base.legend(title="head\ndimension", fontsize=7, title_fontsize=7, **beside)
    return finish(figure)


def rotary_map(dim: int, offset: tuple[int, int], alpha: float) -> Tensor:
    """Return the attention of a rotary head with the base 100 to a 15 x 15 image, for one query.

    `dim` is the head dimension. The second-best score is lower than the best by `alpha`.
    """
    frequencies = axial_frequencies(dim)
    center = torch.tensor([offset], dtype=torch.float64)
    biases = rotary_biases(center, frequencies, SIDE, SIDE, alpha)
    probabilities = rotary_scores(*biases, frequencies, SIDE, SIDE).softmax(dim=-1)
    return probabilities.view(SIDE, SIDE, SIDE, SIDE)[QUERY]
