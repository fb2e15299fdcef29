"""What a model with content attends to: maps averaged over images, and over all shifts, small enough for a run record.

Letters: L layers, N_h heads, Q query pixels, H x W pixels.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from ..models.networks import SelfAttentionNet
from ..theory.attention import spatial_softmax
from ..theory.layers import ContentAttention

MEAN_IMAGES, SINGLE_IMAGES = 100, 3  # of the test set: what a record averages over, and what it keeps one by one


def query_pixels(height: int, width: int) -> Tensor:
    """A 3 x 3 grid of query pixels, `(9, 2)`: the middle one for Figure 6, another for Figure 7."""
    rows, columns = (torch.tensor([size // 5, size // 2, size - 1 - size // 5]) for size in (height, width))
    return torch.cartesian_prod(rows, columns)


def query_number(queries: Tensor, row: int, column: int) -> int:
    """Which of the query pixels `(Q, 2)` that one is."""
    return int((queries == torch.tensor([row, column])).all(dim=1).nonzero())


@torch.no_grad()
def content_probabilities(model: SelfAttentionNet, images: Tensor) -> Iterator[Tensor]:
    """Of normalised images `(B, C, H', W')`, layer by layer, the probabilities `(B, N_h, H, W, H, W)` of a content model."""
    for layer, X in _seen_by_layers(model, images):
        yield layer.probabilities(X)


@torch.no_grad()
def score_parts(model: SelfAttentionNet, images: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The same model's scores, layer by layer, in the parts of `encodings.learned_content_parts`."""
    for layer, X in _seen_by_layers(model, images):
        yield layer.score_parts(X)


def _seen_by_layers(model: SelfAttentionNet, images: Tensor) -> Iterator[tuple[ContentAttention, Tensor]]:
    """The layers with content, and what arrives at each."""
    seen = []
    layers = [attention for attention in model.attentions if isinstance(attention, ContentAttention)]
    hooks = [layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0])) for layer in layers]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    yield from zip(layers, seen, strict=True)


def content_maps(model: nn.Module, images: Tensor, batch_size: int = 20) -> dict[str, Tensor]:
    """Of a trained content model, over normalised images `(B, C, H', W')`; empty for any other model.

    `queries` `(Q, 2)`; `mean_maps` `(L, N_h, Q, H, W)`, averaged over the images; `shift_probabilities`
    `(L, N_h, 2H - 1, 2W - 1)`, the mean probability of each shift that stays in the image, over images and queries.
    """
    attentions = model.attentions if isinstance(model, SelfAttentionNet) else []
    if not any(isinstance(attention, ContentAttention) for attention in attentions):
        return {}
    training = model.training
    model.eval()
    maps, shifts = 0.0, 0.0
    for batch in images.split(batch_size):
        by_layer = [_summary(layer.float()) for layer in content_probabilities(model, batch)]
        maps = maps + torch.stack([summary[0] for summary in by_layer])
        shifts = shifts + torch.stack([summary[1] for summary in by_layer])
    model.train(training)
    height, width = maps.shape[-2:]
    return {
        "queries": query_pixels(height, width),
        "mean_maps": (maps / len(images)).cpu().half(),
        "shift_probabilities": (shifts / len(images)).cpu(),
    }


def single_scores(model: SelfAttentionNet, images: Tensor, name: str) -> dict[str, Tensor]:
    """The scores of single images at the query pixels, in the parts of `encodings.learned_content_parts`.

    `<name>_content_scores` `(B, L, N_h, Q, H, W)`, in half precision, `<name>_row_scores` `(B, L, N_h, Q, H)` and
    `<name>_column_scores` `(B, L, N_h, Q, W)`.
    """
    training = model.training
    model.eval()
    layers = list(score_parts(model, images))
    model.train(training)
    row, column = query_pixels(*layers[0][0].shape[-2:]).unbind(1)
    content, rows, columns = (
        torch.stack([part[:, :, row, column].float() for part in parts], dim=1).cpu() for parts in zip(*layers, strict=True)
    )
    return {f"{name}_content_scores": content.half(), f"{name}_row_scores": rows, f"{name}_column_scores": columns}


def single_maps(attention: Mapping[str, Tensor], name: str) -> Tensor:
    """The maps `(B, L, N_h, Q, H, W)` of a record's single images ("image" or "photograph"), from their scores."""
    content, rows, columns = (attention[f"{name}_{part}_scores"].float() for part in ("content", "row", "column"))
    return spatial_softmax(content + rows.unsqueeze(-1) + columns.unsqueeze(-2))


def mean_by_shift(probabilities: Tensor) -> Tensor:
    """The mean probability of each shift, over the query pixels that have it inside the image.

    `(N_h, H, W, H, W)` -> `(N_h, 2H - 1, 2W - 1)`, from the most negative shift; a head at one fixed shift has 1 there, a head
    that always looks at one pixel, or at the border that its centre lies beyond, has not.
    """
    height, width = probabilities.shape[-2:]
    by_shift = probabilities.new_zeros(len(probabilities), 2 * height - 1, 2 * width - 1)
    count = probabilities.new_zeros(2 * height - 1, 2 * width - 1)
    for i in range(height):
        for j in range(width):
            window = slice(height - 1 - i, 2 * height - 1 - i), slice(width - 1 - j, 2 * width - 1 - j)
            by_shift[:, *window] += probabilities[:, i, j]
            count[window] += 1
    return by_shift / count


def _summary(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Summed over the images `(B, N_h, H, W, H, W)`: the maps at the query pixels, and the means by shift."""
    row, column = query_pixels(*probabilities.shape[-2:]).unbind(1)
    total = probabilities.sum(dim=0)  # (N_h, H, W, H, W)
    return total[:, row, column], mean_by_shift(total)
