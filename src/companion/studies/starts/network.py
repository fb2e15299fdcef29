"""The vision transformers of chapters 17 and 18, which differ in how their attention starts.

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
from .impulse import start_impulse

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
    sinusoidal positions, it replaces the relative position bias, as in their paper. Random offsets
    are drawn with `seed`. Raises ImportError if timm is not installed.
    """
    expect_timm()
    if start not in ALL_STARTS:
        raise ValueError(f"unknown start {start!r}, expected one of {', '.join(ALL_STARTS)}")
    chosen = ALL_STARTS[start]
    sizes: dict[str, Any] = {"img_size": image_size, "patch_size": pooling, "depth": num_layers}
    sizes |= {"embed_dim": hidden, "num_heads": NUM_HEADS, "mlp_ratio": intermediate / hidden}
    sizes |= {"in_chans": in_channels, "num_classes": num_classes, "global_pool": "avg"}
    model = network_with(chosen.positions, **sizes)
    model.in_channels = in_channels
    start_positions(model, chosen)
    if (offsets := offsets_of(chosen, num_layers, seed)) is not None:
        start_heads(model, chosen.positions, offsets, start_alpha)
    if not chosen.trained:
        freeze(biased_layers(model))
    for block in model.blocks:
        if chosen.offsets == "mimetic":
            start_queries_and_keys(block.attn)
        if chosen.values == "mimetic":
            start_values(block.attn)
        # with a bias, the fused kernel is slower on CPUs
        block.attn.fused_attn = torch.cuda.is_available() or chosen.positions == "rotary"
    return model


def network_with(positions: str, **sizes: Any) -> Any:
    """Return timm's network with the given kind of `AttentionStart.positions`, as timm starts it.

    LayerScale is switched off, and there is no class token.
    """
    from timm.models.vision_transformer import VisionTransformer
    from timm.models.vision_transformer_relpos import VisionTransformerRelPos

    if positions == "relative":
        return VisionTransformerRelPos(**sizes, rel_pos_type="bias", init_values=None)
    if positions == "rotary":
        return rotary_network(**sizes)
    return VisionTransformer(**sizes, class_token=False, fc_norm=False)


@torch.no_grad()
def start_positions(model: Any, start: AttentionStart) -> None:
    """Set the position encoding of a network with absolute positions as a start says."""
    if start.positions == "sinusoidal":
        encoding = sinusoidal_encoding(*model.patch_embed.grid_size, dim=model.embed_dim)
        model.pos_embed.copy_(encoding.flatten(0, 1))
    elif start.positions == "absolute":
        model.pos_embed.mul_(start.position_scale)


def start_heads(model: Any, positions: str, offsets: list[Tensor], alpha: float) -> None:
    """Let heads attend to offsets `(N_h, 2)` of each layer, given the kind of positions.

    With absolute positions, `alpha` is not used: sharpness follows from the position encoding.
    """
    if positions == "relative":
        set_heads(biased_layers(model), offsets, alpha)
    elif positions == "rotary":
        images = torch.zeros(1, model.in_channels, *model.patch_embed.img_size)
        start_rotary(rotary_layers(model, images), offsets, alpha)
    else:
        start_impulse(model, offsets)


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
def start_queries_and_keys(attention: Any) -> None:
    """Set each head's queries and keys so that W_query W_key^T is close to 0.7 Z + 0.7 I.

    The entries of Z are drawn from N(0, 1 / D). The source is Trockman and Kolter (2023).
    """
    hidden, heads, dim = attention.qkv.in_features, attention.num_heads, attention.head_dim
    queries, keys = zip(
        *(_factors(hidden, *MIMETIC_QUERY_KEY, dim) for _ in range(heads)), strict=True
    )
    attention.qkv.weight[: 2 * hidden] = torch.cat([*queries, *keys])


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
