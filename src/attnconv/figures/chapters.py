"""The chapters' own figures; those beyond the paper show the heads in numbers."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, MultipleLocator
from torch import Tensor, nn

from ..data import load_photograph
from ..layers.conv import conv_to_attention
from ..measures.heads import heads_of, lost_mass
from ..models import SelfAttentionNet
from ..models.specs import head_color
from ..runs.record import RunRecord
from ..theory.grid import shift_set
from .style import bare, draw_paths, finish, first_of, halo, mark_query, subplots


def head_locality(record: RunRecord) -> Figure:
    """Per layer and head, how close to Lemma 1: the mean probability of its best single shift, how
    many pixels it sees, and, where it has a centre, how far that is from a pixel. A grey bar stands
    at the median.
    """
    layers = heads_of(record)
    values = {
        "mass at the best shift": [heads.mass for heads in layers],
        "effective pixels, exp(entropy)": [heads.entropy.exp() for heads in layers],
    }
    if layers[0].centers is not None:
        values["centre to the nearest pixel"] = [heads.off_pixel for heads in layers]
    figure, axes = subplots(1, len(values), 3 * len(values) + 1, 3.2, lines=True)
    for ax, (label, by_layer) in zip(axes.flat, values.items(), strict=True):
        for layer, of_heads in enumerate(by_layer, start=1):
            places = layer + np.linspace(-0.28, 0.28, len(of_heads))
            for head, value in enumerate(of_heads.tolist()):
                ax.plot(places[head], value, "o", ms=4, color=head_color(head))
            ax.plot([layer - 0.35, layer + 0.35], [of_heads.median()] * 2, color="0.35", lw=1)
        ax.set(xlabel="layer", ylabel=label, xticks=range(1, len(layers) + 1))
        ax.grid(color="0.92", axis="y")
    axes[0, 0].set_ylim(-0.03, 1.03)
    powers = [2**n for n in range(0, 12, 2) if 2**n <= 2 * layers[0].maps[0].numel()]
    axes[0, 1].set(yscale="log", yticks=powers, yticklabels=powers)
    axes[0, 1].minorticks_off()
    return finish(figure, record.source)


def exactness(record: RunRecord) -> Figure:
    """What softness costs: the mass that a quadratic head gives to other pixels, against alpha, for
    centres on a pixel and off it; and below, each layer's trained alphas."""
    trained = [alpha[-1] for alpha in record.history.layers("alpha")]
    if not trained:
        raise ValueError(
            f"{record.name} has no alpha; expected a run of sa-quadratic or sa-quadratic-16"
        )
    alphas = torch.logspace(-2, 2, 200)
    figure, axes = subplots(2, 1, 6.5, 4.6, lines=True, sharex=True, height_ratios=(2, 1))
    upper, lower = axes[:, 0]
    places = {"on a pixel": (0.0, 0.0), "a quarter off": (0.25, 0.0), "half-way": (0.5, 0.0)}
    for number, (name, offset) in enumerate(places.items()):
        upper.plot(
            alphas,
            lost_mass(alphas, offset),
            ("-", "--", "-.")[number],
            color=head_color(number),
            label=name,
        )
    upper.set(ylabel="1 - mass at the best shift", yscale="log", xscale="log", ylim=(1e-16, 2))
    upper.legend(fontsize=8, title="centre", title_fontsize=8)
    for layer, alpha in enumerate(trained, start=1):
        for head, value in enumerate(alpha.tolist()):
            lower.plot(
                min(max(value, 0.01), 100), layer, "|", ms=9, mew=1.6, color=head_color(head)
            )
    lower.set(
        xlabel=r"$\alpha$",
        ylabel="layer",
        yticks=range(1, len(trained) + 1),
        ylim=(len(trained) + 0.6, 0.4),
    )
    for ax in axes.flat:
        ax.grid(color="0.92")
    return finish(figure, record.source)


