"""One function per figure. Each takes tensors, a record or a model and returns a matplotlib figure; none trains.

Colours: Okabe and Ito's for heads, which the colour-blind can tell apart, with the head's number beside each; cividis for
amounts, PuOr for signed values. Letters: N_h heads, H x W pixels.
"""

import io
import textwrap
from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from torch import Tensor

from .construction import conv_to_attention
from .data import PHOTOGRAPHS, dataset_at_hand, load_photograph
from .encodings import PositionEncoding, QuadraticEncoding
from .expressivity import shift_targets
from .grid import shift_set
from .heads import heads_of, lost_mass
from .layers import attention_probabilities
from .maps import query_number, single_maps
from .models import SelfAttentionNet
from .published import TABLE_4
from .runs import RunRecord

HEAD_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#8C7A00", "#7F7F7F")
DTYPE_STYLES = {
    "float64": ("#000000", "-"),
    "float32": ("#0072B2", "--"),
    "bfloat16": ("#D55E00", "-."),
    "float16": ("#009E73", ":"),
}
DPI = 120


class LineFigure(Figure):
    """A figure of lines: a page shows it as SVG, sharp at any size."""

    def _repr_svg_(self) -> str:
        file = io.StringIO()
        with plt.rc_context({"svg.hashsalt": "attnconv"}):  # the same figure gives the same file
            self.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()


def _finish(figure: Figure, source: str = "") -> Figure:
    """Close the figure, with a line under it that tells what it was drawn from."""
    if source:
        figure.supxlabel(source, x=0.99, ha="right", fontsize=7, color="0.35")
    plt.close(figure)  # the notebook shows what a cell returns; left open it would be shown twice
    return figure


def _subplots(rows: int, columns: int, width: float, height: float, lines: bool = False, **options) -> tuple[Figure, np.ndarray]:
    form = {"figsize": (width, height), "dpi": DPI, "layout": "constrained", "facecolor": "white"}
    figure, axes = plt.subplots(rows, columns, squeeze=False, FigureClass=LineFigure if lines else Figure, **form, **options)
    return figure, axes


def palette(name: str) -> bytes:
    """256 colours of matplotlib, three bytes each, for pages that draw by themselves."""
    return plt.get_cmap(name)(np.arange(256), bytes=True)[:, :3].tobytes()


def _color(head: int) -> str:
    return HEAD_COLORS[head % len(HEAD_COLORS)]


def _bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])


def _mark(ax: Axes, query: Sequence[int], size: float = 1.0) -> None:
    row, column = query
    for color, width in (("white", 2.2), ("black", 1.0)):  # seen on dark pixels and on bright ones
        corner = column - size / 2, row - size / 2
        ax.add_patch(plt.Rectangle(corner, size, size, fill=False, color=color, lw=width, zorder=3))


def _halo(color: str) -> withStroke:
    return withStroke(linewidth=2, foreground=color)


# --- the paper's figures --------------------------------------------------------------------------------------------


