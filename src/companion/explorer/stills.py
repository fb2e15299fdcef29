"""Stills of the explorer's stage, one per scene, for print and for pages without scripts."""

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from torch import Tensor, nn

from attnconv.layers.convert import conv_to_attention, convert_network
from attnconv.theory.grid import offset_set
from attnconv.theory.theorem1 import hard_alpha
from attnconv.vit.capture import attention_of

from ..colors import head_color
from ..data import PICTURES, load_photograph, middle_square
from ..data.cifar10 import CIFAR10_CLASSES
from ..figures.style import bare, finish, mark_query, subplots
from ..runs.weights import TrainedModel
from ..specs import SPECS
from ..studies.freed.network import as_free_attention
from .descent import Descent, find_positions

SOBEL = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
REACH = 3.5  # pixels shown on each side of the query in the plane of offsets
# For each moment: the share of the way to the kernel's pixels that heads have moved, and alpha.
MOMENTS = {"soft heads": (0.0, 0.1), "sharper": (0.8, 0.8), "exact": (1.0, None)}
START = 2.5  # a descent's centres start within this many pixels of the query, along each axis
STEPS = (0, 100, 300)  # steps of a descent that are drawn, besides the last
SEEN = 32  # side, in pixels, of a network's input
LAYER = 2  # the layer whose heads are drawn
QUERY = (3, 4)  # their query pixel
SOFT = 1.0  # alpha of the soft heads
ALIKE = 60 / 64  # share of pixels; a head that spreads over more, on average, is nearly uniform
FAINT = 0.04  # opacity of the cloud of a nearly uniform head


def still() -> Figure:
    """Draw nine heads and their output at three moments as the heads become a convolution.

    Each picture shows a vertical Sobel filter applied to a photograph, by convolution in the left
    half and by attention in the right half. The centres start on a rotated and enlarged copy
    of the kernel's grid.
    """
    grid = offset_set((3, 3)).double()
    spread = grid @ torch.tensor([[1.7, -1.2], [1.2, 1.7]]).double()
    figure, axes = subplots(2, len(MOMENTS), 9, 4.7, height_ratios=[2, 2.4])
    for (title, (moved, alpha)), (top, below) in zip(MOMENTS.items(), axes.T, strict=True):
        centers = moved * grid + (1 - moved) * spread
        layer = conv_to_attention(convolution_of(SOBEL), alpha=alpha or hard_alpha(torch.float64))
        layer.encoding.centers.data = centers
        draw_halves(top, layer, seam=60)
        top.set_title(f"{title}, α = {alpha}" if alpha else title, fontsize=9)
        draw_plane(below, centers, [alpha] * 9 if alpha else None)
    axes[0, 0].set_ylabel("convolution | attention", fontsize=8)
    axes[1, 0].set_ylabel("where nine heads look", fontsize=8)
    return finish(figure)


def convolution_of(kernel: Tensor) -> nn.Conv2d:
    """Return a one-channel convolution with the given kernel `(3, 3)`, in double precision."""
    conv = nn.Conv2d(1, 1, kernel_size=3, padding=1, bias=False).double()
    conv.weight.data = kernel.double()[None, None]
    return conv


@torch.no_grad()
def draw_halves(ax: Axes, layer: nn.Module, seam: int) -> None:
    """Draw the Sobel filter of the stage's first photograph, computed in two ways.

    It is computed by convolution in the columns before `seam`, and by `layer` in the others.
    """
    image = load_photograph("china", (80, 120)).double().permute(2, 0, 1)[:, None]  # (3, 1, H, W)
    convolved = convolution_of(SOBEL)(image)
    limit = convolved.abs().quantile(0.98)
    halves = convolved[..., :seam], layer(image)[..., seam:]
    shown = (torch.cat(halves, dim=-1) / limit).clamp(-1, 1)
    ax.imshow((0.5 + shown / 2)[:, 0].permute(1, 2, 0).numpy())
    ax.axvline(seam - 0.5, color="white", lw=0.8)
    bare(ax)


def draw_plane(ax: Axes, centers: Tensor, alphas: list[float] | None) -> None:
    """Draw the kernel's pixels and the centres and widths of the heads in the plane of offsets.

    `centers` has the shape `(9, 2)`, and `alphas` is None for exact heads. The width of a head is
    one standard deviation, `1 / sqrt(2 alpha)`.
    """
    for head, (pixel, center) in enumerate(
        zip(offset_set((3, 3)).tolist(), centers.tolist(), strict=True)
    ):
        row, column = center
        color = head_color(head)
        corner = pixel[1] - 0.45, pixel[0] - 0.45
        ax.add_patch(Rectangle(corner, 0.9, 0.9, fill=False, color=color, lw=2))
        if alphas:
            width = (2 * alphas[head]) ** -0.5
            ax.add_patch(Circle((column, row), width, color=color, alpha=0.12, lw=0))
        ax.plot(column, row, "o", ms=8, mfc=color, mec="white")
    ax.set(xlim=(-REACH, REACH), ylim=(REACH, -REACH), aspect="equal")
    bare(ax)


# --- scene 2 --------------------------------------------------------------------------------------


