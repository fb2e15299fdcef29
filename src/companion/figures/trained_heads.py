"""The paper's figures of trained heads."""

from collections.abc import Sequence, Sized
from typing import cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from torch import Tensor

from attnconv.layers.encodings import PositionEncoding
from attnconv.vit.capture import attention_of

from ..colors import head_color
from ..data import DATASETS, dataset_at_hand, load_photograph, middle_square
from ..heads import heads_of
from ..runs.history import ContentMaps, PositionHistory
from ..runs.record import RunRecord
from ..runs.weights import WEIGHTS_FILE, model_of
from .style import bare, beside, crop, finish, halo, line_plots, map_rows, mark_query, subplots

PICTURE_SIZE = 192  # side of a drawn picture, in pixels
MIDDLE = 4  # index of the middle query pixel among the nine in a record with content
HALF_WINDOW = 4.5  # pixels shown on each side of the query
SHARE_STYLES = {0.5: "solid", 0.9: "dotted"}
INK = "#B00020"  # colour of the query and the kernel, not used for any head


def mass_threshold(probabilities: np.ndarray, share: float) -> float:
    """Return the probability above which a map's pixels together hold `share` of its mass.

    This is the probability at the border of a highest-density region.
    """
    ordered = np.sort(probabilities.ravel())[::-1]
    return float(ordered[np.searchsorted(ordered.cumsum(), share * ordered.sum())])


def figure_3(record: RunRecord, layer: int | None = None, panels: int = 6) -> Figure:
    """Draw Figure 3: the heads of one layer at several steps of training.

    `layer` counts from 1; the default is layer 4 of 6. The darkness of a pixel shows the sum of the
    heads' attention. Contours enclose 50 % (solid) and 90 % (dotted) of each head's softmax
    mass, which is computed on 11 x 11 pixels around the query. A head's centre is marked by a dot,
    by a square if one pixel has over 90 % of the mass, by a cross if the head is too flat for a
    contour, or by a ring on the frame if the centre lies outside it.
    """
    history = _with_centers(record)
    epochs = history.epochs.tolist()
    wanted = epochs[-1] * np.linspace(0, 1, panels) ** 2  # heads move more in early epochs
    moments = sorted({int(np.abs(np.array(epochs) - epoch).argmin()) for epoch in wanted})
    layer = layer or len(history.by_layer) // 2 + 1
    encodings = [history.encodings(moment)[layer - 1] for moment in moments]
    titles = [f"epoch {epochs[moment]}" for moment in moments]
    return _head_panels(encodings, titles, f"layer {layer}, {record.source}")


def figure_4(record: RunRecord) -> Figure:
    """Draw Figure 4: the heads of each layer at the end of training, drawn as in `figure_3`."""
    encodings = _with_centers(record).encodings()
    return _head_panels(encodings, _layer_names(encodings), record.source)


def figure_12(record: RunRecord) -> Figure:
    """Draw Figure 12: like Figure 4, for the generalised quadratic encoding (elliptical heads)."""
    return figure_4(record)


def figure_14(record: RunRecord) -> Figure:
    """Draw Figure 14: like Figure 4, for 16 heads per layer and with contours at 50 % only."""
    return figure_4(record)


def _with_centers(record: RunRecord) -> PositionHistory:
    if not record.history.layers("centers"):
        raise ValueError(
            f"{record.name} has no centres of attention; expected a run with a quadratic encoding"
        )
    return record.history


