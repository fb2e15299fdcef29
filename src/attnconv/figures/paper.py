"""The paper's figures of the idea (1), of the accuracies (2 and 13) and of Lemma 3 (11)."""

import textwrap
from collections.abc import Callable, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ..data import load_photograph
from ..layers.attention import attention_probabilities
from ..models import MODELS
from ..models.specs import head_color
from ..runs.record import RunRecord
from ..theory.encodings import QuadraticEncoding
from ..theory.expressivity import shift_targets
from ..theory.grid import shift_set
from .style import bare, beside, finish, first_of, mark_query, subplots


def figure_1(
    image: Tensor | None = None,
    probabilities: Tensor | None = None,
    query: Sequence[int] | None = None,
) -> Figure:
    """Figure 1: an image `(H, W, 3)` with the query pixel, and where each head of
    `(N_h, H, W, H, W)` looks from it.

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
    ax, right = beside(8, 4)
    ax.imshow(image.numpy().clip(0, 1))
    maps = probabilities[:, query[0], query[1]]  # (N_h, H, W)
    for head in range(heads):
        row, column = np.unravel_index(int(maps[head].argmax()), maps.shape[1:])
        ax.plot(column, row, "s", ms=7, mfc="none", mec=head_color(head), mew=2)
    ax.plot(query[1], query[0], "s", ms=3, color="black")  # within the ring of a head that is there
    ax.set_title(
        "the image, the query pixel q (black)\nand the pixel each head attends to", fontsize=9
    )
    bare(ax)
    for head, ax in enumerate(
        first_of(right.subplots(side, -(-heads // side), squeeze=False), heads)
    ):
        ax.imshow(maps[head].numpy(), cmap="cividis", vmin=0)
        mark_query(ax, query)
        ax.set_title(f"head {head + 1}", fontsize=8)
        ax.spines[:].set(color=head_color(head), linewidth=2)
    return finish(right.figure)


FIGURE_2 = ("resnet18", "sa-quadratic", "sa-learned", "sa-learned-content")
FIGURE_13 = tuple(model for model in MODELS if model != "sa-quadratic-16")


def figure_2(
    records: Sequence[RunRecord], state: Callable[[str], str] = lambda model: "not run"
) -> Figure:
    """Figure 2: test accuracy over the epochs, of ResNet18, the quadratic encoding, the learned
    one, and with content.

    Takes the records that there are, several seeds too: their mean, and a band from the lowest to
    the highest. For runs of the paper tier a triangle at the right edge stands at the published
    accuracy. A model without a record is named with its `state`, as `Records.state` gives it.
    """
    return _accuracy_curves(records, FIGURE_2, state)


def figure_13(
    records: Sequence[RunRecord], state: Callable[[str], str] = lambda model: "not run"
) -> Figure:
    """Figure 13: as Figure 2, with the generalised quadratic encoding and, continuing it, the
    pruned model."""
    return _accuracy_curves(records, FIGURE_13, state)


def _accuracy_curves(
    records: Sequence[RunRecord], models: Sequence[str], state: Callable[[str], str]
) -> Figure:
    figure, axes = subplots(1, 1, 7, 3.8, lines=True)
    ax = axes[0, 0]
    # beside whose accuracies the published ones may stand
    paper = any(record.tier == "paper" for record in records)
    shown = []
    for model in models:
        color, style = MODELS[model].curve
        runs = [
            record
            for record in records
            if record.info.parameters["model"] == model and record.metrics
        ]
        label = MODELS[model].label
        if not runs:
            ax.plot([], [], style, color=color, label=f"{label}: {state(model).partition(':')[0]}")
        shown += runs
        lengths = {len(record.metrics) for record in runs}
        for group in [
            [record for record in runs if len(record.metrics) == length]
            for length in sorted(lengths)
        ]:
            # a pruned model goes on where its parent ended
            start = (group[0].info.parent or {}).get("epochs", 0)
            accuracy = np.array(
                [[entry["test_accuracy"] for entry in record.metrics] for record in group]
            )
            steps = start + np.arange(1, accuracy.shape[1] + 1)
            seeds = f" ({len(group)} seeds)" if len(group) > 1 else ""
            ax.plot(
                steps, accuracy.mean(axis=0), style, color=color, lw=1.5, label=f"{label}{seeds}"
            )
            if len(group) > 1:
                ax.fill_between(
                    steps, accuracy.min(axis=0), accuracy.max(axis=0), color=color, alpha=0.2, lw=0
                )
        if paper and MODELS[model].published.accuracy:
            place = (1.0, MODELS[model].published.accuracy)
            ax.plot(
                *place,
                marker=4,
                ms=8,
                color=color,
                transform=ax.get_yaxis_transform(),
                clip_on=False,
            )
    ax.set(xlabel="epoch", ylabel="test accuracy", ylim=(0.5, 1.0) if paper else None)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(color="0.92")
    if not shown:
        ax.set(xticks=[], yticks=[])  # there is nothing to measure
    title = "triangles: published accuracy" if paper else None
    ax.legend(fontsize=8, loc="lower right", title=title, title_fontsize=8)
    return finish(figure, _sources(shown))


def _sources(records: Sequence[RunRecord]) -> str:
    if len(records) == 1:
        return records[0].source
    return textwrap.fill(", ".join(record.name for record in records), 110)


def figure_11(
    W_conv: Tensor | None = None,
    E_q: Tensor | None = None,
    W_SA: Tensor | None = None,
    A_q: Tensor | None = None,
) -> Figure:
    """Figure 11: the factorisations V_q^conv = W^conv E_q (top) and V_q^SA = W^SA A_q (bottom) of
    Lemma 3, computed.

    W_conv `(D_in * D_out, K^2)`, E_q `(K^2, T)`, W_SA `(D_in * D_out, N_h)`, A_q `(N_h, T)`; by
    default the paper's sizes: a 2 x 2 kernel, five heads, two input and three output channels.
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
        for ax, matrix, name, cmap, limit in zip(
            line,
            (W @ basis, W, basis),
            (names[2], names[0], names[1]),
            ("PuOr", "PuOr", "cividis"),
            (largest, None, None),
            strict=True,
        ):
            limit = limit or float(matrix.abs().max())
            ax.imshow(
                matrix.numpy(),
                cmap=cmap,
                vmin=-limit if cmap == "PuOr" else 0,
                vmax=limit,
                aspect="auto",
            )
            ax.set_title(f"{name}  {matrix.shape[0]} × {matrix.shape[1]}", fontsize=9)
            bare(ax)
        line[0].annotate(
            "=",
            (1.0, 0.5),
            xytext=(4, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
        )
    return finish(figure)


def _factorisation(
    height: int = 4, width: int = 6, query: tuple[int, int] = (1, 2)
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A random 2 x 2 convolution, and five heads that blend its four pixels and attention to all
    alike."""
    generator = torch.Generator().manual_seed(0)
    queries, targets = shift_targets(height, width, (2, 2))
    E_q = targets[queries.tolist().index(list(query))]  # (4, T)
    W_conv = torch.randn(6, 4, generator=generator).double()
    basis = torch.cat([E_q, torch.full_like(E_q[:1], 1 / E_q.shape[1])])
    blend = torch.rand(5, 5, generator=generator).double().softmax(dim=1)
    A_q = blend @ basis
    phi = torch.linalg.lstsq(A_q.mT, E_q.mT).solution.mT  # E_q = Phi A_q
    return W_conv, E_q, W_conv @ phi, A_q