def network(model: SelfAttentionNet, image_size: int) -> Figure:
    """The network of section 4.1 with a model's own sizes, from image to logits (top), and one of
    its blocks (bottom)."""
    side, hidden = image_size // model.pooling, model.embedding.out_features
    heads = sorted({layer.num_heads for layer in model.attentions})
    p, perceptron = model.pooling, cast(nn.Linear, model.get_submodule("blocks.0.mlp.0"))
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
    figure, axes = subplots(1, 1, 8, 3.1, lines=True)
    ax = axes[0, 0]
    ax.set(xlim=(-0.1, 11.6), ylim=(0, 4.2))
    ax.set_axis_off()
    _chain(ax, from_image_to_logits, 3.6, (3,))
    _chain(ax, in_a_block, 1.0, (0,), start=1.0)
    ax.text(0, 2.25, "one block:", fontsize=8, ha="left")
    for start, end in ((0.75, 5.75), (6.75, 9.75)):  # the residuals, around what they are added to
        ax.plot([start, start, end], [1.0, 0.1, 0.1], color="black", lw=0.8)
        ax.annotate("", (end, 0.5), (end, 0.1), arrowprops={"arrowstyle": "->", "shrinkA": 0})
    return finish(figure)


def _chain(
    ax: Axes, texts: Sequence[str], height: float, marked: Sequence[int], start: float = 0.0
) -> None:
    """Boxes from left to right with arrows between them; `marked` ones, where attention is, in
    colour."""
    for number, text in enumerate(texts):
        left = start + 2 * number
        color = "#CDE4F3" if number in marked else "#F2F2F2"
        ax.add_patch(
            Rectangle((left, height - 0.5), 1.5, 1.0, facecolor=color, edgecolor="black", lw=0.8)
        )
        ax.text(left + 0.75, height, text, ha="center", va="center", fontsize=7.5)
        if number or start:
            ax.annotate(
                "",
                (left, height),
                (left - 0.5, height),
                arrowprops={"arrowstyle": "->", "shrinkA": 0, "shrinkB": 0},
            )


