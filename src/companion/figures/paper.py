"""Figures from the paper: its idea (Figure 1), the accuracies (2 and 13) and Lemma 3 (11)."""

import textwrap
from collections.abc import Callable, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from attnconv.layers.attention import attention_probabilities
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.theory.expressivity import offset_targets
from attnconv.theory.grid import offset_set

from ..colors import head_color
from ..data import load_photograph
from ..runs.record import RunRecord
from ..specs import MODELS
from .style import bare, beside, crop, draw_line, draw_maps, finish, line_plot, subplots

NEAR = 5  # pixels on each side of the query that the maps of Figure 1 show
State = Callable[[str], str]  # says why the named model has no record
#: The models in Figure 2.
FIGURE_2 = ("resnet18", "sa-quadratic", "sa-learned", "sa-learned-content")
#: The models in Figure 13.
FIGURE_13 = tuple(model for model in MODELS if model != "sa-quadratic-16")


def figure_1(
    image: Tensor | None = None,
    probabilities: Tensor | None = None,
    query: Sequence[int] | None = None,
) -> Figure:
    """Draw Figure 1: an image `(H, W, 3)` with its query pixel, and each head's attention map.

    The maps show only the pixels inside the dashed frame around the query pixel.
    `probabilities` has the shape `(N_h, H, W, H, W)`; the default comes from nine quadratic
    heads centred on the offsets of a 3 x 3 kernel. The default image is a photograph, and the
    default query is its centre.
    """
    image = load_photograph("flower", (12, 16)) if image is None else image
    height, width = image.shape[:2]
    query = query or (height // 2, width // 2)
    if probabilities is None:
        encoding = QuadraticEncoding.from_alpha(offset_set((3, 3)).float(), alpha=2.0)
        probabilities = attention_probabilities(encoding, height, width)
    heads = len(probabilities)
    ax, right = beside(8, 3.4)
    ax.imshow(image.numpy().clip(0, 1))
    maps = probabilities[:, query[0], query[1]]  # (N_h, H, W)
    for head in range(heads):
        row, column = np.unravel_index(int(maps[head].argmax()), maps.shape[1:])
        ax.plot(column, row, "s", ms=7, mfc="none", mec=head_color(head), mew=2)
    ax.plot(query[1], query[0], "s", ms=3, color="black")  # fits inside the square of a head
    ax.set_title(
        "the image, the query pixel q (black)\nand the pixel each head attends to", fontsize=9
    )
    maps, (row, column) = crop(maps, query, NEAR)
    corner = query[1] - column - 0.5, query[0] - row - 0.5
    ax.add_patch(Rectangle(corner, maps.shape[2], maps.shape[1], fill=False, ls="--"))
    bare(ax)
    rows = int(np.ceil(np.sqrt(heads)))
    axes = right.subplots(rows, -(-heads // rows), squeeze=False)
    draw_maps(axes, maps, query=(row, column))
    for head in range(heads):
        axes.flat[head].spines[:].set(color=head_color(head), linewidth=2)
    return finish(right.figure)


def _not_run(model: str) -> str:
    return "not run"


def figure_2(records: Sequence[RunRecord], state: State = _not_run) -> Figure:
    """Draw Figure 2: test accuracy by epoch, for ResNet18 and three attention networks.

    If a model has several runs, their mean is drawn with a band from the lowest to the highest
    value. For runs of the paper tier, a triangle at the right edge marks the published accuracy. A
    model without a record appears in the legend with its `state`; see `Records.state`.
    """
    return _accuracy_curves(records, FIGURE_2, state)


def figure_13(records: Sequence[RunRecord], state: State = _not_run) -> Figure:
    """Draw Figure 13: Figure 2 plus the generalised quadratic encoding and the pruned network.

    The curve of the pruned network starts where the curve of its parent ends.
    """
    return _accuracy_curves(records, FIGURE_13, state)


def _accuracy_curves(records: Sequence[RunRecord], models: Sequence[str], state: State) -> Figure:
    figure, ax = line_plot(7, 3.8)
    # the published accuracies are drawn only beside such runs
    paper = any(record.tier == "paper" for record in records)
    shown = []
    for model in models:
        spec = MODELS[model]
        color, dashes = spec.curve
        runs = [r for r in records if r.info.parameters["model"] == model and r.metrics]
        shown += runs
        if not runs:
            label = f"{spec.label}: {state(model).partition(':')[0]}"
            ax.plot([], [], dashes, color=color, label=label)
        groups: dict[int, list[RunRecord]] = {}
        for run in runs:
            groups.setdefault(len(run.metrics), []).append(run)
        for epochs, group in sorted(groups.items()):
            # a pruned model continues where its parent ended
            start = group[0].parent.get("epochs", 0)
            accuracy = [[entry["test_accuracy"] for entry in run.metrics] for run in group]
            seeds = f" ({len(group)} seeds)" if len(group) > 1 else ""
            style = {"color": color, "linestyle": dashes, "label": f"{spec.label}{seeds}"}
            draw_line(ax, start + np.arange(1, epochs + 1), accuracy, **style)
        if paper and spec.published.accuracy:
            edge = {"transform": ax.get_yaxis_transform(), "clip_on": False}
            ax.plot(1.0, spec.published.accuracy, marker=4, ms=8, color=color, **edge)
    ax.set(xlabel="epoch", ylabel="test accuracy", ylim=(0.5, 1.0) if paper else None)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not shown:
        ax.set(xticks=[], yticks=[])  # there are no curves
    title = "triangles: published accuracy" if paper else None
    ax.legend(fontsize=8, loc="lower right", title=title, title_fontsize=8)
    return finish(figure, _sources(shown))


def _sources(records: Sequence[RunRecord]) -> str:
    if len(records) == 1:
        return records[0].source
    seeds: dict[str, list[str]] = {}
    for record in records:
        name, _, seed = record.name.rpartition("--seed")
        seeds.setdefault(name, []).append(seed)
    runs = (f"{name}, seed{'s'[: len(each) - 1]} {', '.join(each)}" for name, each in seeds.items())
    return textwrap.fill("; ".join(runs), 110)


def figure_11(
    W_conv: Tensor | None = None,
    E_q: Tensor | None = None,
    W_SA: Tensor | None = None,
    A_q: Tensor | None = None,
) -> Figure:
    """Draw Figure 11: the factorisations of Lemma 3, computed from the given matrices.

    The upper row shows V_q^conv = W^conv E_q, and the lower row shows V_q^SA = W^SA A_q. The shapes
    are `(D_in * D_out, K^2)` for W_conv, `(K^2, T)` for E_q, `(D_in * D_out, N_h)` for W_SA, and
    `(N_h, T)` for A_q. The default matrices have the paper's sizes: a 2 x 2 kernel, five heads, two
    input channels and three output channels.
    """
    if W_conv is None or E_q is None or W_SA is None or A_q is None:
        W_conv, E_q, W_SA, A_q = _factorisation()
    rows = (
        (W_conv, E_q, r"$W^{\mathrm{conv}}$", r"$E_q$", r"$V_q^{\mathrm{conv}}$"),
        (W_SA, A_q, r"$W^{\mathrm{SA}}$", r"$A_q$", r"$V_q^{\mathrm{SA}}$"),
    )
    widths = [E_q.shape[1], max(W_conv.shape[1], W_SA.shape[1]) * 1.6, E_q.shape[1]]
    figure, axes = subplots(2, 3, 8, 3.6, width_ratios=widths)
    largest = float(W_conv.abs().max())
    for line, (W, basis, *names) in zip(axes, rows, strict=True):
        panels = (
            (W @ basis, names[2], "PuOr", largest),
            (W, names[0], "PuOr", float(W.abs().max())),
            (basis, names[1], "cividis", float(basis.abs().max())),
        )
        for ax, (matrix, name, cmap, limit) in zip(line, panels, strict=True):
            lowest = -limit if cmap == "PuOr" else 0
            ax.imshow(matrix.numpy(), cmap=cmap, vmin=lowest, vmax=limit, aspect="auto")
            ax.set_title(f"{name}  {matrix.shape[0]} × {matrix.shape[1]}", fontsize=9)
            bare(ax)
        places = {"xycoords": "axes fraction", "textcoords": "offset points"}
        line[0].annotate("=", (1.0, 0.5), xytext=(4, 0), va="center", **places)
    return finish(figure)


def _factorisation() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a random 2 x 2 convolution and five heads that express it, for `figure_11`.

    The heads blend attention to each of the four pixels of the kernel with uniform attention.
    """
    generator = torch.Generator().manual_seed(0)
    queries, targets = offset_targets(4, 6, (2, 2))
    E_q = targets[queries.tolist().index([1, 2])]  # (4, T)
    W_conv = torch.randn(6, 4, generator=generator).double()
    basis = torch.cat([E_q, torch.full_like(E_q[:1], 1 / E_q.shape[1])])
    blend = torch.rand(5, 5, generator=generator).double().softmax(dim=1)
    A_q = blend @ basis
    phi = torch.linalg.lstsq(A_q.mT, E_q.mT).solution.mT  # E_q = Phi A_q
    return W_conv, E_q, W_conv @ phi, A_q
