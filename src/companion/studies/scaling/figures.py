"""The figure of test error against size and training compute, for attention and ResNet18."""

from collections.abc import Callable, Collection

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...figures.style import finish, line_plots
from ...runs.select import Records
from ...specs import SPECS
from . import measures

PANELS: dict[str, Callable[[measures.Setting], float]] = {
    "parameters": lambda setting: setting.scale[0],
    "training compute (floating-point operations)": lambda setting: setting.compute,
}
MARKERS = {"small-long": "^", "small-double-long": "^", "small-tokens": "s"}
LEGEND = {
    "o": "20 epochs, 8 × 8 tokens",
    "^": measures.SETTINGS["small-long"],
    "s": measures.SETTINGS["small-tokens"],
    "*": "published",
}
#: The settings in each panel of `gaps`, from left to right, and their labels.
STEPS = {
    "Smaller tokens": {"small": "8 × 8 tokens", "small-tokens": measures.SETTINGS["small-tokens"]},
    "Longer training": {"small": "20 epochs", "small-long": measures.SETTINGS["small-long"]},
    "Wider networks": {tier: measures.SETTINGS[tier] for tier in measures.SIZES[:4]}
    | {"small": "1 × width"},
}


def gaps(records: Records) -> Figure:
    """Plot the test accuracies of attention and ResNet18 along each axis, one panel per axis.

    Each disc is one seed, and lines join the means. ResNet18 has no tokens, so its accuracy in the
    small tier is repeated in the panel on tokens.
    """
    found = measures.compared_runs(records)
    ratios = {"width_ratios": [len(names) for names in STEPS.values()]}
    figure, axes = line_plots(1, len(STEPS), 9.5, 3.4, grid="y", sharey=True, gridspec_kw=ratios)
    for ax, (title, names) in zip(axes.flat, STEPS.items(), strict=True):
        for model, runs in found.items():
            color = SPECS[model].curve[0]
            label = SPECS[model].label
            done = {x: [r.accuracy for r in runs[t]] for x, t in enumerate(names) if t in runs}
            ax.plot(list(done), list(map(np.mean, done.values())), color=color, label=label)
            for x, accuracies in done.items():
                ax.plot([x] * len(accuracies), accuracies, "o", color=color, ms=5, alpha=0.7)
        ax.set_xticks(range(len(names)), list(names.values()), fontsize=8)
        ax.set_title(title, fontsize=10)
        ax.margins(x=0.18)
    axes[0, 0].set(ylabel="test accuracy")
    axes[0, -1].legend(fontsize=8, loc="lower right")
    return finish(figure)


def scaling(records: Records) -> Figure:
    """Plot the test errors of attention and ResNet18 against parameters and training compute.

    Each disc is one seed, and a line joins the means over the seeds at each size. Triangles mark
    runs of 60 epochs, squares mark runs with 16 x 16 tokens, and stars mark the published errors of
    the paper's networks. A dashed line is the power law fitted to a model's runs, drawn from the
    small tier towards the paper's network, and the band is its 95 % interval. Both are drawn
    only if a prediction is made (see `measures.PREDICTION`).
    """
    found = {model: measures.settings_of(records, model) for model in measures.COMPARED}
    made = measures.is_made(measures.predictions(records))
    figure, axes = line_plots(1, len(PANELS), 9.5, 4.2, sharey=True)
    for ax, (label, quantity) in zip(axes.flat, PANELS.items(), strict=True):
        for model, settings in found.items():
            _draw(ax, model, settings.values(), quantity)
            if made:
                _draw_fit(ax, model, settings, quantity)
        ax.set(xlabel=label, xscale="log", yscale="log")
    axes[0, 0].set(ylabel="test error")
    axes[0, 0].set_yticks([0.05, 0.1, 0.2, 0.4], ["5 %", "10 %", "20 %", "40 %"])
    axes[0, 0].minorticks_off()
    for marker, name in LEGEND.items():
        fill = "white" if marker == "*" else "0.4"
        axes[0, 0].plot([], [], marker, color="0.4", mfc=fill, label=name)
    axes[0, 0].legend(fontsize=8, loc="lower left")
    return finish(figure)


def _draw(ax: Axes, model: str, settings: Collection[measures.Setting], quantity: Callable) -> None:
    spec = SPECS[model]
    color = spec.curve[0]
    sizes = [setting for setting in settings if setting.tier in measures.SIZES]
    means = [setting.error for setting in sizes]
    ax.plot([*map(quantity, sizes)], means, color=color, label=spec.label)
    for setting in settings:
        x = np.full(len(setting.accuracies), quantity(setting))
        ax.plot(x, setting.errors, MARKERS.get(setting.tier, "o"), color=color, ms=6, alpha=0.7)
    if spec.published.accuracy:
        x = quantity(measures.papers_setting(model))
        ax.plot(x, 1 - spec.published.accuracy, "*", color=color, mfc="white", ms=11)


def _draw_fit(
    ax: Axes, model: str, settings: dict[str, measures.Setting], quantity: Callable
) -> None:
    """Draw the power law and its interval from the small tier towards the paper's network."""
    start = settings["small"]
    end = measures.papers_setting(model)
    errors = measures.towards([*settings.values()], start, end)
    x = np.geomspace(quantity(start), quantity(end), len(errors))
    color = SPECS[model].curve[0]
    ax.plot(x, errors[:, 0], "--", color=color, lw=1)
    ax.fill_between(x, errors[:, 1], errors[:, 2], color=color, alpha=0.12, lw=0)