def image_grid(
    images: Sequence[Tensor], titles: Sequence[str], columns: int = 0, scale: float = 0
) -> Figure:
    """Images, `columns` in a row (0: all, two if there are four): `(H, W, 3)` in colour from 0 to
    1, `(H, W)` signed, up to `scale` (0: each to its own largest)."""
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
    """The theorem in one picture: the vertical Sobel filter on a photograph, by convolution and by
    nine heads, and the gap."""
    sobel = torch.nn.Conv2d(
        1, 1, kernel_size=3, padding=1, padding_mode="replicate", bias=False
    ).double()
    sobel.weight.data = torch.tensor([[[[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]]]).double()
    image, query = load_photograph("china", (72, 108)).double(), (40, 40)
    grey = image.mean(dim=2)[None, None]
    by_conv, by_attention = (
        layer(grey)[0, 0].detach() for layer in (sobel, conv_to_attention(sobel))
    )
    difference, scale = by_attention - by_conv, float(by_conv.abs().max())
    # rounding is the processor's own, and not drawn: the picture is the same everywhere
    size = "rounding" if difference.abs().max() < 1e-12 * scale else "more than rounding"
    titles = ["one query, nine heads", "by convolution", "by self-attention", f"difference: {size}"]
    figure = image_grid([image, by_conv, by_attention, difference], titles, scale=scale)
    ax = figure.axes[0]
    # spread six-fold, to be seen
    for head, (row, column) in enumerate((torch.tensor(query) + 6 * shift_set((3, 3))).tolist()):
        ax.plot(column, row, "o", ms=6, mfc="none", mec=head_color(head), mew=1.8)
    mark_query(ax, query, size=4)
    return figure


def score_maps(maps: Tensor, titles: Sequence[str], query: Sequence[int]) -> Figure:
    """Signed score maps `(n, H, W)` of one query pixel, each on its own scale, two in a row."""
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
    """Where each head looks from one query pixel: `(N_h, H, W, H, W)`, all on one scale from 0 to
    the largest probability."""
    maps = probabilities[:, query[0], query[1]].detach()
    heads, scale = len(maps), Normalize(0, float(maps.max()))
    columns = min(columns, heads)
    rows = -(-heads // columns)
    side = 1.25 if columns > 4 else 2.0
    figure, axes = subplots(rows, columns, side * columns + 0.6, (side + 0.15) * rows + 0.1)
    for head, ax in enumerate(first_of(axes, heads)):
        ax.imshow(maps[head].numpy(), cmap="cividis", norm=scale)
        mark_query(ax, query)
        ax.set_title(titles[head] if titles else f"head {head + 1}", fontsize=8)
    figure.colorbar(ScalarMappable(scale, "cividis"), ax=axes, shrink=0.8).ax.tick_params(
        labelsize=6
    )
    return finish(figure)


def head_paths(centers: Tensor) -> Figure:
    """How the centres moved: `(steps, N_h, 2)`, start as a ring, end as a disc, over the grid of
    pixel shifts."""
    figure, axes = subplots(1, 1, 4.6, 4.4, lines=True)
    ax = axes[0, 0]
    draw_paths(ax, centers, max(2.5, float(centers.abs().max()) + 0.4))
    for head, (row, column) in enumerate(centers[0].tolist()):
        place = {"xytext": (5, 4), "textcoords": "offset points"}
        ax.annotate(str(head + 1), (column, row), fontsize=8, color=head_color(head), **place)
    ax.set(xlabel=r"column shift $\Delta_2$", ylabel=r"row shift $\Delta_1$")
    ax.xaxis.set_major_locator(MultipleLocator(1))
    ax.yaxis.set_major_locator(MultipleLocator(1))
    ax.grid(color="0.88")
    return finish(figure)


def head_maps(maps: Tensor, title: str, mark_zero: bool = False, columns: int = 9) -> Figure:
    """One map per head, `(N_h, rows, columns)`, each on its own scale: kernels, with a cross at
    shift zero, or border factors."""
    heads = len(maps)
    columns = min(columns, heads)
    rows = -(-heads // columns)
    figure, axes = subplots(rows, columns, 1.5 * columns, 2.0 * rows + 0.3)
    for head, ax in enumerate(first_of(axes, heads)):
        shown = ax.imshow(maps[head].detach().numpy(), cmap="cividis")
        if mark_zero:
            row, column = (extent // 2 for extent in maps.shape[1:])
            ax.plot(column, row, "+", ms=7, color="white", path_effects=[halo("black")])
        bar = figure.colorbar(shown, ax=ax, location="bottom", ticks=MaxNLocator(2))
        bar.ax.tick_params(labelsize=6)
        ax.set_title(f"head {head + 1}", fontsize=8)
    figure.suptitle(title, fontsize=9)
    return finish(figure)


def shift_grid(values: Sequence[Tensor], titles: Sequence[str], columns: int = 0) -> Figure:
    """A number from 0 to 1 for each shift, `(K_1, K_2)` in each grid, written in its cell: Lemma
    3's residual, or a head's share. `columns` in a row, 0: all."""
    columns = columns or len(values)
    rows = -(-len(values) // columns)
    figure, axes = subplots(rows, columns, 2.3 * columns, 2.5 * rows)
    for ax, grid, title in zip(first_of(axes, len(values)), values, titles, strict=True):
        ax.imshow(grid.numpy(), cmap="cividis", vmin=0, vmax=1)
        for (i, j), value in np.ndenumerate(grid.numpy()):
            text = f"{value:.0e}" if value < 0.01 else f"{value:.2f}"
            color = "white" if value < 0.5 else "black"
            ax.text(j, i, text, ha="center", va="center", fontsize=7, color=color)
        ax.set_title(title, fontsize=9)
        bare(ax)
    return finish(figure)
