"""One function per figure. Each takes tensors, a record or a model and returns a matplotlib figure; none trains.

Colours: Okabe and Ito's for heads, which the colour-blind can tell apart, with the head's number beside each; cividis for
amounts, PuOr for signed values. Letters: N_h heads, H x W pixels.
"""

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

HEAD_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C7A00", "#7F7F7F")
DTYPE_STYLES = {
    "float64": ("#000000", "-"),
    "float32": ("#0072B2", "--"),
    "bfloat16": ("#D55E00", "-."),
    "float16": ("#009E73", ":"),
}
DPI = 120


def _finish(figure: Figure) -> Figure:
    plt.close(figure)  # the notebook shows what a cell returns; left open it would be shown twice
    return figure


def _subplots(rows: int, columns: int, width: float, height: float, **options) -> tuple[Figure, np.ndarray]:
    figure, axes = plt.subplots(
        rows, columns, figsize=(width, height), dpi=DPI, squeeze=False, layout="constrained", facecolor="white", **options
    )
    return figure, axes


def _bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])


def _mark(ax: Axes, query: Sequence[int], size: float = 1.0) -> None:
    row, column = query
    ax.add_patch(plt.Rectangle((column - size / 2, row - size / 2), size, size, fill=False, color="black", lw=1.8))
    ax.add_patch(plt.Rectangle((column - size / 2, row - size / 2), size, size, fill=False, color="white", lw=0.7))


# --- the paper's figures --------------------------------------------------------------------------------------------


def figure_1(image: Tensor, probabilities: Tensor, query: Sequence[int]) -> Figure:
    """Figure 1: an image `(H, W, 3)` with the query pixel, and where each head of `(N_h, H, W, H, W)` looks from it."""
    heads = len(probabilities)
    side = int(np.ceil(np.sqrt(heads)))
    figure = plt.figure(figsize=(8, 4), dpi=DPI, layout="constrained", facecolor="white")
    left, right = figure.subfigures(1, 2)
    ax = left.subplots()
    ax.imshow(image.numpy().clip(0, 1))
    maps = probabilities[:, query[0], query[1]]  # (N_h, H, W)
    for head in range(heads):
        row, column = np.unravel_index(int(maps[head].argmax()), maps.shape[1:])
        ax.plot(column, row, "s", ms=9, mfc="none", mec=HEAD_COLORS[head % len(HEAD_COLORS)], mew=2)
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
        ax.set_title(f"head {head + 1}", fontsize=8, color=HEAD_COLORS[head % len(HEAD_COLORS)])
    return _finish(figure)


def mass_threshold(probabilities: np.ndarray, share: float) -> float:
    """The level above which the largest probabilities hold `share` of the mass: the border of a highest-density region."""
    ordered = np.sort(probabilities.ravel())[::-1]
    return float(ordered[np.searchsorted(ordered.cumsum(), share * ordered.sum())])


def _draw_heads(ax: Axes, encoding_scores: Callable[[Tensor], Tensor], half_window: float = 4.5) -> None:
    """Per head the contours holding 50 % (solid) and 90 % (dotted) of the softmax mass around a central query."""
    fine = torch.linspace(-half_window, half_window, 181)
    pixels = torch.arange(-5, 6)
    with torch.no_grad():
        on_pixels = encoding_scores(_mesh(pixels)).flatten(1)
        on_fine = encoding_scores(_mesh(fine))
    norm = on_pixels.logsumexp(dim=1)
    for head, log_mass in enumerate(on_pixels - norm[:, None]):
        density = (on_fine[head] - norm[head]).numpy()
        color = HEAD_COLORS[head % len(HEAD_COLORS)]
        for share, style in ((0.5, "solid"), (0.9, "dotted")):
            level = np.log(max(mass_threshold(log_mass.exp().double().numpy(), share), 1e-300))
            if density.min() < level <= density.max():
                ax.contour(fine, fine, density, levels=[level], colors=[color], linestyles=style, linewidths=1.4)
        row, column = np.unravel_index(density.argmax(), density.shape)
        ax.plot(fine[column], fine[row], "o", ms=3, color=color)
        ax.annotate(str(head + 1), (fine[column], fine[row]), xytext=(2, 2), textcoords="offset points", fontsize=7, color=color)
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