def figure_1(image: Tensor | None = None, probabilities: Tensor | None = None, query: Sequence[int] | None = None) -> Figure:
    """Figure 1: an image `(H, W, 3)` with the query pixel, and where each head of `(N_h, H, W, H, W)` looks from it.

    By default nine quadratic heads at the shifts of a 3 x 3 kernel, on a photograph.
    """
    image = load_photograph("flower", (12, 16)) if image is None else image
    height, width = image.shape[:2]
    query = query or (height // 2, width // 2)
    if probabilities is None:
        encoding = QuadraticEncoding.from_alpha(shift_set((3, 3)).float(), alpha=2.0)
        probabilities = attention_probabilities(encoding, height, width)
    heads = len(probabilities)
    side = int(np.ceil(np.sqrt(heads)))
    figure = plt.figure(figsize=(8, 4), dpi=DPI, layout="constrained", facecolor="white")
    left, right = figure.subfigures(1, 2)
    ax = left.subplots()
    ax.imshow(image.numpy().clip(0, 1))
    maps = probabilities[:, query[0], query[1]]  # (N_h, H, W)
    for head in range(heads):
        row, column = np.unravel_index(int(maps[head].argmax()), maps.shape[1:])
        ax.plot(column, row, "s", ms=7, mfc="none", mec=_color(head), mew=2)
    _mark(ax, query)
    ax.set_title("the image, the query pixel q (black)\nand the pixel each head attends to", fontsize=9)
    _bare(ax)
    for head, ax in enumerate(right.subplots(side, -(-heads // side)).flat):
        _bare(ax)
        if head >= heads:
            ax.set_axis_off()
            continue
        ax.imshow(maps[head].numpy(), cmap="cividis", vmin=0)
        _mark(ax, query)
        ax.set_title(f"head {head + 1}", fontsize=8, color=_color(head))
    return _finish(figure)


FIGURE_2 = ("resnet18", "sa-quadratic", "sa-learned", "sa-learned-content")
FIGURE_13 = ("resnet18", "sa-quadratic", "sa-generalized", "sa-generalized-pruned", "sa-learned", "sa-learned-content")
CURVE_STYLES = {
    "resnet18": ("#000000", "-"),
    "sa-quadratic": ("#0072B2", "-"),
    "sa-generalized": ("#D55E00", "--"),
    "sa-generalized-pruned": ("#A87900", "-"),
    "sa-learned": ("#009E73", "-."),
    "sa-learned-content": ("#B0508A", ":"),
}


def figure_2(records: Sequence[RunRecord], state: Callable[[str], str] = lambda model: "not run") -> Figure:
    """Figure 2: test accuracy over the epochs, of ResNet18, the quadratic encoding, the learned one, and with content.

    Takes the records that there are, several seeds too: their mean, and a band from the lowest to the highest. For runs of the
    paper tier a triangle at the right edge stands at the published accuracy. A model without a record is named with its `state`,
    as `pages.Records.state` gives it.
    """
    return _accuracy_curves(records, FIGURE_2, state)


def figure_13(records: Sequence[RunRecord], state: Callable[[str], str] = lambda model: "not run") -> Figure:
    """Figure 13: as Figure 2, with the generalised quadratic encoding and, continuing it, the pruned model."""
    return _accuracy_curves(records, FIGURE_13, state)


def _accuracy_curves(records: Sequence[RunRecord], models: Sequence[str], state: Callable[[str], str]) -> Figure:
    figure, axes = _subplots(1, 1, 7, 3.8, lines=True)
    ax = axes[0, 0]
    paper = any(record.tier == "paper" for record in records)  # beside whose accuracies the published ones may stand
    shown = []
    for model in models:
        color, style = CURVE_STYLES[model]
        runs = [record for record in records if record.info.parameters["model"] == model and record.metrics]
        label = TABLE_4[model].label
        if not runs:
            ax.plot([], [], style, color=color, label=f"{label}: {state(model).partition(':')[0]}")
        shown += runs
        lengths = {len(record.metrics) for record in runs}
        for group in [[record for record in runs if len(record.metrics) == length] for length in sorted(lengths)]:
            start = (group[0].info.parent or {}).get("epochs", 0)  # a pruned model goes on where its parent ended
            accuracy = np.array([[entry["test_accuracy"] for entry in record.metrics] for record in group])
            steps = start + np.arange(1, accuracy.shape[1] + 1)
            seeds = f" ({len(group)} seeds)" if len(group) > 1 else ""
            ax.plot(steps, accuracy.mean(axis=0), style, color=color, lw=1.5, label=f"{label}{seeds}")
            if len(group) > 1:
                ax.fill_between(steps, accuracy.min(axis=0), accuracy.max(axis=0), color=color, alpha=0.2, lw=0)
        if paper and TABLE_4[model].accuracy:
            place = (1.0, TABLE_4[model].accuracy)
            ax.plot(*place, marker=4, ms=8, color=color, transform=ax.get_yaxis_transform(), clip_on=False)
    ax.set(xlabel="epoch", ylabel="test accuracy", ylim=(0.5, 1.0) if paper else None)
    ax.xaxis.set_major_locator(plt.MaxNLocator(integer=True))
    ax.grid(color="0.92")
    if not shown:
        ax.set(xticks=[], yticks=[])  # there is nothing to measure
    title = "triangles: published accuracy" if paper else None
    ax.legend(fontsize=8, loc="lower right", title=title, title_fontsize=8)
    return _finish(figure, _sources(shown))


def _sources(records: Sequence[RunRecord]) -> str:
    if len(records) == 1:
        return records[0].source
    return textwrap.fill(", ".join(record.name for record in records), 110)


SHARE_STYLES = {0.5: "solid", 0.9: "dotted"}


def mass_threshold(probabilities: np.ndarray, share: float) -> float:
    """The level above which the largest probabilities hold `share` of the mass: the border of a highest-density region."""
    ordered = np.sort(probabilities.ravel())[::-1]
    return float(ordered[np.searchsorted(ordered.cumsum(), share * ordered.sum())])


def figure_3(record: RunRecord, layer: int | None = None, panels: int = 6) -> Figure:
    """Figure 3: one layer's heads at several moments of training; by default the fourth of six layers.

    Per head the contours holding 50 % (solid) and 90 % (dotted) of the softmax mass on 11 x 11 pixels around the query (black
    square), a dot at its centre or, where that lies beyond the frame, a ring on the frame.
    """
    epochs = _with_centers(record).attention["epochs"].tolist()
    wanted = epochs[-1] * np.linspace(0, 1, panels) ** 2  # early epochs move more
    moments = sorted({int(np.abs(np.array(epochs) - epoch).argmin()) for epoch in wanted})
    layer = layer or len(record.layers("centers")) // 2 + 1
    encodings = [record.encodings(moment)[layer - 1] for moment in moments]
    return _head_panels(encodings, [f"epoch {epochs[moment]}" for moment in moments], f"layer {layer}, {record.source}")


def figure_4(record: RunRecord) -> Figure:
    """Figure 4: the heads of each layer at the end of training; contours as in `figure_3`."""
    encodings = _with_centers(record).encodings()
    return _head_panels(encodings, [f"layer {layer + 1}" for layer in range(len(encodings))], record.source)


def figure_12(record: RunRecord) -> Figure:
    """Figure 12: as Figure 4, of the generalised quadratic encoding, whose heads may be ellipses."""
    return figure_4(record)


def figure_14(record: RunRecord) -> Figure:
    """Figure 14: as Figure 4, of the network with 16 heads a layer; the contours at 50 % alone, 90 % would cover each other."""
    return figure_4(record)


def _with_centers(record: RunRecord) -> RunRecord:
    if not record.layers("centers"):
        raise ValueError(f"{record.name} has no centres of attention; expected a run with a quadratic encoding")
    return record


def _head_panels(encodings: Sequence[PositionEncoding], titles: Sequence[str], source: str) -> Figure:
    crowded = encodings[0].num_heads > 9
    columns = 2 if crowded else min(3, len(encodings))
    rows = -(-len(encodings) // columns)
    side = 3.9 if crowded else 2.7
    figure, axes = _subplots(rows, columns, side * columns, (side + 0.3) * rows + 0.5, lines=True, sharex=True, sharey=True)
    for ax in axes.flat[len(encodings) :]:
        ax.set_axis_off()
    for ax, encoding, title in zip(axes.flat, encodings, titles, strict=False):
        _draw_heads(ax, encoding, shares=(0.5,) if crowded else (0.5, 0.9))
        ax.set_title(title, fontsize=9)
    for ax in axes[:, 0]:
        ax.set_ylabel(r"row shift $\delta_1$", fontsize=8)
    for ax in axes.flat[max(0, len(encodings) - columns) : len(encodings)]:
        ax.set_xlabel(r"column shift $\delta_2$", fontsize=8)
        ax.tick_params(labelbottom=True)
    return _finish(figure, source)


def _draw_heads(ax: Axes, encoding: PositionEncoding, shares: Sequence[float], half_window: float = 4.5) -> None:
    """Per head the contours holding these shares, 50 % (solid) or 90 % (dotted), of the softmax mass on 11 x 11 pixels around
    the query. A dot at its centre, or a ring on the frame towards it where the centre lies beyond.
    """
    encoding = encoding.double()  # in float32 the contours of nearly uniform heads are ragged
    fine = torch.linspace(-half_window, half_window, 109).double()
    pixels = torch.arange(-5, 6)
    with torch.no_grad():
        on_pixels = encoding.scores(_mesh(pixels)).flatten(1)
        on_fine = encoding.scores(_mesh(fine))
    norm = on_pixels.logsumexp(dim=1)
    for head, log_mass in enumerate(on_pixels - norm[:, None]):
        density = (on_fine[head] - norm[head]).numpy()
        color = _color(head)
        for share in shares:
            level = np.log(max(mass_threshold(log_mass.exp().double().numpy(), share), 1e-300))
            if density.min() < level <= density.max():
                ax.contour(fine, fine, density, levels=[level], colors=[color], linestyles=SHARE_STYLES[share], linewidths=1.4)
        row, column = encoding.centers[head].tolist()
        inside = max(abs(row), abs(column)) <= half_window
        place = [min(max(value, -half_window), half_window) for value in (column, row)]  # x, y
        ink = {"color": color, "path_effects": [_halo("white")]}  # seen on the query's square too
        ax.plot(*place, "o", ms=3 if inside else 6, mfc=color if inside else "none", clip_on=False, **ink)
        offset = (2, 2) if inside else (-6 if column > half_window else 4, -9 if row < -half_window else 5)
        ax.annotate(str(head + 1), place, xytext=offset, textcoords="offset points", fontsize=8, **ink)
    ax.add_patch(plt.Rectangle((-0.5, -0.5), 1, 1, color="black", alpha=0.85, zorder=0.5))
    ax.set(
        xlim=(-half_window, half_window),
        ylim=(half_window, -half_window),
        aspect="equal",
        xticks=range(-4, 5, 2),
        yticks=range(-4, 5, 2),
    )
    ax.tick_params(labelsize=6)
    ax.grid(color="0.9", lw=0.5)


def _mesh(axis: Tensor) -> Tensor:
    return torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)


def figure_5(record: RunRecord, zoom: int = 7) -> Figure:
    """Figure 5: learned position-only attention, layers below one another, heads side by side with the most local first.

    The `zoom` x `zoom` pixels around the middle query pixel; each map on its own scale, above it the mean probability of its
    best shift.
    """
    layers = heads_of(record)
    rows = [[heads.maps[head] for head in heads.by_locality()] for heads in layers]
    titles = [[f"{heads.mass[head]:.2f}" for head in heads.by_locality()] for heads in layers]
    (row, column), reach = layers[0].query, zoom // 2
    window = slice(max(row - reach, 0), row + reach + 1), slice(max(column - reach, 0), column + reach + 1)
    query = row - window[0].start, column - window[1].start
    return _map_table([[full[window] for full in line] for line in rows], query, record.source, titles)


def figure_6(record: RunRecord) -> Figure:
    """Figure 6: attention with content, averaged over test images, from the query pixel in the middle."""
    return _mean_maps(record, record.grid[0] // 2, record.grid[1] // 2)


def figure_7(record: RunRecord) -> Figure:
    """Figure 7: as Figure 6, from another query pixel."""
    return _mean_maps(record, record.grid[0] // 5, record.grid[1] // 5)


def _with_content(record: RunRecord) -> RunRecord:
    if "mean_maps" not in record.attention:
        raise ValueError(f"{record.name} has no maps of single images; expected a run of sa-learned-content")
    return record


def _mean_maps(record: RunRecord, row: int, column: int) -> Figure:
    attention = _with_content(record).attention
    number = query_number(attention["queries"], row, column)
    return _map_table(attention["mean_maps"][:, :, number].float(), (row, column), record.source)


def figure_8(record: RunRecord) -> Figure:
    """Figure 8: attention with content on a single image, the first of the test set, or else a photograph; see `figure_10`."""
    return _single_image(record, 0, "china", 4)


def figure_9(record: RunRecord) -> Figure:
    """Figure 9: as Figure 8, on the second image of the test set, or else another photograph."""
    return _single_image(record, 1, "flower", 4)


def figure_10(record: RunRecord) -> Figure:
    """Figure 10: as Figure 8, on the third image of the test set, or else a photograph from a query pixel in its background.

    The data set's own images are shown where this machine has the data that the record names; they are no part of the project.
    """
    return _single_image(record, 2, "china", 1)


def _single_image(record: RunRecord, number: int, photograph: str, query: int) -> Figure:
    attention, dataset = _with_content(record).attention, dataset_at_hand(record.info.dataset["name"])
    if dataset and dataset.fingerprint == record.info.dataset["fingerprint"]:
        image, query = dataset.test_images[number].permute(1, 2, 0) / 255, 4
        maps, name = single_maps(attention, "image")[number], f"test image {number + 1} of {dataset.name}"
    else:
        image = load_photograph(photograph, (32, 32))
        maps = single_maps(attention, "photograph")[PHOTOGRAPHS.index(photograph)]
        name = f"scikit-learn's photograph {photograph}.jpg, since {record.info.dataset['name']} is not on this machine"
    maps, position = maps[:, :, query], attention["queries"][query].tolist()
    figure = plt.figure(figsize=(10, 1.15 * len(maps) + 0.3), dpi=DPI, layout="constrained", facecolor="white")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 3.4))
    ax = left.subplots()
    scale = image.shape[0] // record.grid[0]  # image pixels to a query pixel
    ax.imshow(image.squeeze(-1).numpy().clip(0, 1), cmap="gray")
    _mark(ax, [scale * (place + 0.5) - 0.5 for place in position], size=scale)
    ax.set_title("the image and the query pixel", fontsize=8)
    _bare(ax)
    _fill_maps(right.subplots(len(maps), maps.shape[1], squeeze=False), maps, position, None)
    return _finish(figure, f"{name} | {record.source}")


def _map_table(
    rows: Sequence[Sequence[Tensor]], query: Sequence[int], source: str, titles: Sequence[Sequence[str]] | None = None
) -> Figure:
    """Maps of layers (rows) and heads (columns), each on its own scale."""
    columns = max(len(line) for line in rows)
    figure, axes = _subplots(len(rows), columns, 1.05 * columns + 0.3, (1.25 if titles else 1.1) * len(rows) + 0.3)
    _fill_maps(axes, rows, query, titles)
    return _finish(figure, source)


def _fill_maps(axes: np.ndarray, rows: Sequence[Sequence[Tensor]], query: Sequence[int], titles) -> None:
    for layer, (line, maps) in enumerate(zip(axes, rows, strict=True)):
        for head, ax in enumerate(line):
            _bare(ax)
            if head >= len(maps):
                ax.set_axis_off()
                continue
            ax.imshow(maps[head].numpy(), cmap="cividis", vmin=0)
            _mark(ax, query)
            if titles:
                ax.set_title(titles[layer][head], fontsize=7, pad=2)
        line[0].set_ylabel(f"layer {layer + 1}", fontsize=8)


def figure_11(
    W_conv: Tensor | None = None, E_q: Tensor | None = None, W_SA: Tensor | None = None, A_q: Tensor | None = None
) -> Figure:
    """Figure 11: the factorisations V_q^conv = W^conv E_q (top) and V_q^SA = W^SA A_q (bottom) of Lemma 3, computed.

    W_conv `(D_in * D_out, K^2)`, E_q `(K^2, T)`, W_SA `(D_in * D_out, N_h)`, A_q `(N_h, T)`; by default the paper's sizes:
    a 2 x 2 kernel, five heads, two input and three output channels.
    """
    if W_conv is None:
        W_conv, E_q, W_SA, A_q = _factorisation()
    rows = (
        (W_conv, E_q, r"$W^{\mathrm{conv}}$", r"$E_q$", r"$V_q^{\mathrm{conv}}$"),
        (W_SA, A_q, r"$W^{\mathrm{SA}}$", r"$A_q$", r"$V_q^{\mathrm{SA}}$"),
    )
    widths = [E_q.shape[1], max(W_conv.shape[1], W_SA.shape[1]) * 1.6, E_q.shape[1]]
    figure, axes = _subplots(2, 3, 8, 3.6, width_ratios=widths)
    largest = float(W_conv.abs().max())
    for line, (W, basis, *names) in zip(axes, rows, strict=True):
        for ax, matrix, name, cmap, limit in zip(
            line,
            (W @ basis, W, basis),
            (names[2], names[0], names[1]),
            ("PuOr", "PuOr", "cividis"),
            (largest, None, None),
            strict=True,
        ):
            limit = limit or float(matrix.abs().max())
            ax.imshow(matrix.numpy(), cmap=cmap, vmin=-limit if cmap == "PuOr" else 0, vmax=limit, aspect="auto")
            ax.set_title(f"{name}  {matrix.shape[0]} × {matrix.shape[1]}", fontsize=9)
            _bare(ax)
        line[0].annotate("=", (1.0, 0.5), xytext=(4, 0), xycoords="axes fraction", textcoords="offset points", va="center")
    return _finish(figure)


def _factorisation(height: int = 4, width: int = 6, query: tuple[int, int] = (1, 2)) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A random 2 x 2 convolution, and five heads that blend its four pixels and attention to all alike."""
    generator = torch.Generator().manual_seed(0)
    queries, targets = shift_targets(height, width, (2, 2))
    E_q = targets[query_number(queries, *query)]  # (4, T)
    W_conv = torch.randn(6, 4, generator=generator).double()
    basis = torch.cat([E_q, torch.full_like(E_q[:1], 1 / E_q.shape[1])])
    blend = torch.rand(5, 5, generator=generator).double().softmax(dim=1)
    A_q = blend @ basis
    phi = torch.linalg.lstsq(A_q.mT, E_q.mT).solution.mT  # E_q = Phi A_q
    return W_conv, E_q, W_conv @ phi, A_q


# --- beyond the paper: the heads in numbers -------------------------------------------------------------------------


def head_locality(record: RunRecord) -> Figure:
    """Per layer and head, how close to Lemma 1: the mean probability of its best single shift, how many pixels it sees, and,
    where it has a centre, how far that is from a pixel. A grey bar stands at the median.
    """
    layers = heads_of(record)
    values = {
        "mass at the best shift": [heads.mass for heads in layers],
        "effective pixels, exp(entropy)": [heads.entropy.exp() for heads in layers],
    }
    if layers[0].centers is not None:
        values["centre to the nearest pixel"] = [heads.off_pixel for heads in layers]
    figure, axes = _subplots(1, len(values), 3 * len(values) + 1, 3.2, lines=True)
    for ax, (label, by_layer) in zip(axes.flat, values.items(), strict=True):
        for layer, of_heads in enumerate(by_layer, start=1):
            places = layer + np.linspace(-0.28, 0.28, len(of_heads))
            for head, value in enumerate(of_heads.tolist()):
                ax.plot(places[head], value, "o", ms=4, color=_color(head))
            ax.plot([layer - 0.35, layer + 0.35], [of_heads.median()] * 2, color="0.35", lw=1)
        ax.set(xlabel="layer", ylabel=label, xticks=range(1, len(layers) + 1))
        ax.grid(color="0.92", axis="y")
    axes[0, 0].set_ylim(-0.03, 1.03)
    powers = [2**n for n in range(0, 12, 2) if 2**n <= 2 * layers[0].maps[0].numel()]
    axes[0, 1].set(yscale="log", yticks=powers, yticklabels=powers)
    axes[0, 1].minorticks_off()
    return _finish(figure, record.source)


def exactness(record: RunRecord) -> Figure:
    """What softness costs: the mass that a quadratic head gives to other pixels, against alpha, for centres on a pixel and off
    it; and below, each layer's trained alphas."""
    trained = [alpha[-1] for alpha in record.layers("alpha")]
    if not trained:
        raise ValueError(f"{record.name} has no alpha; expected a run of sa-quadratic or sa-quadratic-16")
    alphas = torch.logspace(-2, 2, 200)
    figure, axes = _subplots(2, 1, 6.5, 4.6, lines=True, sharex=True, height_ratios=(2, 1))
    upper, lower = axes[:, 0]
    places = {"on a pixel": (0.0, 0.0), "a quarter off": (0.25, 0.0), "half-way": (0.5, 0.0)}
    for number, (name, offset) in enumerate(places.items()):
        upper.plot(alphas, lost_mass(alphas, offset), ("-", "--", "-.")[number], color=_color(number), label=name)
    upper.set(ylabel="1 - mass at the best shift", yscale="log", xscale="log", ylim=(1e-16, 2))
    upper.legend(fontsize=8, title="centre", title_fontsize=8)
    for layer, alpha in enumerate(trained, start=1):
        for head, value in enumerate(alpha.tolist()):
            lower.plot(min(max(value, 0.01), 100), layer, "|", ms=9, mew=1.6, color=_color(head))
    lower.set(xlabel=r"$\alpha$", ylabel="layer", yticks=range(1, len(trained) + 1), ylim=(len(trained) + 0.6, 0.4))
    for ax in axes.flat:
        ax.grid(color="0.92")
    return _finish(figure, record.source)


# --- the chapters' own figures --------------------------------------------------------------------------------------


def network(model: SelfAttentionNet, image_size: int) -> Figure:
    """The network of section 4.1 with a model's own sizes, from image to logits (top), and one of its blocks (bottom)."""
    side, hidden = image_size // model.pooling, model.embedding.out_features
    heads = sorted({layer.num_heads for layer in model.attentions})
    p, block = model.pooling, model.blocks[0]
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
        f"perceptron\n{hidden} → {block.mlp[0].out_features}\n→ {hidden}",
        "add,\nLayerNorm",
    ]
    figure, axes = _subplots(1, 1, 8, 3.1, lines=True)
    ax = axes[0, 0]
    ax.set(xlim=(-0.1, 11.6), ylim=(0, 4.2))
    ax.set_axis_off()
    _chain(ax, from_image_to_logits, 3.6, (3,))
    _chain(ax, in_a_block, 1.0, (0,), start=1.0)
    ax.text(0, 2.25, "one block:", fontsize=8, ha="left")
    for start, end in ((0.75, 5.75), (6.75, 9.75)):  # the residuals, around what they are added to
        ax.plot([start, start, end], [1.0, 0.1, 0.1], color="black", lw=0.8)
        ax.annotate("", (end, 0.5), (end, 0.1), arrowprops={"arrowstyle": "->", "shrinkA": 0})
    return _finish(figure)


def _chain(ax: Axes, texts: Sequence[str], height: float, marked: Sequence[int], start: float = 0.0) -> None:
    """Boxes from left to right with arrows between them; `marked` ones, where attention is, in colour."""
    for number, text in enumerate(texts):
        left = start + 2 * number
        color = "#CDE4F3" if number in marked else "#F2F2F2"
        ax.add_patch(plt.Rectangle((left, height - 0.5), 1.5, 1.0, facecolor=color, edgecolor="black", lw=0.8))
        ax.text(left + 0.75, height, text, ha="center", va="center", fontsize=7.5)
        if number or start:
            ax.annotate("", (left, height), (left - 0.5, height), arrowprops={"arrowstyle": "->", "shrinkA": 0, "shrinkB": 0})


def image_grid(images: Sequence[Tensor], titles: Sequence[str]) -> Figure:
    """Images, two in a row if there are four: `(H, W, 3)` in colour from 0 to 1, `(H, W)` signed, each on its own scale."""
    columns = 2 if len(images) == 4 else len(images)
    rows = len(images) // columns
    aspect = images[0].shape[0] / images[0].shape[1]
    width = 7.5 / columns
    figure, axes = _subplots(rows, columns, 7.5, rows * (0.86 * width * aspect + 0.35))
    for ax, image, title in zip(axes.flat, images, titles, strict=True):
        if image.ndim == 3:
            ax.imshow(image.numpy().clip(0, 1))
        else:
            limit = float(image.abs().max())
            shown = ax.imshow(image.numpy(), cmap="PuOr", vmin=-(limit or 1), vmax=limit or 1)
            if limit:
                figure.colorbar(shown, ax=ax, shrink=0.8).ax.tick_params(labelsize=7)
            else:
                title += ": exactly zero"
        ax.set_title(title, fontsize=9)
        _bare(ax)
    return _finish(figure)


def claim() -> Figure:
    """The theorem in one picture: the vertical Sobel filter on a photograph, by convolution and by nine heads, and the gap."""
    sobel = torch.nn.Conv2d(1, 1, kernel_size=3, padding=1, padding_mode="replicate", bias=False).double()
    sobel.weight.data = torch.tensor([[[[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]]]).double()
    image, query = load_photograph("china", (72, 108)).double(), (40, 40)
    grey = image.mean(dim=2)[None, None]
    by_conv, by_attention = (layer(grey)[0, 0].detach() for layer in (sobel, conv_to_attention(sobel)))
    titles = ["one query, nine heads", "by convolution", "by self-attention", "difference"]
    figure = image_grid([image, by_conv, by_attention, by_attention - by_conv], titles)
    ax = figure.axes[0]
    for head, (row, column) in enumerate((torch.tensor(query) + 6 * shift_set((3, 3))).tolist()):  # spread six-fold, to be seen
        ax.plot(column, row, "o", ms=6, mfc="none", mec=_color(head), mew=1.8)
    _mark(ax, query, size=4)
    return figure


def score_maps(maps: Tensor, titles: Sequence[str], query: Sequence[int]) -> Figure:
    """Signed score maps `(n, H, W)` of one query pixel, each on its own scale, two in a row."""
    figure, axes = _subplots(-(-len(maps) // 2), 2, 7, 2.5 * -(-len(maps) // 2))
    for ax, scores, title in zip(axes.flat, maps, titles, strict=True):
        limit = max(float(scores.abs().max()), 1e-12)
        shown = ax.imshow(scores.numpy(), cmap="PuOr", vmin=-limit, vmax=limit)
        figure.colorbar(shown, ax=ax, shrink=0.8).ax.tick_params(labelsize=7)
        _mark(ax, query)
        ax.set_title(title, fontsize=9)
        _bare(ax)
    return _finish(figure)


def attention_maps(probabilities: Tensor, query: Sequence[int], titles: Sequence[str] | None = None, columns: int = 9) -> Figure:
    """Where each head looks from one query pixel: `(N_h, H, W, H, W)`, all on one scale from 0 to the largest probability."""
    maps = probabilities[:, query[0], query[1]].detach()
    heads = len(maps)
    columns = min(columns, heads)
    rows = -(-heads // columns)
    side = 1.25 if columns > 4 else 2.0
    figure, axes = _subplots(rows, columns, side * columns + 0.6, (side + 0.15) * rows + 0.1)
    for head, ax in enumerate(axes.flat):
        _bare(ax)
        if head >= heads:
            ax.set_axis_off()
            continue
        shown = ax.imshow(maps[head].numpy(), cmap="cividis", vmin=0, vmax=float(maps.max()))
        _mark(ax, query)
        ax.set_title(titles[head] if titles else f"head {head + 1}", fontsize=8)
    figure.colorbar(shown, ax=axes, shrink=0.8).ax.tick_params(labelsize=6)
    return _finish(figure)


def alpha_curves(alphas: Sequence[float], curves: dict[str, Sequence[float]], derived: dict[str, float], ylabel: str) -> Figure:
    """A quantity against alpha, a line per dtype (keys of `curves`), with the derived threshold of each as a vertical line."""
    figure, axes = _subplots(1, 1, 6.5, 3.6, lines=True)
    ax = axes[0, 0]
    for name, values in curves.items():
        color, style = DTYPE_STYLES[name]
        ax.plot(alphas, np.maximum(values, 1e-330), style, color=color, label=name)
        ax.axvline(derived[name], color=color, linestyle=style, lw=0.7, alpha=0.7)
    ax.set(xlabel=r"$\alpha$", ylabel=ylabel, yscale="log", xscale="log")
    ax.legend(fontsize=8)
    ax.grid(color="0.92")
    return _finish(figure)


def head_paths(centers: Tensor) -> Figure:
    """How the centres moved: `(steps, N_h, 2)`, start as a ring, end as a disc, over the grid of pixel shifts."""
    figure, axes = _subplots(1, 1, 4.6, 4.4, lines=True)
    ax = axes[0, 0]
    reach = max(2.5, float(centers.abs().max()) + 0.4)
    for head in range(centers.shape[1]):
        color = _color(head)
        rows, columns = centers[:, head].T.numpy()
        ax.plot(columns, rows, color=color, lw=1)
        ax.plot(columns[0], rows[0], "o", mfc="white", mec=color, ms=6)
        ax.plot(columns[-1], rows[-1], "o", color=color, ms=7)
        ax.annotate(str(head + 1), (columns[0], rows[0]), xytext=(5, 4), textcoords="offset points", fontsize=8, color=color)
    ax.add_patch(plt.Rectangle((-1.5, -1.5), 3, 3, fill=False, color="0.5", ls="--", lw=0.8))
    ax.set(
        xlim=(-reach, reach),
        ylim=(reach, -reach),
        aspect="equal",
        xlabel=r"column shift $\Delta_2$",
        ylabel=r"row shift $\Delta_1$",
    )
    ax.xaxis.set_major_locator(plt.MultipleLocator(1))
    ax.yaxis.set_major_locator(plt.MultipleLocator(1))
    ax.grid(color="0.88")
    return _finish(figure)


def curves(
    series: dict[str, Sequence[float]], xlabel: str, ylabel: str, x: Sequence[float] | None = None, log: str = ""
) -> Figure:
    """Lines by name against a common x (1, 2, ... if None); `log` names the axes ("x", "y", "xy") that are logarithmic."""
    figure, axes = _subplots(1, 1, 6, 3.2, lines=True)
    ax = axes[0, 0]
    for number, (name, values) in enumerate(series.items()):
        steps = x if x is not None else range(1, len(values) + 1)
        style = ("-", "--", "-.", ":")[number % 4]
        ax.plot(steps, values, style, color=_color(number), label=name)
    ax.set(xlabel=xlabel, ylabel=ylabel, xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    ax.grid(color="0.92")
    if len(series) > 1:
        ax.legend(fontsize=8)
    return _finish(figure)


def head_maps(maps: Tensor, title: str, mark_zero: bool = False, columns: int = 9) -> Figure:
    """One map per head, `(N_h, rows, columns)`, each on its own scale: kernels, with a cross at shift zero, or border factors."""
    heads = len(maps)
    columns = min(columns, heads)
    rows = -(-heads // columns)
    figure, axes = _subplots(rows, columns, 1.5 * columns, 2.0 * rows + 0.3)
    for head, ax in enumerate(axes.flat):
        _bare(ax)
        if head >= heads:
            ax.set_axis_off()
            continue
        shown = ax.imshow(maps[head].detach().numpy(), cmap="cividis")
        if mark_zero:
            ax.plot(maps.shape[2] // 2, maps.shape[1] // 2, "+", ms=7, color="white", path_effects=[_halo("black")])
        figure.colorbar(shown, ax=ax, location="bottom", ticks=plt.MaxNLocator(2)).ax.tick_params(labelsize=6)
        ax.set_title(f"head {head + 1}", fontsize=8)
    figure.suptitle(title, fontsize=9)
    return _finish(figure)


def residual_grid(residuals: Sequence[Tensor], titles: Sequence[str]) -> Figure:
    """Lemma 3's residual per shift, `(K_1, K_2)` each, written in its cell: 0 where the heads can be mixed to it."""
    figure, axes = _subplots(1, len(residuals), 2.3 * len(residuals), 2.5)
    for ax, residual, title in zip(axes.flat, residuals, titles, strict=True):
        ax.imshow(residual.numpy(), cmap="cividis", vmin=0, vmax=1)
        for (i, j), value in np.ndenumerate(residual.numpy()):
            ax.text(
                j,
                i,
                f"{value:.0e}" if value < 0.01 else f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if value < 0.5 else "black",
            )
        ax.set_title(title, fontsize=9)
        _bare(ax)
    return _finish(figure)
