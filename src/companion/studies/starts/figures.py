"""The figure of test accuracy for different initialisations of a vision transformer."""

from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...figures.style import draw_line, finish, line_plots
from ...runs.select import Records
from ...specs import SPECS, VITS
from .measures import PAIRS

BY_START = "vit-10k"
WIDTHS = dict(zip(PAIRS["lasts"], (1.0, 2.2), strict=True))


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
