"""The still of the explorer's stage, for print and for readers without scripts."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from torch import Tensor, nn

from ..data import load_photograph
from ..layers.conv import conv_to_attention
from ..models.specs import head_color
from ..theory.grid import shift_set
from ..theory.theorem1 import hard_alpha
from .style import bare, finish, subplots

SOBEL = ((-1.0, 0.0, 1.0), (-2.0, 0.0, 2.0), (-1.0, 0.0, 1.0))
REACH = 3.5  # of the plane of offsets, in pixels
# How far the heads have moved from where they start to the kernel's pixels, and alpha.
MOMENTS = {"soft heads": (0.0, 0.1), "sharper": (0.8, 0.8), "exact": (1.0, None)}


def still() -> Figure:
    """Draw three moments at which nine heads become a convolution: the picture and the heads.

    The picture is a photograph under the vertical Sobel filter, by convolution in its left half
    and by attention in its right half. The centres start on the kernel's grid, turned and spread.
    """
    conv = nn.Conv2d(1, 1, kernel_size=3, padding=1, bias=False).double()
    conv.weight.data = torch.tensor([[SOBEL]]).double()
    image = load_photograph("china", (80, 120)).double().permute(2, 0, 1)[:, None]
    filtered = conv(image).detach()
    limit = float(filtered.abs().quantile(0.98))
    grid = shift_set((3, 3)).double()
    spread = grid @ torch.tensor([[1.7, -1.2], [1.2, 1.7]]).double()
    figure, axes = subplots(2, len(MOMENTS), 9, 4.7, height_ratios=[2, 2.4])
    for (title, (moved, alpha)), (top, below) in zip(MOMENTS.items(), axes.T, strict=True):
        centers = moved * grid + (1 - moved) * spread
        layer = conv_to_attention(conv, alpha=alpha or hard_alpha(torch.float64))
        layer.encoding.centers.data = centers
        halves = filtered[..., :60], layer(image).detach()[..., 60:]
        shown = (torch.cat(halves, dim=-1) / limit).clamp(-1, 1)
        top.imshow((0.5 + shown / 2)[:, 0].permute(1, 2, 0).numpy())
        top.set_title(f"{title}, α = {alpha}" if alpha else title, fontsize=9)
        bare(top)
        top.axvline(59.5, color="white", lw=0.8)
        draw_plane(below, centers, alpha)
    axes[0, 0].set_ylabel("convolution | attention", fontsize=8)
    axes[1, 0].set_ylabel("where nine heads look", fontsize=8)
    return finish(figure)


def draw_plane(ax: Axes, centers: Tensor, alpha: float | None) -> None:
    """Draw the plane of offsets: the kernel's pixels, each head's centre and, if soft, its width.

    `centers`: `(9, 2)`. The width is one standard deviation, `1 / sqrt(2 alpha)`.
    """
    for head, (pixel, center) in enumerate(
        zip(shift_set((3, 3)).tolist(), centers.tolist(), strict=True)
    ):
        color, (row, column) = head_color(head), center
        corner = pixel[1] - 0.45, pixel[0] - 0.45
        ax.add_patch(Rectangle(corner, 0.9, 0.9, fill=False, color=color, lw=2))
        if alpha:
            width = (2 * alpha) ** -0.5
            ax.add_patch(Circle((column, row), width, color=color, alpha=0.12, lw=0))
        ax.plot(column, row, "o", ms=8, mfc=color, mec="white")
    ax.set(xlim=(-REACH, REACH), ylim=(REACH, -REACH), aspect="equal")
    bare(ax)
