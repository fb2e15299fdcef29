"""Chapter 15's figures: where freed heads go."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from ..layers.attention import attention_probabilities
from ..measures.grid import (
    KERNEL,
    distance_moved_by_layer,
    kernel_layers,
    mass_on_nearest_pixel_by_layer,
)
from ..models import ARMS, SPECS
from ..report.tables.accuracies import Accuracy
from ..report.tables.freed import TIER
from ..runs.record import RunRecord
from ..runs.select import Records
from .style import bare, draw_paths, finish, first_of, mark_query, subplots


def layer_paths(record: RunRecord) -> Figure:
    """Where the centres of each 3 x 3 layer went: start as a ring, end as a disc, a colour for each
    head; dots are pixels."""
    layers = kernel_layers(record, "centers")
    figure, axes = subplots(2, -(-len(layers) // 2), 7.5, 5.4, lines=True)
    reach = max(1.9, *(float(centers.abs().max()) + 0.2 for centers in layers))
    around = np.arange(-int(reach), int(reach) + 1)
    for number, (ax, centers) in enumerate(
        zip(first_of(axes, len(layers)), layers, strict=True), start=1
    ):
        ax.plot(*map(np.ravel, np.meshgrid(around, around)), ".", color="0.75", ms=3, zorder=0)
        draw_paths(ax, centers, reach)
        ax.set_title(f"3 × 3 layer {number}", fontsize=9)
    return finish(figure, record.source)


def heads_before_and_after(record: RunRecord, layer: int, side: int = 7) -> Figure:
    """What each head of a 3 x 3 layer, from 1, attends to from the middle of `side` x `side`
    pixels: at the start above, in the end below."""
    figure, axes = subplots(2, KERNEL**2, 7.5, 2.2)
    wanted = [n for n, c in enumerate(record.history.layers("centers")) if c.shape[1] == KERNEL**2]
    for row, moment, name in ((0, 0, "start"), (1, -1, "end")):
        encoding = record.history.encodings(moment)[wanted[layer - 1]]
        maps = attention_probabilities(encoding, side, side)[:, side // 2, side // 2]
        for head, ax in enumerate(axes[row]):
            ax.imshow(maps[head].numpy(), cmap="cividis", vmin=0, vmax=1)
            mark_query(ax, (side // 2, side // 2))
            bare(ax)
            if row == 0:
                ax.set_title(f"head {head + 1}", fontsize=7)
        axes[row, 0].set_ylabel(name, fontsize=8)
    return finish(figure, record.source)


def arm_accuracies(records: Records) -> Figure:
    """Test accuracy of each arm in the end: a dot for each seed, a bar at their mean."""
    records = records.at(TIER)
    arms = [arm for arm in ARMS if records.of(arm)]
    figure, axes = subplots(1, 1, 7, 0.4 * len(arms) + 1, lines=True)
    ax = axes[0, 0]
    for place, arm in enumerate(arms):
        runs, (color, _) = records.of(arm), SPECS[arm].curve
        values = [record.accuracy for record in runs]
        ax.plot(values, [place] * len(values), "o", color=color, ms=5, alpha=0.7)
        ax.plot([Accuracy.of(runs).last] * 2, [place - 0.3, place + 0.3], color=color, lw=2)
    ax.set_yticks(range(len(arms)), [SPECS[arm].label for arm in arms])
    ax.set(xlabel="test accuracy", ylim=(len(arms) - 0.5, -0.5))
    ax.grid(color="0.92", axis="x")
    return finish(figure)


def over_training(records: Records, arms: Sequence[str]) -> Figure:
    """Over the epochs since heads were freed: their mass on the nearest pixel, and how far
    they are from where they began; mean over heads, 3 x 3 layers and seeds, shaded from seed to
    seed."""
    figure, axes = subplots(1, 2, 7.5, 3.2, lines=True)
    for arm in arms:
        runs = records.at(TIER).of(arm)
        if not runs:
            continue
        epochs, (color, style) = runs[0].history.epochs.numpy(), SPECS[arm].curve
        mass = [
            torch.stack(mass_on_nearest_pixel_by_layer(record)).mean(dim=(0, 2)) for record in runs
        ]
        away = [torch.stack(distance_moved_by_layer(record)).mean(dim=(0, 2)) for record in runs]
        for ax, values in zip(axes[0], (mass, away), strict=True):
            by_seed = torch.stack(values).numpy()
            ax.plot(epochs, by_seed.mean(axis=0), style, color=color, label=SPECS[arm].label)
            ax.fill_between(
                epochs, by_seed.min(axis=0), by_seed.max(axis=0), color=color, alpha=0.15
            )
    labels = ("mass on the nearest pixel", "distance from the start, pixels")
    for ax, label in zip(axes[0], labels, strict=True):
        ax.set(xlabel="epochs", ylabel=label, ylim=(0, None))
        ax.xaxis.set_major_locator(MultipleLocator(1))
        ax.grid(color="0.92")
    axes[0, 0].set_ylim(0, 1.02)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return finish(figure)
