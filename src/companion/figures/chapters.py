"""Figures that the chapters add to those of the paper: images, maps, networks and line plots."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from attnconv.layers.convert import conv_to_attention
from attnconv.networks import SelfAttentionNet
from attnconv.theory.grid import offset_set

from ..colors import head_color
from ..data import load_photograph
from ..heads import heads_of, lost_mass
from ..runs.record import RunRecord
from ..studies.cost import Measured
from .style import (
    DASHES,
    bare,
    draw_line,
    finish,
    halo,
    line_plot,
    line_plots,
    map_grid,
    mark_query,
    subplots,
)

DTYPE_STYLES = {
    "float64": ("#000000", "-"),
    "float32": ("#0072B2", "--"),
    "bfloat16": ("#D55E00", "-."),
    "float16": ("#009E73", ":"),
}


def head_locality(record: RunRecord) -> Figure:
    """Show how close each head of each layer comes to attending to a single pixel.

    The panels show the mean probability of a head's best offset, its effective number of
    pixels, and, for heads with centres, the distance of the centre from the nearest pixel. A grey
    bar marks the median of the layer.
    """
    layers = heads_of(record)
    values = {
        "mass at the best offset": [heads.mass for heads in layers],
        "effective pixels, exp(entropy)": [heads.entropy.exp() for heads in layers],
    }
    if layers[0].centers is not None:
        values["centre to the nearest pixel"] = [heads.off_pixel for heads in layers]
    figure, axes = line_plots(1, len(values), 3 * len(values) + 1, 3.2, grid="y")
    for ax, (label, by_layer) in zip(axes.flat, values.items(), strict=True):
        for layer, of_heads in enumerate(by_layer, start=1):
            places = layer + np.linspace(-0.28, 0.28, len(of_heads))
            for head, value in enumerate(of_heads.tolist()):
                ax.plot(places[head], value, "o", ms=4, color=head_color(head))
            ax.plot([layer - 0.35, layer + 0.35], [of_heads.median()] * 2, color="0.35", lw=1)
        ax.set(xlabel="layer", ylabel=label, xticks=range(1, len(layers) + 1))
    axes[0, 0].set_ylim(-0.03, 1.03)
    powers = [2**n for n in range(0, 12, 2) if 2**n <= 2 * layers[0].maps[0].numel()]
    axes[0, 1].set(yscale="log", yticks=powers, yticklabels=powers)
    axes[0, 1].minorticks_off()
    return finish(figure, record.source)


def exactness(record: RunRecord) -> Figure:
    """Plot a quadratic head's mass outside its best pixel against alpha, and the trained alphas.

    The upper panel has one line for a centre on a pixel, one for a centre a quarter of a pixel
    away, and one for a centre half-way between two pixels. The lower panel marks the alpha of
    each trained head, by layer. Raises ValueError for a record without alphas.
    """
    trained = [alpha[-1] for alpha in record.history.layers("alpha")]
    if not trained:
        raise ValueError(
            f"{record.name} has no alpha; expected a run of sa-quadratic or sa-quadratic-16"
        )
    alphas = torch.logspace(-2, 2, 200)
    figure, axes = line_plots(2, 1, 6.5, 4.6, sharex=True, height_ratios=(2, 1))
    upper, lower = axes[:, 0]
    places = {"on a pixel": (0.0, 0.0), "a quarter off": (0.25, 0.0), "half-way": (0.5, 0.0)}
    for number, (name, offset) in enumerate(places.items()):
        lost = lost_mass(alphas, offset)
        upper.plot(alphas, lost, DASHES[number], color=head_color(number), label=name)
    upper.set(ylabel="1 - mass at the best offset", yscale="log", xscale="log", ylim=(1e-16, 2))
    upper.legend(fontsize=8, title="centre", title_fontsize=8)
    for layer, alpha in enumerate(trained, start=1):
        for head, value in enumerate(alpha.clamp(0.01, 100).tolist()):
            lower.plot(value, layer, "|", ms=9, mew=1.6, color=head_color(head))
    layers = range(1, len(trained) + 1)
    lower.set(xlabel=r"$\alpha$", ylabel="layer", yticks=layers, ylim=(len(trained) + 0.6, 0.4))
    return finish(figure, record.source)


def network(model: SelfAttentionNet, image_size: int) -> Figure:
    """Draw the network of section 4.1 and one of its blocks, with the sizes of the given model."""
    side = image_size // model.pooling
    hidden = model.embedding.out_features
    heads = sorted({layer.num_heads for layer in model.attentions})
    p = model.pooling
    perceptron = cast(nn.Linear, model.get_submodule("blocks.0.mlp.0"))
    from_image_to_logits = [
        f"image\n{image_size} × {image_size} × {model.in_channels}",
        f"down-sampling\n{p} × {p} to 1\n{side} × {side} × {model.embedding.in_features}",
        f"linear map\n{side} × {side} × {hidden}",
        f"{len(model.blocks)} blocks\n{side} × {side} × {hidden}",
        f"mean over\nthe pixels\n{hidden}",
        f"linear map\n{model.classifier.out_features} logits",
    ]
    in_a_block = [
        f"attention\n{' or '.join(map(str, heads))} heads",
        f"linear map\n{hidden} → {hidden}",
        "add,\nLayerNorm",
        f"perceptron\n{hidden} → {perceptron.out_features}\n→ {hidden}",
        "add,\nLayerNorm",
    ]
    figure, ax = line_plot(8, 3.1)
    ax.set(xlim=(-0.1, 11.6), ylim=(0, 4.2))
    ax.set_axis_off()
    _draw_chain(ax, from_image_to_logits, height=3.6, marked=3)
    _draw_chain(ax, in_a_block, height=1.0, marked=0, start=1.0)
    ax.text(0, 2.25, "one block:", fontsize=8, ha="left")
    for start, end in ((0.75, 5.75), (6.75, 9.75)):  # the residual connections
        ax.plot([start, start, end], [1.0, 0.1, 0.1], color="black", lw=0.8)
        ax.annotate("", (end, 0.5), (end, 0.1), arrowprops={"arrowstyle": "->", "shrinkA": 0})
    return finish(figure)


def _draw_chain(
    ax: Axes, texts: Sequence[str], height: float, marked: int, start: float = 0.0
) -> None:
    """Draw boxes from left to right with arrows between them, the `marked` one in colour."""
    arrow = {"arrowstyle": "->", "shrinkA": 0, "shrinkB": 0}
    for number, text in enumerate(texts):
        left = start + 2 * number
        box = Rectangle((left, height - 0.5), 1.5, 1.0, edgecolor="black", lw=0.8)
        box.set_facecolor("#CDE4F3" if number == marked else "#F2F2F2")
        ax.add_patch(box)
        ax.text(left + 0.75, height, text, ha="center", va="center", fontsize=7.5)
        if number or start:
            ax.annotate("", (left, height), (left - 0.5, height), arrowprops=arrow)


def image_grid(
    images: Sequence[Tensor], titles: Sequence[str], columns: int = 0, scale: float = 0
) -> Figure:
    """Draw images, with `columns` in each row (0: two for four images, otherwise all in one row).

    Images `(H, W, 3)` are in colour, with values from 0 to 1. Images `(H, W)` are signed and drawn
    on a colour scale from -`scale` to `scale` (0: each on its own scale).
    """
    columns = columns or (2 if len(images) == 4 else len(images))
    rows = len(images) // columns
    aspect = images[0].shape[0] / images[0].shape[1]
    width = 7.5 / columns
    figure, axes = subplots(rows, columns, 7.5, rows * (0.86 * width * aspect + 0.35))
    for ax, image, title in zip(axes.flat, images, titles, strict=True):
        if image.ndim == 3:
            ax.imshow(image.numpy().clip(0, 1))
        else:
            limit = scale or float(image.abs().max())
            shown = ax.imshow(image.numpy(), cmap="PuOr", vmin=-(limit or 1), vmax=limit or 1)
            if limit:
                bar = figure.colorbar(shown, ax=ax, shrink=0.8).ax
                bar.tick_params(labelsize=7)
                bar.yaxis.get_offset_text().set_fontsize(7)
            else:
                title += ": exactly zero"
        ax.set_title(title, fontsize=9)
        bare(ax)
    return finish(figure)


def claim() -> Figure:
    """Illustrate Theorem 1 with a Sobel filter computed by convolution and by nine attention heads.

    The rings mark the pixels to which the heads attend from one query pixel, drawn at six times
    their true distance from it.
    """
    sobel = nn.Conv2d(1, 1, kernel_size=3, padding=1, padding_mode="replicate", bias=False).double()
    sobel.weight.data = torch.tensor([[[[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]]]).double()
    image = load_photograph("china", (72, 108)).double()
    query = (40, 40)
    grey = image.mean(dim=2)[None, None]
    by_conv, by_attention = (
        layer(grey)[0, 0].detach() for layer in (sobel, conv_to_attention(sobel))
    )
    difference = by_attention - by_conv
    scale = float(by_conv.abs().max())
    # rounding errors depend on the processor; without them, the picture is always the same
    size = "rounding" if difference.abs().max() < 1e-12 * scale else "more than rounding"
    titles = ["one query, nine heads", "by convolution", f"by self-attention (difference: {size})"]
    figure = image_grid([image, by_conv, by_attention], titles, scale=scale)
    ax = figure.axes[0]
    for head, (row, column) in enumerate((torch.tensor(query) + 6 * offset_set((3, 3))).tolist()):
        ax.plot(column, row, "o", ms=6, mfc="none", mec=head_color(head), mew=1.8)
    mark_query(ax, query, size=4)
    return figure


def score_maps(maps: Tensor, titles: Sequence[str], query: Sequence[int]) -> Figure:
    """Draw maps `(n, H, W)` of one query's signed scores, two per row, each on its own scale."""
    figure = image_grid(list(maps), titles, columns=2)
    for ax in figure.axes[: len(maps)]:
        mark_query(ax, query)
    return figure


