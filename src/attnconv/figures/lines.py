"""A quantity against another: lines."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..measures.cost import Measured
from ..models.specs import head_color
from .style import finish, subplots

DTYPE_STYLES = {
    "float64": ("#000000", "-"),
    "float32": ("#0072B2", "--"),
    "bfloat16": ("#D55E00", "-."),
    "float16": ("#009E73", ":"),
}


def alpha_curves(
    alphas: Sequence[float],
    curves: dict[str, Sequence[float]],
    derived: dict[str, float],
    ylabel: str,
) -> Figure:
    """A quantity against alpha, a line per dtype (keys of `curves`), with the derived threshold of
    each as a vertical line."""
    figure, axes = subplots(1, 1, 6.5, 3.6, lines=True)
    ax = axes[0, 0]
    for name, values in curves.items():
        color, style = DTYPE_STYLES[name]
        ax.plot(alphas, np.maximum(values, 1e-330), style, color=color, label=name)
        ax.axvline(derived[name], color=color, linestyle=style, lw=1)
    ax.set(xlabel=r"$\alpha$", ylabel=ylabel, yscale="log", xscale="log")
    ax.legend(fontsize=8)
    ax.grid(color="0.92")
    return finish(figure)


def curves(
    series: dict[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    x: Sequence[float] | None = None,
    log: str = "",
) -> Figure:
    """Lines by name against a common x (1, 2, ... if None); `log` names the axes ("x", "y", "xy")
    that are logarithmic."""
    figure, axes = subplots(1, 1, 6, 3.2, lines=True)
    ax = axes[0, 0]
    for number, (name, values) in enumerate(series.items()):
        steps = x if x is not None else range(1, len(values) + 1)
        style = ("-", "--", "-.", ":")[number % 4]
        ax.plot(steps, values, style, color=head_color(number), label=name)
    ax.set(
        xlabel=xlabel,
        ylabel=ylabel,
        xscale="log" if "x" in log else "linear",
        yscale="log" if "y" in log else "linear",
    )
    if x is None:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(color="0.92")
    if len(series) > 1:
        ax.legend(fontsize=8)
    return finish(figure)


def cost_curves(costs: Mapping[str, Mapping[int, Measured]]) -> Figure:
    """What each way (keys) costs a pixel on images of so many pixels a side: products counted, time
    and memory measured. A flat line is a cost in proportion to the pixels."""
    panels = {
        "products per pixel": lambda cost: cost.products,
        "microseconds per pixel": lambda cost: 1e6 * cost.seconds,
        "KiB per pixel": lambda cost: 1024 * max(cost.mib, 0),
    }
    figure, axes = subplots(1, len(panels), 9.5, 3.6, lines=True)
    for ax, (label, amount) in zip(axes.flat, panels.items(), strict=True):
        for number, (way, by_side) in enumerate(costs.items()):
            ax.plot(
                list(by_side),
                [amount(cost) / side**2 or np.nan for side, cost in by_side.items()],
                ("-", "--", "-.", ":")[number % 4] + "osv^D"[number % 5],
                ms=4,
                color=head_color(number),
                label=way,
            )
        sides = sorted({side for by_side in costs.values() for side in by_side})
        ax.set(xlabel="pixels a side", ylabel=label, xscale="log", yscale="log")
        ax.set_xticks(sides, sides)
        ax.minorticks_off()
        ax.grid(color="0.92")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return finish(figure)
