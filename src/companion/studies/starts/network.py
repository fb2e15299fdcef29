"""The vision transformers of chapter 17, which differ in how their attention is initialised.

Letters: N_h heads, D hidden dimension, D_h dimension of a head.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from attnconv.networks import NUM_HEADS
from attnconv.theory.encodings import sinusoidal_encoding
from attnconv.vit import expect_timm
from attnconv.vit.biases import Biased, biased_layers
from attnconv.vit.rotary import rotary_layers, start_rotary
from attnconv.vit.start import kernel_offsets, set_heads

from ...tiers import VIT_RECIPE
from .arms import ALL_STARTS, AttentionStart

#: Weights of noise and identity in the products of the mimetic start (Trockman and Kolter, 2023).
MIMETIC_QUERY_KEY = (0.7, 0.7)
MIMETIC_VALUE = (0.4, -0.4)


def vision_transformer(
    start: str = "default",
    in_channels: int = 3,
    num_classes: int = 10,
    image_size: int = 32,
    pooling: int = VIT_RECIPE["pooling"],
    num_layers: int = VIT_RECIPE["num_layers"],
    hidden: int = VIT_RECIPE["hidden"],
    intermediate: int = VIT_RECIPE["intermediate"],
    start_alpha: float = VIT_RECIPE["start_alpha"],
    seed: int = 0,
) -> nn.Module:
    """Return a timm vision transformer whose attention is initialised as an `AttentionStart` says.

    `start` is a name in `ALL_STARTS`. The mimetic start is that of Trockman and Kolter (2023); with
    absolute positions, it replaces the relative position bias, as in their paper. Random offsets
    are drawn with `seed`. Raises ImportError if timm is not installed.
    """
    expect_timm()
    from timm.models.vision_transformer import VisionTransformer
    from timm.models.vision_transformer_relpos import VisionTransformerRelPos

    if start not in ALL_STARTS:
        raise ValueError(f"unknown start {start!r}, expected one of {', '.join(ALL_STARTS)}")
    chosen = ALL_STARTS[start]
    sizes: dict[str, Any] = {"img_size": image_size, "patch_size": pooling, "depth": num_layers}
    sizes |= {"embed_dim": hidden, "num_heads": NUM_HEADS, "mlp_ratio": intermediate / hidden}
    sizes |= {"in_chans": in_channels, "num_classes": num_classes, "global_pool": "avg"}
    if chosen.positions == "absolute":
        model: Any = VisionTransformer(**sizes, class_token=False, fc_norm=False)
        start_mimetic(model, image_size // pooling)
    elif chosen.positions == "rotary":
        model = rotary_network(**sizes)
        layers = rotary_layers(model, torch.zeros(1, in_channels, image_size, image_size))
        if (offsets := offsets_of(chosen, len(layers), seed)) is not None:
            start_rotary(layers, offsets, start_alpha)
    else:
        model = VisionTransformerRelPos(**sizes, rel_pos_type="bias", init_values=None)
        layers = biased_layers(model)
        if (offsets := offsets_of(chosen, len(layers), seed)) is not None:
            set_heads(layers, offsets, start_alpha)
        if not chosen.trained:
            freeze(layers)
        if chosen.values == "mimetic":
            for block in model.blocks:
                start_values(block.attn)
    for block in model.blocks:  # with a bias, the fused kernel is slower on CPUs
        block.attn.fused_attn = torch.cuda.is_available() or chosen.positions == "rotary"
    model.in_channels = in_channels
    return model


def rotary_network(**sizes: Any) -> nn.Module:
    """Return timm's vision transformer with rotary encodings and the usual base of RoPE-ViT.

    Queries, keys and values have a bias, and there are no other positions and no class token. The
    encodings belong to Su et al. (2021), and their axial form for images to Heo et al. (2024).
    """
    from timm.models.eva import Eva

    return Eva(
        **sizes,
        attn_type="rope",
        use_rot_pos_emb=True,
        use_abs_pos_emb=False,
        rope_temperature=100.0,
        class_token=False,
        use_fc_norm=False,
    )


def offsets_of(start: AttentionStart, num_layers: int, seed: int) -> list[Tensor] | None:
    """Return the offsets `(N_h, 2)` of each layer's heads, or None if timm's start is kept."""
    shape = (num_layers, NUM_HEADS, 2)
    if start.offsets == "grid":
        return kernel_offsets(3, num_layers * [NUM_HEADS])
    if start.offsets == "zero":
        return [*torch.zeros(shape)]
    if start.offsets in ("normal", "whole"):
        offsets = start.spread * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        return [*(offsets.round() if start.offsets == "whole" else offsets)]
    return None


@torch.no_grad()
def freeze(layers: list[Biased]) -> None:
    """Keep the attention of layers with a relative position bias from being trained.

    Queries and keys are set to zero, so that neither has a gradient.
    """
    for layer in layers:
        for values in (layer.attention.qkv.weight, layer.attention.qkv.bias):
            values[: 2 * len(values) // 3] = 0
        layer.holder.relative_position_bias_table.requires_grad_(False)


@torch.no_grad()
def start_mimetic(model: Any, side: int) -> None:
    """Initialise a plain vision transformer as in Trockman and Kolter (2023).

    In each head, W_query W_key^T is close to 0.7 Z + 0.7 I, where the entries of Z are drawn from
    N(0, 1 / D). Values and projections are those of `start_values`. The position encoding is
    sinusoidal.
    """
    hidden = model.embed_dim
    model.pos_embed.copy_(sinusoidal_encoding(side, side, dim=hidden).flatten(0, 1))
    for block in model.blocks:
        attention = block.attn
        heads, dim = attention.num_heads, attention.head_dim
        queries, keys = zip(
            *(_factors(hidden, *MIMETIC_QUERY_KEY, dim) for _ in range(heads)), strict=True
        )
        attention.qkv.weight[: 2 * hidden] = torch.cat([*queries, *keys])
        start_values(attention)


@torch.no_grad()
def start_values(attention: Any) -> None:
    """Set a layer's values and projections so that W_value W_project is close to 0.4 Z - 0.4 I.

    The entries of Z are drawn from N(0, 1 / D). The source is Trockman and Kolter (2023).
    """
    hidden = attention.qkv.in_features
    value, project = _factors(hidden, *MIMETIC_VALUE, hidden)
    attention.qkv.weight[-hidden:] = value
    attention.proj.weight.copy_(project.T)


def _factors(hidden: int, noise: float, identity: float, rank: int) -> tuple[Tensor, Tensor]:
    """Return A and B `(rank, D)` such that A^T B best approximates noise Z + identity I."""
    Z = torch.randn(hidden, hidden) / math.sqrt(hidden)
    U, S, Vh = torch.linalg.svd(noise * Z + identity * torch.eye(hidden))
    root = S[:rank].sqrt().unsqueeze(1)
    return root * U[:, :rank].T, root * Vh[:rank]
