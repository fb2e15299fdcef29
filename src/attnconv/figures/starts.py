"""The figure of test accuracy for different initialisations of a vision transformer."""

from matplotlib.figure import Figure

from ..measures.starts import accuracies_of
from ..models import SPECS
from ..models.specs import TIERS
from ..runs.select import Records
from .style import finish, line_plot

SHOWN = ("vit-5k", "vit-10k", "vit-50k")


def starts(records: Records) -> Figure:
    """Draw test accuracy against the number of training images, with one line for each start.

    Each disc is one seed, and the lines join the means over the seeds.
    """
    figure, ax = line_plot(6.5, 4.2)
    for model, by_tier in accuracies_of(records).items():
        spec, tiers = SPECS[model], [tier for tier in SHOWN if tier in by_tier]
        if not tiers:
            continue
        color, style = spec.curve
        images = [TIERS[tier].recipe["train_images"] for tier in tiers]
        means = [sum(by_tier[tier]) / len(by_tier[tier]) for tier in tiers]
        ax.plot(images, means, style, color=color, label=spec.label)
        for x, tier in zip(images, tiers, strict=True):
            ax.plot([x] * len(by_tier[tier]), by_tier[tier], "o", color=color, ms=4, alpha=0.7)
    ax.set(xlabel="training images", ylabel="test accuracy", xscale="log")
    ax.set_xticks([5_000, 10_000, 50_000], ["5,000", "10,000", "50,000"])
    ax.minorticks_off()
    if ax.lines:
        ax.legend(fontsize=8)
    return finish(figure)
