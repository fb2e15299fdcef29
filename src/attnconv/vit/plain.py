"""Where plain vision transformers of several libraries keep their tokens, positions and layers.

A plain vision transformer adds learned absolute position encodings to its tokens. All paths below
are relative to the model, or to a block where the comment says so.
"""

from typing import Any, NamedTuple

from torch import Tensor, nn


class Layout(NamedTuple):
    """The paths of the modules and tensors of a library's plain vision transformer.

    `position` `(..., P + T, D)` is added to P prefix tokens and T patch tokens, and `patches` is
    the module that computes the patch tokens. `tokens` are the prefix tokens in their order, those
    that have a position first. `blocks` are of the types `block_types`; `norms`, `attention` and
    `writers`, the linear layers whose outputs are added to the tokens, are relative to a block.
    `first` normalises the tokens before the first block, and `last`, or the first of these modules
    that the model has, after the last one.
    """

    position: str
    patches: str
    tokens: tuple[str, ...]
    blocks: str
    block_types: tuple[str, ...]
    norms: tuple[str, str]
    attention: str
    writers: tuple[str, str]
    last: tuple[str, ...]
    first: str | None = None


_HF_EMBEDDINGS: dict[str, Any] = {
    "position": "embeddings.position_embeddings",
    "patches": "embeddings.patch_embeddings.projection",
    "tokens": (
        "embeddings.cls_token",
        "embeddings.distillation_token",
        "embeddings.register_tokens",
    ),
    "last": ("layernorm",),
}
_CLIP: dict[str, Any] = {
    "position": "embeddings.position_embedding.weight",
    "patches": "embeddings.patch_embedding",
    "blocks": "encoder.layers",
    "norms": ("layer_norm1", "layer_norm2"),
    "attention": "self_attn",
    "writers": ("self_attn.out_proj", "mlp.fc2"),
    "last": ("post_layernorm",),
}
_VIT_PYTORCH: dict[str, Any] = {
    "position": "pos_embedding",
    "patches": "to_patch_embedding.3",
    "blocks": "transformer.layers",
    "block_types": ("ModuleList",),
    "norms": ("0.norm", "1.net.0"),
    "attention": "0",
    "last": ("transformer.norm",),
}
LAYOUTS = {
    "timm": Layout(
        position="pos_embed",
        patches="patch_embed.proj",
        tokens=("cls_token", "dist_token", "reg_token"),
        first="norm_pre",
        blocks="blocks",
        block_types=("Block",),
        norms=("norm1", "norm2"),
        attention="attn",
        writers=("attn.proj", "mlp.fc2"),
        last=("norm", "fc_norm"),
    ),
    "torchvision": Layout(
        position="encoder.pos_embedding",
        patches="conv_proj",
        tokens=("class_token",),
        blocks="encoder.layers",
        block_types=("EncoderBlock",),
        norms=("ln_1", "ln_2"),
        attention="self_attention",
        writers=("self_attention.out_proj", "mlp.3"),
        last=("encoder.ln",),
    ),
    "transformers, ViT and DeiT": Layout(
        **_HF_EMBEDDINGS,
        blocks="layers",
        block_types=("ViTLayer", "DeiTLayer"),
        norms=("layernorm_before", "layernorm_after"),
        attention="attention",
        writers=("attention.o_proj", "mlp.fc2"),
    ),
    "transformers 4, ViT and DeiT": Layout(
        **_HF_EMBEDDINGS,
        blocks="encoder.layer",
        block_types=("ViTLayer", "DeiTLayer"),
        norms=("layernorm_before", "layernorm_after"),
        attention="attention.attention",
        writers=("attention.output.dense", "output.dense"),
    ),
    "transformers, DINOv2": Layout(
        **_HF_EMBEDDINGS,
        blocks="encoder.layer",
        block_types=("Dinov2Layer", "Dinov2WithRegistersLayer"),
        norms=("norm1", "norm2"),
        attention="attention",
        writers=("attention.o_proj", "mlp.fc2"),
    ),
    "transformers, DINOv2 with SwiGLU": Layout(
        **_HF_EMBEDDINGS,
        blocks="encoder.layer",
        block_types=("Dinov2Layer", "Dinov2WithRegistersLayer"),
        norms=("norm1", "norm2"),
        attention="attention",
        writers=("attention.o_proj", "mlp.down_proj"),
    ),
    "transformers 4, DINOv2": Layout(
        **_HF_EMBEDDINGS,
        blocks="encoder.layer",
        block_types=("Dinov2Layer", "Dinov2WithRegistersLayer"),
        norms=("norm1", "norm2"),
        attention="attention.attention",
        writers=("attention.output.dense", "mlp.fc2"),
    ),
    "transformers, CLIP": Layout(
        **_CLIP,
        tokens=("embeddings.class_embedding",),
        first="pre_layrnorm",
        block_types=("CLIPEncoderLayer",),
    ),
    "transformers, SigLIP": Layout(**_CLIP, tokens=(), block_types=("SiglipEncoderLayer",)),
    "open_clip": Layout(
        position="positional_embedding",
        patches="conv1",
        tokens=("class_embedding",),
        first="ln_pre",
        blocks="transformer.resblocks",
        block_types=("ResidualAttentionBlock", "CustomResidualAttentionBlock"),
        norms=("ln_1", "ln_2"),
        attention="attn",
        writers=("attn.out_proj", "mlp.c_proj"),
        last=("attn_pool.ln_k", "ln_post"),
    ),
    "vit-pytorch, ViT": Layout(
        **_VIT_PYTORCH, tokens=("cls_token",), writers=("0.to_out.0", "1.net.4")
    ),
    "vit-pytorch, SimpleViT": Layout(**_VIT_PYTORCH, tokens=(), writers=("0.to_out", "1.net.3")),
}
#: Where a model with a task's head keeps the vision transformer itself (transformers).
BASES = ("vit", "deit", "dinov2", "dinov2_with_registers", "vision_model")
HEADED = ("ForImageClassification", "VisionModel", "VisionModelWithProjection")
#: Attributes of attention layers and blocks with a position bias, which are no plain ones.
BIASES = ("relative_position_bias_table", "rel_pos", "rel_pos_h")


def part(module: Any, path: str) -> Any:
    """Return the module or tensor at a dotted path, or None if there is none."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def layout_of(model: Any) -> Layout | None:
    """Return the layout of a plain vision transformer, or None if the model has none of them."""
    return next((layout for layout in LAYOUTS.values() if _fits(model, layout)), None)


def _fits(model: Any, layout: Layout) -> bool:
    """Return whether a model has the parts of a layout and no relative position bias."""
    blocks = part(model, layout.blocks)
    if not isinstance(blocks, nn.Sequential | nn.ModuleList) or not len(blocks):
        return False
    if not isinstance(part(model, layout.position), Tensor):
        return False
    if any(hasattr(m, name) for m in blocks.modules() for name in BIASES):
        return False
    known = type(blocks[0]).__name__ in layout.block_types
    named = any(kind.__name__ == "VisionTransformer" for kind in type(model).__mro__)
    parts = [part(model, layout.patches)]
    parts += [part(blocks[0], name) for name in (layout.attention, *layout.norms)]
    if not named:
        parts += [part(blocks[0], name) for name in layout.writers]
        known = known and isinstance(parts[-1], nn.Linear)
    return (known or named) and all(isinstance(each, nn.Module) for each in parts)
