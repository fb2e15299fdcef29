"""What a model with content attends to: maps averaged over images, and over all shifts, small
enough for a run record.

Letters: L layers, N_h heads, Q query pixels, H x W pixels.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..layers.attention import ContentAttention
from ..models.networks import SelfAttentionNet
from ..runs.history import ContentMaps, ScoreParts

# of the test set: what a record averages over, and what it keeps one by one
MEAN_IMAGES, SINGLE_IMAGES = 100, 3


def query_pixels(height: int, width: int) -> Tensor:
    """A 3 x 3 grid of query pixels, `(9, 2)`: the middle one for Figure 6, another for Figure 7."""
    rows, columns = (
        torch.tensor([size // 5, size // 2, size - 1 - size // 5]) for size in (height, width)
    )
    return torch.cartesian_prod(rows, columns)


@torch.no_grad()
def content_probabilities(model: SelfAttentionNet, images: Tensor) -> Iterator[Tensor]:
    """Of normalised images `(B, C, H', W')`, layer by layer, the probabilities
    `(B, N_h, H, W, H, W)` of a content model."""
    for layer, X in _seen_by_layers(model, images):
        yield layer.probabilities(X)


@torch.no_grad()
def score_parts(model: SelfAttentionNet, images: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The same model's scores, layer by layer, in the parts of
    `encodings.learned_content_parts`."""
    for layer, X in _seen_by_layers(model, images):
        yield layer.score_parts(X)


def _seen_by_layers(
    model: SelfAttentionNet, images: Tensor
) -> Iterator[tuple[ContentAttention, Tensor]]:
    """The layers with content, and what arrives at each."""
    seen = []
    layers = [
        attention for attention in model.attentions if isinstance(attention, ContentAttention)
    ]
    hooks = [
        layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        for layer in layers
    ]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    yield from zip(layers, seen, strict=True)


def content_maps(
    model: SelfAttentionNet, images: Tensor, single: Mapping[str, Tensor], batch_size: int = 20
) -> ContentMaps:
    """Of a trained content model: means over normalised images `(B, C, H', W')`, and scores of
    `single` ones by kind."""
    training = model.training
    model.eval()
    maps, shifts = torch.zeros(()), torch.zeros(())
    for batch in images.split(batch_size):
        by_layer = [_summary(layer.float()) for layer in content_probabilities(model, batch)]
        maps = maps + torch.stack([summary[0] for summary in by_layer])
        shifts = shifts + torch.stack([summary[1] for summary in by_layer])
    scores = {kind: _single_scores(model, of_kind) for kind, of_kind in single.items()}
    model.train(training)
    queries, mean_maps = query_pixels(*maps.shape[-2:]), (maps / len(images)).cpu().half()
    return ContentMaps(queries, mean_maps, (shifts / len(images)).cpu(), scores)


def _single_scores(model: SelfAttentionNet, images: Tensor) -> ScoreParts:
    """The scores of single images at the query pixels, those of the content in half precision."""
    layers = list(score_parts(model, images))
    row, column = query_pixels(*layers[0][0].shape[-2:]).unbind(1)
    content, rows, columns = (
        torch.stack([part[:, :, row, column].float() for part in parts], dim=1).cpu()
        for parts in zip(*layers, strict=True)
    )
    return ScoreParts(content.half(), rows, columns)


def mean_by_shift(probabilities: Tensor) -> Tensor:
    """The mean probability of each shift, over the query pixels that have it inside the image.

    `(N_h, H, W, H, W)` -> `(N_h, 2H - 1, 2W - 1)`, from the most negative shift; a head at one
    fixed shift has 1 there, a head that always looks at one pixel, or at the border that its centre
    lies beyond, has not.
    """
    height, width = probabilities.shape[-2:]
    by_shift = probabilities.new_zeros(len(probabilities), 2 * height - 1, 2 * width - 1)
    count = probabilities.new_zeros(2 * height - 1, 2 * width - 1)
    for i in range(height):
        for j in range(width):
            window = (
                slice(height - 1 - i, 2 * height - 1 - i),
                slice(width - 1 - j, 2 * width - 1 - j),
            )
            by_shift[:, *window] += probabilities[:, i, j]
            count[window] += 1
    return by_shift / count


def _summary(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Summed over the images `(B, N_h, H, W, H, W)`: the maps at the query pixels, and the means by
    shift."""
    row, column = query_pixels(*probabilities.shape[-2:]).unbind(1)
    total = probabilities.sum(dim=0)  # (N_h, H, W, H, W)
    return total[:, row, column], mean_by_shift(total)