def attention_maps(
    probabilities: Tensor,
    query: Sequence[int],
    titles: Sequence[str] | None = None,
    columns: int = 9,
) -> Figure:
    """Draw each head's map for one query pixel, with all maps on a shared scale from 0.

    `probabilities` has the shape `(N_h, H, W, H, W)`.
    """
    maps = probabilities[:, query[0], query[1]].detach()
    side = 1.25 if min(columns, len(maps)) > 4 else 2.0
    options = {"cell": (side, side + 0.15), "margin": (0.6, 0.1), "limits": (0, float(maps.max()))}
    figure, images = map_grid(maps, titles, columns, query=query, **options)
    bar = figure.colorbar(images[0], ax=figure.axes, shrink=0.8)
    bar.ax.tick_params(labelsize=6)
    return finish(figure)


def head_maps(maps: Tensor, title: str, mark_zero: bool = False, columns: int = 9) -> Figure:
    """Draw one map per head, such as a kernel or border factors, each on its own scale.

    `maps` has the shape `(N_h, rows, columns)`. With `mark_zero`, a cross marks the middle, which
    is the zero offset of a kernel.
    """
    options = {"cell": (1.5, 2.0), "margin": (0.0, 0.3), "limits": (None, None)}
    figure, images = map_grid(maps, None, columns, **options)
    for image in images:
        ax = image.axes
        if mark_zero:
            row, column = (extent // 2 for extent in maps.shape[1:])
            ax.plot(column, row, "+", ms=7, color="white", path_effects=[halo("black")])
        bar = figure.colorbar(image, ax=ax, location="bottom", ticks=MaxNLocator(2))
        bar.ax.tick_params(labelsize=6)
    figure.suptitle(title, fontsize=9)
    return finish(figure)


def offset_grid(values: Sequence[Tensor], titles: Sequence[str], columns: int = 0) -> Figure:
    """Draw grids `(K_1, K_2)` with a nonnegative number in the cell of each offset.

    Each row has `columns` grids (0: all). All grids share a colour scale from 0 to the maximum.
    """
    largest = max(float(grid.max()) for grid in values)
    options = {"cell": (2.3, 2.5), "limits": (0, largest), "fontsize": 9}
    figure, images = map_grid(values, titles, columns, **options)
    for image, grid in zip(images, values, strict=True):
        for (i, j), value in np.ndenumerate(grid.numpy()):
            text = f"{value:.0e}" if value < 0.01 else f"{value:.2f}"
            style = {"fontsize": 7, "color": "white" if value < largest / 2 else "black"}
            image.axes.text(j, i, text, ha="center", va="center", **style)
    return finish(figure)


# --- one quantity against another -----------------------------------------------------------------


def alpha_curves(
    alphas: Sequence[float],
    curves: dict[str, Sequence[float]],
    derived: dict[str, float],
    ylabel: str,
) -> Figure:
    """Draw a quantity against alpha, with a line for each dtype (the keys of `curves`).

    `derived` maps each dtype to the threshold that follows from the theory, which is drawn as a
    vertical line.
    """
    figure, ax = line_plot(6.5, 3.6)
    for name, values in curves.items():
        color, dashes = DTYPE_STYLES[name]
        ax.plot(alphas, np.maximum(values, 1e-330), dashes, color=color, label=name)
        ax.axvline(derived[name], color=color, linestyle=dashes, lw=1)
    ax.set(xlabel=r"$\alpha$", ylabel=ylabel, yscale="log", xscale="log")
    ax.legend(fontsize=8)
    return finish(figure)


def curves(
    series: Mapping[str, Any],
    xlabel: str,
    ylabel: str,
    x: Sequence[float] | None = None,
    log: str = "",
    ordered: bool = False,
) -> Figure:
    """Draw a line for each named series against a common x, by default 1, 2, ...

    Values `(seeds, n)` are drawn as their mean with a band that spans their range. `log` names the
    axes ("x", "y" or "xy") that are logarithmic. If the lines are `ordered`, their colours run
    from dark to light.
    """
    figure, ax = line_plot(6, 3.2)
    for number, (name, values) in enumerate(series.items()):
        color = colormaps["viridis"](0.9 * number / len(series)) if ordered else head_color(number)
        style = {"color": color, "linestyle": DASHES[number % 4], "label": name}
        draw_line(ax, range(1, len(values) + 1) if x is None else x, values, **style)
    scales = {f"{axis}scale": "log" if axis in log else "linear" for axis in "xy"}
    ax.set(xlabel=xlabel, ylabel=ylabel, **scales)
    if x is None:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(series) > 1:
        ax.legend(fontsize=8)
    return finish(figure)


def cost_curves(costs: Mapping[str, Mapping[int, Measured]]) -> Figure:
    """Draw the cost per pixel of each method against the side of the image in pixels.

    `costs` maps each method to its costs by image side. Products are counted; time and memory are
    measured. A flat line means that the cost is proportional to the number of pixels.
    """
    panels = {
        "products per pixel": lambda cost: cost.products,
        "microseconds per pixel": lambda cost: 1e6 * cost.seconds,
        "KiB per pixel": lambda cost: 1024 * max(cost.mib, 0),
    }
    figure, axes = line_plots(1, len(panels), 9.5, 3.6)
    sides = sorted({side for by_side in costs.values() for side in by_side})
    for ax, (label, amount) in zip(axes.flat, panels.items(), strict=True):
        for number, (method, by_side) in enumerate(costs.items()):
            values = [amount(cost) / side**2 or np.nan for side, cost in by_side.items()]
            marks = DASHES[number % 4] + "osv^D"[number % 5]
            ax.plot(list(by_side), values, marks, ms=4, color=head_color(number), label=method)
        ax.set(xlabel="pixels per side", ylabel=label, xscale="log", yscale="log")
        ax.set_xticks(sides, sides)
        ax.minorticks_off()
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return finish(figure)
