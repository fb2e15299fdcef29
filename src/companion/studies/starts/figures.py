"""The figure of test accuracy for different initialisations of a vision transformer."""

from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...figures.style import draw_line, finish, line_plots
from ...runs.select import Records
from ...specs import SPECS
from ...tiers import TIERS
from .measures import PAIRS, accuracies_of

SHOWN = ("vit-5k", "vit-10k", "vit-50k")
WIDTHS = dict(zip(PAIRS["lasts"], (1.0, 2.2), strict=True))


def starts(records: Records) -> Figure:
    """Plot test accuracy against the number of training images, and by epoch for 10,000 images.

    On the left, each disc is one seed, and each line joins one initialisation's means over seeds;
    discs on broken lines are open. On the right, each line is a mean over seeds with a band that
    spans their range. Thin lines show runs of 20 epochs, and thick lines show runs of 100 epochs.
    """
    figure, axes = line_plots(1, 2, 9.5, 4.2, sharey=True)
    by_images, by_epoch = axes.flat
    _draw_by_images(by_images, records)
    for tier, width in WIDTHS.items():
        for model in ("vit-default", "vit-convolution"):
            runs = records.at(tier).of(model)
            if runs:
                accuracies = [[epoch["test_accuracy"] for epoch in run.metrics] for run in runs]
                epochs = range(1, len(accuracies[0]) + 1)
                color = SPECS[model].curve[0]
                label = f"{SPECS[model].label}, {len(epochs)} epochs"
                draw_line(by_epoch, epochs, accuracies, color=color, lw=width, label=label)
    by_epoch.set(xlabel="epoch (10,000 training images)")
    for ax in (by_images, by_epoch):
        if ax.lines:
            ax.legend(fontsize=8)
    return finish(figure)


def _draw_by_images(ax: Axes, records: Records) -> None:
    for model, by_tier in accuracies_of(records).items():
        tiers = [tier for tier in SHOWN if tier in by_tier]
        if not tiers:
            continue
        spec = SPECS[model]
        color, style = spec.curve
        images = [TIERS[tier].recipe["train_images"] for tier in tiers]
        means = [mean(by_tier[tier]) for tier in tiers]
        ax.plot(images, means, style, color=color, label=spec.label)
        inside = color if style == "-" else "white"
        for x, tier in zip(images, tiers, strict=True):
            ax.plot([x] * len(by_tier[tier]), by_tier[tier], "o", color=color, mfc=inside, ms=4)
    ax.set(xlabel="training images", ylabel="test accuracy", xscale="log")
    ax.set_xticks([5_000, 10_000, 50_000], ["5,000", "10,000", "50,000"])
    ax.minorticks_off()
