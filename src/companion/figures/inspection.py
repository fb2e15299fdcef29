"""The figure for an attention report: the attention of each head by offset."""

from matplotlib.figure import Figure

from attnconv.inspection import AttentionReport

from .style import draw_maps, finish, halo, subplots


def attention_report(report: AttentionReport, source: str = "") -> Figure:
    """Draw the mean attention of each head by offset k - q, with a row of maps for each layer.

    The frame marks offset 0, and the ring marks the best offset. The title of each map gives the
    number of the head and its mean mass at the best offset. Each map has its own colour scale and
    shows offsets of up to half the image or window; see `mean_by_offset`. Raises ValueError for a
    report without layers.
    """
    if not report.layers:
        raise ValueError(
            "got a report without layers, expected at least one; see inspect_attention"
        )
    columns = max(len(layer.maps) for layer in report.layers)
    size = max(0.72 * columns + 0.5, 3.5), 0.98 * len(report.layers) + 0.3
    figure, axes = subplots(len(report.layers), columns, *size)
    for line, layer in zip(axes, report.layers, strict=True):
        (height, width), (i, j) = layer.grid, layer.heads.query
        maps = layer.heads.by_offset[:, height - 1 - i : height + i, width - 1 - j : width + j]
        titles = [f"{head}: {mass:.2f}" for head, mass in enumerate(layer.heads.mass.tolist(), 1)]
        draw_maps(line, maps, titles, query=(i, j), fontsize=7, pad=2)
        line[0].set_ylabel(layer.name, fontsize=6)
        for ax, (row, column) in zip(line, layer.heads.offsets.tolist(), strict=False):
            ring = {"mfc": "none", "mec": "#d55e00", "path_effects": [halo("white")]}
            ax.plot(j + column, i + row, "o", ms=6, mew=1.2, clip_on=False, **ring)
    return finish(figure, source)
