"""Measure how much accuracy remains when a model's attention is replaced by simpler attention.

`inspect_attention` measures whether attention looks like a convolution; this ablation measures
whether the model needs it to be anything else.

Letters: B images, N_h heads, H x W tokens, K x K kernel, L layers, R replacements, delta = k - q.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .heads import Heads, mean_by_offset
from .theory.grid import offset_set, pixels
from .vit.capture import LayerAttention
from .vit.substitution import output_with, read_output

#: Names of the replacements other than the convolutions, which are called "3 x 3".
MEAN_MAP, ONE_OFFSET, UNIFORM = "mean map", "one offset", "uniform"


@dataclass(frozen=True, eq=False, repr=False)
class AblationReport:
    """The result of `ablate_attention`, with one score for each replacement; it prints as a table.

    Attributes:
        measure: What a score is: "accuracy", or "agreement" with the unchanged model.
        images: The number of images.
        unchanged: The score of the model itself.
        layers: The names of the L layers.
        replacements: The names of the R replacements.
        scores: The scores, `(L + 1, R)`, with a row for each layer whose attention alone is
            replaced and a last row for all layers together.
        skipped: The names of attention that is not among patches and was not replaced.
    """

    measure: str
    images: int
    unchanged: float
    layers: tuple[str, ...]
    replacements: tuple[str, ...]
    scores: Tensor
    skipped: tuple[str, ...] = ()

    def of(self, replacement: str) -> Tensor:
        """Return the scores `(L + 1,)` of one replacement, with that of all layers last.

        Args:
            replacement: One of the names in `replacements`, such as "mean map".

        Raises:
            ValueError: If there is no such replacement.
        """
        if replacement not in self.replacements:
            raise ValueError(f"got {replacement!r}, expected one of {', '.join(self.replacements)}")
        return self.scores[:, self.replacements.index(replacement)]

    def table(self) -> str:
        """Return a plain-text table with a line for each layer and one for all layers."""
        rows = zip((*self.layers, "all layers"), self.scores.tolist(), strict=True)
        lines = [["replaced in", *self.replacements]]
        lines += [[name, *(f"{score:.4f}" for score in scores)] for name, scores in rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
            for line in lines
        )

    def __repr__(self) -> str:
        title = f"{self.measure} on {self.images} images (unchanged model: {self.unchanged:.4f})"
        return "\n".join([title, self.table(), *(f"not replaced: {why}" for why in self.skipped)])


def ablate_attention(
    model: nn.Module,
    images: Tensor,
    labels: Tensor | None = None,
    kernel_sizes: Sequence[int] | None = None,
    batch_size: int = 100,
) -> AblationReport:
    """Measure the accuracy that remains when attention is replaced, in each layer and in all.

    The model and its values are never changed; only the attention weights among patches are
    replaced, in a forward pass, by one of the following, which are the same for all images:

    - "mean map": each head's attention averaged over the images, which depends on positions only;
    - "K x K" for each of the `kernel_sizes`: the nearest convolution, with one weight per offset,
      the mean map's average over the queries whose K x K kernel lies inside the image
      (`LayerReport.kernels`), and 0 at offsets outside the kernel;
    - "one offset": all attention on each head's best offset (`Heads.offsets`);
    - "uniform": the same attention on all tokens, as a control.

    The weights of each query sum to 1 as in a softmax: those of the offsets that stay inside the
    image are divided by their sum. If it is 0, the query attends to the pixel nearest to the offset
    with the largest weight, as a sharp head does. Converted convolutions attend to the padded
    image. The rows and columns of class and register tokens stay those of the model, and the
    replaced weights of a patch sum to the mass that it gives to patches. Layers with windows have
    one map for all windows, so that the mask of shifted windows is not kept.

    Args:
        model: An image classifier that `inspect_attention` can read, or a network converted by
            `convert_network`.
        images: The model's input, `(B, C, H', W')`.
        labels: The classes of the images, `(B,)`. Without labels, the score is the agreement: the
            share of images that the model still puts into the same class.
        kernel_sizes: The sizes K of the convolutions, by default 1, 3, 5, ... up to the smallest
            grid.
        batch_size: The number of images in a batch. The model runs on all batches once for each
            replacement of each layer.

    Returns:
        A report with one score for each replacement, in each layer and in all layers together.

    Raises:
        ValueError: If the images or labels have the wrong shape, or a kernel does not fit the grid.
        TypeError: If the attention cannot be read or the model does not return logits
            `(B, classes)`.

    Example:
        If attention depends on positions only, its mean over the images is the attention itself:

        >>> import attnconv, torch
        >>> model = attnconv.build_model("sa-quadratic", num_layers=2, hidden=16)
        >>> images = torch.rand(4, 3, 16, 16)
        >>> report = attnconv.ablate_attention(model, images, kernel_sizes=[3])
        >>> report.of("mean map").tolist()  # the agreement, by layer and for both
        [1.0, 1.0, 1.0]
    """
    _expect(images, labels)
    batches = images.split(batch_size)
    predicted, means, skipped = _read(model, batches)
    target = predicted if labels is None else labels.to(predicted)

    def score(maps: Mapping[str, Tensor]) -> float:
        outputs = (output_with(model, batch, maps) for batch in batches)
        right = torch.cat([_classes(output) for output in outputs]) == target
        return right.double().mean().item()

    replacements = _replacements(means, kernel_sizes)
    scores = [
        [score({name: maps[name]}) for name in means] + [score(maps)]
        for maps in replacements.values()
    ]
    return AblationReport(
        "agreement" if labels is None else "accuracy",
        len(images),
        (predicted == target).double().mean().item(),
        tuple(means),
        tuple(replacements),
        torch.tensor(scores, dtype=torch.float64).T,
        skipped,
    )


def _expect(images: Tensor, labels: Tensor | None) -> None:
    if images.ndim != 4 or not len(images):
        raise ValueError(
            f"images has the shape {tuple(images.shape)}, expected (batch, channels, height, width)"
        )
    if labels is not None and tuple(labels.shape) != (len(images),):
        raise ValueError(
            f"labels has the shape {tuple(labels.shape)}, expected ({len(images)},), the class of"
            " each image"
        )


def _read(
    model: nn.Module, batches: Sequence[Tensor]
) -> tuple[Tensor, dict[str, Tensor], tuple[str, ...]]:
    """Return the model's classes, each layer's mean map by name, and what was skipped."""
    classes: list[Tensor] = []
    sums: dict[str, tuple[Tensor, int]] = {}
    skipped: tuple[str, ...] = ()
    for batch in batches:
        output, reading = read_output(model, batch, _sum)
        classes.append(_classes(output))
        skipped = reading.skipped
        for name, total, count in reading.layers:
            before = sums.get(name, (torch.zeros_like(total), 0))
            sums[name] = before[0] + total, before[1] + count
    if not sums:
        reasons = f" ({'; '.join(skipped)})" if skipped else ""
        raise TypeError(
            f"{type(model).__name__} has no attention that can be replaced{reasons}; expected a"
            " model that inspect_attention reads, or one that convert_network has converted"
        )
    means = {name: total / count for name, (total, count) in sums.items()}
    return torch.cat(classes), means, skipped


def _sum(layer: LayerAttention) -> tuple[str, Tensor, int]:
    return layer.name, layer.maps.sum(dim=0, dtype=torch.float64), len(layer.maps)


def _classes(output: Any) -> Tensor:
    """Return the classes `(B,)` that a model's output stands for."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
        raise TypeError(
            f"the model returns {got}, expected logits (batch, classes) of a classifier"
        )
    return logits.argmax(dim=1)