def descent_still() -> Figure:
    """Draw four moments of a gradient descent in which nine heads find the kernel's pixels.

    Each picture shows a vertical Sobel filter applied to a photograph, by convolution on the left
    and by the nine heads at that moment on the right. The centres start at random positions, drawn
    with a fixed seed.
    """
    random = torch.rand(9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    descent = find_positions(START * (2 * random - 1))
    steps = (*STEPS, len(descent.centers) - 1)
    figure, axes = subplots(2, len(steps), 9, 3.9, height_ratios=[1.5, 2.4])
    for step, (top, below) in zip(steps, axes.T, strict=True):
        draw_halves(top, heads_at(descent, step), seam=42)
        top.set_title(f"step {step}: {descent.found(step)} of 9 found", fontsize=9)
        draw_trails(below, descent.centers[: step + 1])
    axes[0, 0].set_ylabel("convolution | heads", fontsize=8)
    axes[1, 0].set_ylabel("where nine heads look", fontsize=8)
    return finish(figure)


def heads_at(descent: Descent, step: int) -> nn.Module:
    """Return the nine heads after `step` steps, combined into a layer for the Sobel filter."""
    weights = descent.values[step] @ SOBEL.double().flatten()
    layer = conv_to_attention(convolution_of(weights.view(3, 3)), alpha=1.0)
    layer.encoding.centers.data = descent.centers[step]
    layer.encoding.spread.data = (2 * descent.alphas[step]).sqrt()
    return layer


def draw_trails(ax: Axes, centers: Tensor) -> None:
    """Draw the kernel's pixels and the paths of the heads' centres, `(moments, 9, 2)`."""
    for row, column in offset_set((3, 3)).tolist():
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, color="black", lw=1.2))
    for head, trail in enumerate(centers.unbind(dim=1)):
        rows, columns = trail.unbind(dim=1)
        ax.plot(columns, rows, color=head_color(head), lw=1.2)
        ax.plot(columns[-1], rows[-1], "o", ms=8, mfc=head_color(head), mec="white")
    ax.set(xlim=(-REACH, REACH), ylim=(REACH, -REACH), aspect="equal")
    bare(ax)


# --- scene 3 --------------------------------------------------------------------------------------


@torch.no_grad()
def network_still(cnn: TrainedModel, trained: TrainedModel) -> Figure:
    """Draw where heads look in a picture of a cat, and how a CNN and its conversion classify it.

    The left panel shows the input. The middle panel shows where the nine heads in one layer of
    `trained`, a position-only model, look from one pixel. The right panel shows the class
    probabilities of `cnn` and of its conversions to attention with exact and with soft heads.
    """
    picture = load_photograph(PICTURES[0])
    images = cnn.transform((255 * picture).round().byte())[None]
    small = middle_square(picture, SEEN).numpy()
    figure, axes = subplots(1, 3, 9, 3.1, width_ratios=[1, 1, 1.1])
    seen, clouds, bars = axes[0]
    seen.imshow(small)
    seen.set_title(f"what the networks see, {SEEN} × {SEEN} pixels", fontsize=9)
    bare(seen)
    draw_clouds(clouds, small, attention_of(trained, images)[LAYER - 1].maps[0])
    label = SPECS[trained.record.info.parameters["model"]].label
    clouds.set_title(f"{label}: nine heads of layer {LAYER}", fontsize=9)
    answers = {
        "CNN": cnn(images),
        "the CNN by attention, exact": convert_network(cnn)(images),
        f"the same, soft (α = {SOFT:g})": as_free_attention(cnn, SOFT).eval()(images),
    }
    draw_answers(bars, {name: logits[0].softmax(dim=0) for name, logits in answers.items()})
    return finish(figure, f"Networks: {cnn.record.name}, {trained.record.name}")


def draw_clouds(ax: Axes, image: np.ndarray, maps: Tensor) -> None:
    """Draw where each head looks from `QUERY`, as a cloud and a dot on a grey version of an image.

    `maps` has the shape `(N_h, H, W, H, W)`. As on the stage, heads with nearly uniform attention
    have only a faint cloud.
    """
    height, width = maps.shape[1:3]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    grey = np.clip(0.5 + 0.8 * (image.mean(axis=-1) - 0.5), 0, 1)
    ax.imshow(grey, cmap="gray", vmin=0, vmax=1, extent=extent)
    effective = torch.special.entr(maps).sum(dim=(-2, -1)).mean(dim=(1, 2)).exp()
    dots: dict[tuple[int, int], list[int]] = {}  # for each pixel, the heads whose maps peak there
    for head, (map_, pixels) in enumerate(zip(maps[:, *QUERY], effective.tolist(), strict=True)):
        alike = pixels > ALIKE * height * width
        color = np.ones((height, width, 4)) * to_rgba(head_color(head))
        color[..., 3] = (FAINT if alike else 0.8) * (map_ / map_.max()).numpy()
        ax.imshow(color, extent=extent, interpolation="bilinear")
        if not alike:
            dots.setdefault(divmod(int(map_.argmax()), width), []).append(head)
    mark_query(ax, QUERY)
    for (row, column), heads in dots.items():
        for number, head in enumerate(heads):  # several dots surround the pixel's centre
            angle = 2 * np.pi * number / len(heads)
            away = 0.25 * (len(heads) > 1)
            place = column + away * np.sin(angle), row - away * np.cos(angle)
            ax.plot(*place, "o", ms=6, mfc=head_color(head), mec="white", zorder=4)
    bare(ax)


def draw_answers(ax: Axes, answers: dict[str, Tensor]) -> None:
    """Draw the probabilities `(10,)` that each named network assigns to the ten classes."""
    height = 0.8 / len(answers)
    places = np.arange(len(CIFAR10_CLASSES))
    for number, (name, probabilities) in enumerate(answers.items()):
        shift = (number - (len(answers) - 1) / 2) * height
        color = ("0.25", "#d55e00", "#f0c39a")[number]
        ax.barh(places + shift, probabilities.numpy(), height, color=color, label=name)
    ax.set_yticks(places, CIFAR10_CLASSES, fontsize=8)
    ax.set(xlim=(0, 1), ylim=(len(places) - 0.5, -0.5))
    ax.set_title("probability of each class", fontsize=9)
    ax.tick_params(axis="x", labelsize=8)
    ax.legend(fontsize=7, loc="lower right")