def _head_panels(
    encodings: Sequence[PositionEncoding], titles: Sequence[str], source: str
) -> Figure:
    crowded = encodings[0].num_heads > 9  # contours at 90 % would overlap
    columns = min(3, len(encodings))
    rows = -(-len(encodings) // columns)
    size = 2.7 * columns + 0.9, 2.8 * rows + 0.6
    figure, axes = line_plots(rows, columns, *size, sharex=True, sharey=True)
    drawn = None
    for ax in axes.flat[len(encodings) :]:
        ax.set_axis_off()
    for ax, encoding, title in zip(axes.flat, encodings, titles, strict=False):
        drawn = _draw_heads(ax, encoding, shares=(0.5,) if crowded else (0.5, 0.9))
        ax.set_title(title, fontsize=9)
    assert drawn, "there is at least one panel"
    bar = figure.colorbar(drawn, ax=axes, shrink=0.6, aspect=30, extend="max")
    bar.set_label("attention on a pixel, summed over the heads", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    marks = [
        Line2D([], [], color=INK, lw=1.4, label="query"),
        Line2D([], [], color=INK, ls="--", lw=1.4, label="3 × 3 kernel"),
        Line2D([], [], color="0.4", marker="o", ms=4, ls="", label="centre of a head"),
        *(
            Line2D([], [], color="0.4", ls=style, lw=1, label=f"{share:.0%} of its attention")
            for share, style in list(SHARE_STYLES.items())[: 1 if crowded else 2]
        ),
    ]
    figure.legend(handles=marks, loc="outside upper center", ncols=5, fontsize=8, frameon=False)
    for ax in axes[:, 0]:
        ax.set_ylabel(r"row offset $\delta_1$", fontsize=8)
    for ax in axes.flat[max(0, len(encodings) - columns) : len(encodings)]:
        ax.set_xlabel(r"column offset $\delta_2$", fontsize=8)
        ax.tick_params(labelbottom=True)
    return finish(figure, source)


def _draw_heads(ax: Axes, encoding: PositionEncoding, shares: Sequence[float]) -> QuadMesh:
    """Draw the heads' summed attention, and contours of the given shares of each head's mass."""
    encoding = encoding.double()  # in float32 the contours of nearly uniform heads are ragged
    centers = cast(Tensor, encoding.centers).tolist()
    fine = torch.linspace(-HALF_WINDOW, HALF_WINDOW, 109).double()
    with torch.no_grad():
        on_pixels = encoding.scores(_mesh(torch.arange(-5, 6))).flatten(1)
        on_fine = encoding.scores(_mesh(fine))
    norm = on_pixels.logsumexp(dim=1)
    summed = (on_pixels - norm[:, None]).exp().sum(dim=0).reshape(11, 11).numpy()
    edges = np.arange(-5.5, 6)
    style = {"cmap": "Greys", "vmin": 0, "vmax": 1, "zorder": 0.5}
    drawn = ax.pcolormesh(edges, edges, summed, edgecolors="face", lw=0.1, **style)
    for head, log_mass in enumerate(on_pixels - norm[:, None]):
        density = (on_fine[head] - norm[head]).numpy()
        mass = log_mass.exp().numpy()
        levels = {share: np.log(max(mass_threshold(mass, share), 1e-300)) for share in shares}
        seen = {s: level for s, level in levels.items() if density.min() < level <= density.max()}
        for share, level in seen.items():
            style = {"colors": [head_color(head)], "linestyles": SHARE_STYLES[share]}
            ax.contour(fine, fine, density, levels=[level], linewidths=0.9, alpha=0.8, **style)
        # s: on one pixel; o: on several; x: too flat for a contour
        form = "s" if mass.max() > 0.9 else "o" if seen else "x"
        _mark_centre(ax, head, encoding.num_heads, centers[head], form)
    for half, dashes in ((0.5, "-"), (1.5, "--")):  # the query, and the kernel around it
        outline = Rectangle((-half, -half), 2 * half, 2 * half, fill=False, color=INK, ls=dashes)
        ax.add_patch(outline)
        outline.set(lw=1.4, zorder=3)
    ticks = range(-4, 5, 2)
    ax.set(xlim=(-HALF_WINDOW, HALF_WINDOW), ylim=(HALF_WINDOW, -HALF_WINDOW), aspect="equal")
    ax.set(xticks=ticks, yticks=ticks)
    ax.tick_params(labelsize=6)
    ax.grid(visible=False)
    return drawn


def _mark_centre(ax: Axes, head: int, heads: int, centre: Sequence[float], form: str) -> None:
    """Draw a head's number and a mark of the given form at the head's centre.

    If the centre lies outside the frame, a ring on the frame replaces the mark.
    """
    row, column = centre
    inside = max(abs(row), abs(column)) <= HALF_WINDOW
    x, y = (min(max(value, -HALF_WINDOW), HALF_WINDOW) for value in (column, row))
    # also visible on the square of the query
    ink = {"color": head_color(head), "path_effects": [halo("white")]}
    mark = {"ms": 4, "mew": 1.2} if inside else {"ms": 6, "mfc": "none"}
    # above the numbers of other heads, which have zorder 3
    ax.plot(x, y, form if inside else "o", clip_on=False, zorder=4, **mark, **ink)
    if inside:
        angle = 2 * np.pi * head / heads  # separates the numbers of heads at the same position
        place = {"xytext": (6 * np.cos(angle), 6 * np.sin(angle)), "ha": "center", "va": "center"}
    else:
        place = {"xytext": (-6 if column > HALF_WINDOW else 4, -9 if row < -HALF_WINDOW else 5)}
    ax.annotate(str(head + 1), (x, y), textcoords="offset points", fontsize=8, **place, **ink)


def _mesh(axis: Tensor) -> Tensor:
    return torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)


def figure_5(record: RunRecord) -> Figure:
    """Draw Figure 5: maps of learned position-only attention, with the most local heads first.

    Each row is a layer. The title of each map gives the number of the head and the mean probability
    of its best offset. The maps, each on its own scale, show the 7 x 7 pixels around the middle
    query pixel, or the whole image if it has at most 9 x 9 pixels.
    """
    layers = heads_of(record)
    titles = [
        [f"{head + 1}: {heads.mass[head]:.2f}" for head in heads.by_locality().tolist()]
        for heads in layers
    ]
    reach = 3 if max(record.grid) > 9 else 9
    near = [crop(heads.maps[heads.by_locality()], heads.query, reach) for heads in layers]
    return _layer_maps([maps for maps, _ in near], near[0][1], record.source, titles)


def figure_6(record: RunRecord) -> Figure:
    """Draw Figure 6: content-based attention for the middle query, averaged over test images."""
    return _mean_maps(record, record.grid[0] // 2, record.grid[1] // 2)


def figure_7(record: RunRecord) -> Figure:
    """Draw Figure 7: like Figure 6, for another query pixel."""
    return _mean_maps(record, record.grid[0] // 5, record.grid[1] // 5)


def _with_content(record: RunRecord) -> ContentMaps:
    if not record.content_maps:
        raise ValueError(
            f"{record.name} has no maps of single images; expected a run of sa-learned-content"
        )
    return record.content_maps


def _mean_maps(record: RunRecord, row: int, column: int) -> Figure:
    content = _with_content(record)
    maps = content.mean_maps[:, :, content.query_number(row, column)].float()
    return _layer_maps(maps, (row, column), record.source)


def figure_8(record: RunRecord) -> Figure:
    """Draw Figure 8: content-based attention on a single image of a cat.

    The maps are computed from the weights in the record. Without weights, the figure shows the
    record's maps of the first test image, and the image itself if the data set is on this machine.
    """
    return _single_image(record, "chelsea", 0)


def figure_9(record: RunRecord) -> Figure:
    """Draw Figure 9: like Figure 8, for a horse (without weights, for the second test image)."""
    return _single_image(record, "horse", 1)


def figure_10(record: RunRecord) -> Figure:
    """Draw Figure 10: like Figure 8, for a building (without weights, for the third test image)."""
    return _single_image(record, "china", 2)


def maps_on_picture(record: RunRecord, picture: str) -> Tensor:
    """Return attention from the middle query pixel on a picture, `(L, N_h, H, W)`.

    The maps are computed from the weights in the record.
    """
    row, column = _with_content(record).queries[MIDDLE].tolist()
    model = model_of(record)
    inputs = model.transform((255 * load_photograph(picture)).round().byte().numpy())[None]
    return torch.stack([layer.maps[0, :, row, column] for layer in attention_of(model, inputs)])


def _single_image(record: RunRecord, picture: str, number: int) -> Figure:
    """Draw the attention from the middle query pixel on a picture, or on a test image."""
    content = _with_content(record)
    query = content.queries[MIDDLE].tolist()
    if (record.folder / WEIGHTS_FILE).exists():
        maps = maps_on_picture(record, picture)
        name = f"picture: {picture}"
        image = middle_square(load_photograph(picture), PICTURE_SIZE)
    else:
        image, name = _test_image(record, number)
        maps = content.single["image"].of(number).maps()[:, :, MIDDLE]
    ax, right = beside(8, 0.75 * len(maps) + 0.4, width_ratios=(1, 4))
    scale = image.shape[0] // record.grid[0]  # image pixels per query pixel
    ax.imshow(image.squeeze(-1).numpy().clip(0, 1), cmap="gray", vmin=0, vmax=1)
    mark_query(ax, [scale * (place + 0.5) - 0.5 for place in query], size=scale)
    ax.set_title("the image and\nthe query pixel", fontsize=8)
    bare(ax)
    axes = right.subplots(len(maps), maps.shape[1], squeeze=False)
    map_rows(axes, maps, _layer_names(maps), query=query)
    return finish(right.figure, f"{name} | {record.source}")


def _test_image(record: RunRecord, number: int) -> tuple[Tensor, str]:
    """Return a test image and its name, or a blank one if its data set is not on this machine."""
    found = record.info.dataset
    name = f"test image {number + 1} of {found['name']}"
    dataset = dataset_at_hand(found["name"])
    if dataset and dataset.fingerprint == found["fingerprint"]:
        return dataset.test_images[number] / 255, name
    size = DATASETS[found["name"]].image_size
    return torch.ones(size, size, 1), f"{name}, which is not on this machine"


def _layer_maps(
    layers: Sequence[Tensor] | Tensor,
    query: Sequence[int],
    source: str,
    titles: Sequence[Sequence[str]] = (),
) -> Figure:
    """Draw the maps `(N_h, H, W)` of each layer in a row, each map on its own scale."""
    columns = max(map(len, layers))
    size = 0.72 * columns + 0.3, (0.95 if titles else 0.8) * len(layers) + 0.3
    figure, axes = subplots(len(layers), columns, *size)
    map_rows(axes, layers, _layer_names(layers), titles, query=query, fontsize=7, pad=2)
    return finish(figure, source)


def _layer_names(layers: Sized) -> list[str]:
    return [f"layer {layer + 1}" for layer in range(len(layers))]