def _replacements(
    means: Mapping[str, Tensor], kernel_sizes: Sequence[int] | None
) -> dict[str, dict[str, Tensor]]:
    """Return the maps of all layers by name, for each replacement by its name."""
    smallest = min(min(mean.shape[-2:]) for mean in means.values())
    sizes = range(1, smallest + 1, 2) if kernel_sizes is None else kernel_sizes
    if unfit := [size for size in sizes if not 1 <= size <= smallest]:
        raise ValueError(
            f"kernel_sizes has {unfit[0]}, expected sizes from 1 to {smallest}, the smallest side"
            " of a layer's grid in tokens"
        )
    ways: dict[str, Callable[[Tensor], Tensor]] = {MEAN_MAP: lambda mean: mean}
    ways |= {f"{k} x {k}": partial(nearest_convolution, kernel_size=k) for k in sizes}
    ways |= {ONE_OFFSET: best_offset, UNIFORM: _uniform}
    return {
        way: {name: change(mean) for name, mean in means.items()} for way, change in ways.items()
    }


def _uniform(mean: Tensor) -> Tensor:
    height, width = mean.shape[-2:]
    return torch.full_like(mean, 1 / (height * width))


def nearest_convolution(mean: Tensor, kernel_size: int) -> Tensor:
    """Return the attention maps `(N_h, H, W, H, W)` of the K x K convolution nearest to a mean map.

    The weight of an offset is the mean over the queries whose kernel lies inside the image; see
    `ablate_attention` for the normalisation.
    """
    height, width = mean.shape[-2:]
    offsets = offset_set((kernel_size, kernel_size))
    queries = pixels(height - kernel_size + 1, width - kernel_size + 1) - offsets[0]
    keys = queries.unsqueeze(1) + offsets  # (Q, K^2, 2)
    rows, columns = queries.unsqueeze(1).unbind(dim=-1)
    kernel = mean[:, rows, columns, keys[..., 0], keys[..., 1]].mean(dim=1)
    return _maps_of_kernel(kernel, offsets.expand(len(mean), -1, -1), height, width)


def best_offset(mean: Tensor) -> Tensor:
    """Return maps `(N_h, H, W, H, W)` with all attention on the best offset of each head."""
    height, width = mean.shape[-2:]
    heads = Heads(mean[:, height // 2, width // 2], mean_by_offset(mean))
    weights = mean.new_ones(len(mean), 1)
    return _maps_of_kernel(weights, heads.offsets.unsqueeze(1), height, width)


def _maps_of_kernel(kernel: Tensor, offsets: Tensor, height: int, width: int) -> Tensor:
    """Return the maps of heads with weights `(N_h, n)` at offsets `(N_h, n, 2)`, normalised."""
    return torch.stack(
        [_map_of(*head, height, width) for head in zip(kernel, offsets, strict=True)]
    )


def _map_of(weights: Tensor, offsets: Tensor, height: int, width: int) -> Tensor:
    """Return the map `(H, W, H, W)` of one head with weights `(n,)` at offsets `(n, 2)`."""
    keys = pixels(height, width).unsqueeze(1) + offsets  # (T, n, 2)
    last = torch.tensor([height - 1, width - 1])
    nearest = keys.clamp(min=torch.zeros(2, dtype=torch.long), max=last)
    inside = weights * (keys == nearest).all(dim=-1)  # (T, n)
    inside[inside.sum(dim=-1) == 0, int(weights.argmax())] = 1
    shares = inside / inside.sum(dim=-1, keepdim=True)
    maps = weights.new_zeros(height * width, height * width)
    maps.scatter_add_(1, nearest[..., 0] * width + nearest[..., 1], shares)
    return maps.view(height, width, height, width)