def _isotropic(centers: Tensor, alpha: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda delta: -alpha[:, None, None] * (delta - centers[:, None, None]).square().sum(dim=-1)


def figure_3(centers: Tensor, alpha: Tensor, moments: Sequence[str]) -> Figure:
    """Figure 3: one layer's heads at several moments of training. centers `(moments, N_h, 2)`, alpha `(moments, N_h)`."""
    figure, axes = _subplots(1, len(moments), 2.3 * len(moments), 2.6)
    for ax, centers_then, alpha_then, title in zip(axes.flat, centers, alpha, moments, strict=True):
        _draw_heads(ax, _isotropic(centers_then, alpha_then))
        ax.set_title(title, fontsize=9)
    return _finish(figure)


def figure_4(centers: Tensor, alpha: Tensor) -> Figure:
    """Figure 4: the heads of each layer at the end of training. centers `(layers, N_h, 2)`, alpha `(layers, N_h)`."""
    layers = [f"layer {layer + 1}" for layer in range(len(centers))]
    return figure_3(centers, alpha, layers)


def figure_11(W_conv: Tensor, E_q: Tensor, W_SA: Tensor, A_q: Tensor) -> Figure:
    """Figure 11: the factorisations V_q^conv = W^conv E_q (top) and V_q^SA = W^SA A_q (bottom) of Lemma 3, computed.

    W_conv `(D_in * D_out, K^2)`, E_q `(K^2, T)`, W_SA `(D_in * D_out, N_h)`, A_q `(N_h, T)`.
    """
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


# --- the chapters' own figures --------------------------------------------------------------------------------------


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


def claim(image: Tensor, shifts: Tensor, query: Sequence[int], by_conv: Tensor, by_attention: Tensor) -> Figure:
    """The theorem in one picture: what heads at `shifts` `(N_h, 2)` attend to, both layers' outputs `(H, W)`, the gap."""
    titles = ["one query, nine heads", "by convolution", "by self-attention", "difference"]
    figure = image_grid([image, by_conv, by_attention, by_attention - by_conv], titles)
    ax = figure.axes[0]
    for head, (row, column) in enumerate((torch.tensor(query) + shifts).tolist()):
        ax.plot(column, row, "o", ms=6, mfc="none", mec=HEAD_COLORS[head % len(HEAD_COLORS)], mew=1.8)
    _mark(ax, query, size=4)
    return figure


def score_maps(maps: Tensor, titles: Sequence[str], query: Sequence[int]) -> Figure:
    """Signed score maps `(n, H, W)` of one query pixel, each on its own scale."""
    figure, axes = _subplots(1, len(maps), 2.1 * len(maps), 2.4)
    for ax, scores, title in zip(axes.flat, maps, titles, strict=True):
        limit = max(float(scores.abs().max()), 1e-12)
        ax.imshow(scores.numpy(), cmap="PuOr", vmin=-limit, vmax=limit)
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
    figure, axes = _subplots(rows, columns, 1.25 * columns + 0.6, 1.4 * rows + 0.1)
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
    figure, axes = _subplots(1, 1, 6.5, 3.6)
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
    figure, axes = _subplots(1, 1, 4.6, 4.4)
    ax = axes[0, 0]
    reach = max(2.5, float(centers.abs().max()) + 0.4)
    for head in range(centers.shape[1]):
        color = HEAD_COLORS[head % len(HEAD_COLORS)]
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
    figure, axes = _subplots(1, 1, 6, 3.2)
    ax = axes[0, 0]
    for number, (name, values) in enumerate(series.items()):
        steps = x if x is not None else range(1, len(values) + 1)
        style = ("-", "--", "-.", ":")[number % 4]
        ax.plot(steps, values, style, color=HEAD_COLORS[number % len(HEAD_COLORS)], label=name)
    ax.set(xlabel=xlabel, ylabel=ylabel, xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    ax.grid(color="0.92")
    if len(series) > 1:
        ax.legend(fontsize=8)
    return _finish(figure)


def head_maps(maps: Tensor, title: str, cmap: str = "cividis", columns: int = 9) -> Figure:
    """One map per head, `(N_h, rows, columns)`, each on its own scale: kernels or border factors."""
    heads = len(maps)
    columns = min(columns, heads)
    rows = -(-heads // columns)
    figure, axes = _subplots(rows, columns, 1.25 * columns, 1.4 * rows + 0.3)
    for head, ax in enumerate(axes.flat):
        _bare(ax)
        if head >= heads:
            ax.set_axis_off()
            continue
        ax.imshow(maps[head].detach().numpy(), cmap=cmap)
        ax.set_title(f"head {head + 1}", fontsize=8)
    figure.suptitle(title, fontsize=9)
    return _finish(figure)


def residual_grid(residuals: Sequence[Tensor], titles: Sequence[str]) -> Figure:
    """Lemma 3's residual per shift, `(K_1, K_2)` each, written into its cell: 0 expressible, 1 not at all."""
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
