"""The ways in which a layer can multiply, each forced, and what its heads average."""

import copy

import pytest
from torch import nn

from attnconv.layers.conv_as_attention import ConvAsAttention
from attnconv.layers.tiles import tiles_of
from companion.heads import score_parts
from companion.runs.history import ScoreParts

WAYS = ("whole", "tiles")


def force(patch, way):
    """Make layers use whole maps, or tiles of three queries, for images of any size."""

    def best_tiles(support, products, separable):
        return [tiles_of(mask, 3) for mask in support] if way == "tiles" else None

    patch.setattr("attnconv.layers.attention.tiles_may_pay", lambda *sizes: True)
    for module in ("attention", "conv_as_attention"):
        patch.setattr(f"attnconv.layers.{module}.best_tiles", best_tiles)


def by_axes(layer, x, way):
    """Return a converted layer's output along the axes, not by shifts, in the given way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConvAsAttention, "shifts", lambda self, sizes: None)
        force(patch, way)
        return layer(x)


def head_averages(layer, X):
    """Return what each head averages, `(B, H, W, N_h, D_in)`.

    It is the layer's output with matrices W^(h) that keep the heads apart.
    """
    layer = copy.deepcopy(layer)
    layer.dim_out = layer.value.in_features
    layer.value = nn.Linear(layer.dim_out, layer.dim_out, bias=False).to(layer.value.weight)
    nn.init.eye_(layer.value.weight)
    return layer(X).unflatten(-1, (layer.num_heads, -1))


def content_probabilities(model, images):
    """Return each layer's maps `(B, N_h, H, W, H, W)` of a model whose attention uses content."""
    return [ScoreParts(*parts).maps() for parts in score_parts(model, images)]
