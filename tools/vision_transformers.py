"""Vision transformers of several libraries, with random weights.

Each function yields the name of a model, a function that builds it, and the side of its images.
"""

from functools import partial

import torch
from outside_models import smallest_of_each_family
from torch import nn

# of timm.models, whose models have attention
FILES = [
    "beit",
    "byoanet",
    "cait",
    "coat",
    "convit",
    "crossvit",
    "csatv2",
    "davit",
    "deepseek_vit",
    "deit",
    "edgenext",
    "efficientformer",
    "efficientformer_v2",
    "efficientvit_msra",
    "eva",
    "fastvit",
    "gcvit",
    "gemma4_vit",
    "hiera",
    "hieradet_sam2",
    "iformer",
    "levit",
    "lowformer",
    "maxxvit",
    "metaformer",
    "mobilenetv5",
    "mobilevit",
    "mvitv2",
    "naflexvit",
    "nest",
    "nextvit",
    "pit",
    "pvt_v2",
    "qwen3_vit",
    "shvit",
    "swin_transformer",
    "swin_transformer_v2",
    "swin_transformer_v2_cr",
    "tiny_vit",
    "tnt",
    "twins",
    "visformer",
    "vision_transformer",
    "vision_transformer_hybrid",
    "vision_transformer_relpos",
    "vision_transformer_sam",
    "vitamin",
    "volo",
    "xcit",
]
# larger images are replaced by small ones, in pixels a side
LARGE, SMALL = 256, 224
SIDES = {"gemma4_vit_167m_enc": 240}  # it pools 3 x 3 patches of 16 x 16 pixels


def timm_models():
    """Yield the name of each model, a function that builds it, and the side of its images."""
    import timm

    for name in smallest_of_each_family(FILES):
        cfg = timm.models.get_pretrained_cfg(name)
        side = cfg.input_size[-1]
        if side <= LARGE:
            yield name, partial(timm.create_model, name), side
        elif cfg.fixed_input_size:  # its constructor takes another size
            yield name, partial(timm.create_model, name, img_size=SMALL), SMALL
        else:
            yield name, partial(timm.create_model, name), SIDES.get(name, SMALL)


def transformers_models():
    """Yield small models of the vision architectures, with eager and with fused attention."""
    import transformers

    small = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}
    plain = small | {"intermediate_size": 96, "image_size": 64, "patch_size": 16}
    swin = {"image_size": 224, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4]}
    cases = {
        "ViT": plain,
        "DeiT": plain,
        "Beit": plain | {"use_relative_position_bias": True},
        "Data2VecVision": plain | {"use_shared_relative_position_bias": True},
        "Swin": swin | {"window_size": 7},
        "Swinv2": swin | {"window_size": 7},
        "Dinov2": plain,
        "Dinov2WithRegisters": plain,
        "DINOv3ViT": plain | {"num_register_tokens": 4},
        "CLIPVision": plain,
        "SiglipVision": plain,
        "Siglip2Vision": plain,
        "ViTMAE": plain | {"mask_ratio": 0.0},
        "ViTMSN": plain,
        "Yolos": plain | {"image_size": [64, 64]},
        "IJepa": plain,
        "AltCLIPVision": plain,
        "ChineseCLIPVision": plain,
        "BlipVision": plain,
        "InternVLVision": plain | {"image_size": [64, 64], "patch_size": [16, 16]},
        "DPT": plain | {"is_hybrid": False},
        "Pvt": {},
        "Segformer": {},
        "LevitModel": {},
        "Cvt": {},
        "Hiera": {},
    }
    for name, options in cases.items():
        for attention in ("eager", "sdpa"):
            build = partial(_transformers_model, transformers, name, options, attention)
            yield f"{name} ({attention})", build, options.get("image_size", 224)


def _transformers_model(transformers, name, options, attention):
    name = name.removesuffix("Model")
    config = getattr(transformers, f"{name}Config")(**options, attn_implementation=attention)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config)
    wrappers = {"ViTMAE": InOrder, "Siglip2Vision": OfPatches}
    return wrappers[name](model) if name in wrappers else model


class InOrder(nn.Module):
    """A masked autoencoder that masks nothing and leaves the patches in the image's order."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        patches = self.model.embeddings.patch_embeddings.num_patches
        return self.model(images, noise=torch.arange(patches).expand(len(images), -1).float())


class OfPatches(nn.Module):
    """A model that is given patches of 16 x 16 pixels and their numbers of rows and columns."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        patches = images.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 4, 5, 1)
        grids = torch.tensor([patches.shape[1:3]] * len(images))
        patches = patches.flatten(3).flatten(1, 2)
        return self.model(patches, patches.new_ones(patches.shape[:2]).long(), grids)


def torchvision_models():
    """Yield torchvision's vision transformers."""
    import torchvision

    for name in ("vit_b_16", "vit_b_32", "vit_l_32", "swin_t", "swin_s", "maxvit_t"):
        yield name, getattr(torchvision.models, name), 224
    for name in ("swin_v2_t", "swin_v2_s"):
        yield name, getattr(torchvision.models, name), 256


def vit_pytorch_models():
    """Yield small models of vit-pytorch."""
    import vit_pytorch
    from vit_pytorch import cait, deepvit, simple_vit_with_register_tokens, vit_with_patch_dropout

    small = {"image_size": 64, "patch_size": 16, "num_classes": 10, "dim": 48, "depth": 2}
    small |= {"heads": 3, "mlp_dim": 96}
    yield "ViT", partial(vit_pytorch.ViT, **small), 64
    yield "ViT, mean pooling", partial(vit_pytorch.ViT, **small, pool="mean"), 64
    yield "SimpleViT", partial(vit_pytorch.SimpleViT, **small), 64
    with_registers = simple_vit_with_register_tokens.SimpleViT
    yield "SimpleViT with registers", partial(with_registers, **small, num_register_tokens=4), 64
    with_dropout = partial(vit_with_patch_dropout.ViT, **small, patch_dropout=0.2)
    yield "ViT with patch dropout", with_dropout, 64
    yield "DeepViT", partial(deepvit.DeepViT, **small), 64
    yield "CaiT", partial(cait.CaiT, **small, cls_depth=1), 64


class OfTorch(nn.Module):
    """A small vision transformer made of torch's own layers."""

    def __init__(self, layer):
        super().__init__()
        self.embed = nn.Conv2d(3, 48, 16, 16)
        self.layer = layer

    def forward(self, images):
        tokens = self.embed(images).flatten(2).mT
        if isinstance(self.layer, nn.MultiheadAttention):
            return self.layer(tokens, tokens, tokens, need_weights=False)[0]
        return self.layer(tokens)


def torch_models():
    """Yield models of torch's own layers."""
    attention = partial(nn.MultiheadAttention, 48, 3, batch_first=True)
    yield "MultiheadAttention", lambda: OfTorch(attention()), 64
    layer = partial(nn.TransformerEncoderLayer, 48, 3, 96, batch_first=True)
    yield "TransformerEncoderLayer", lambda: OfTorch(layer()), 64
    yield "TransformerEncoder", lambda: OfTorch(nn.TransformerEncoder(layer(), 2)), 64


def open_clip_models():
    """Yield named models of open_clip, with their text towers, and variants of its vision tower."""
    import open_clip

    names = ("ViT-M-32", "ViT-B-16-plus-240", "coca_ViT-B-32", "EVA02-B-16", "ViT-B-16-SigLIP")
    names += ("ViTamin-S", "PE-Core-T-16-384", "MobileCLIP-B", "MobileCLIP-S1")
    names += ("swin_base_patch4_window7_224", "vit_relpos_medium_patch16_cls_224")
    names += ("vit_medium_patch16_gap_256", "RN50")
    for name in names:
        side = open_clip.get_model_config(name)["vision_cfg"]["image_size"]
        yield name, partial(open_clip.create_model, name), side
    pooling = {"attn_pooler_queries": 8, "attn_pooler_heads": 3}
    variants = {
        "CLIPA": {"no_ln_pre": True, "pool_type": "avg", "pos_embed_type": "sin_cos_2d"},
        "parallel attention pooling": {"attentional_pool": "parallel", **pooling},
        "cascaded attention pooling": {"attentional_pool": "cascade", **pooling},
        "normalised queries": {"qk_norm": True},
        "NormFormer": {"scale_heads": True, "scale_attn_inner": True, "scale_fc": True},
    }
    small = {"image_size": 64, "patch_size": 16, "width": 48, "layers": 2, "heads": 3}
    small |= {"mlp_ratio": 2.0, "output_dim": 48}
    for name, options in variants.items():
        build = partial(open_clip.transformer.VisionTransformer, **small, **options)
        yield f"VisionTransformer, {name}", build, 64


def x_transformers_models():
    """Yield small models of x-transformers."""
    variants = {
        "plain": {},
        "fused": {"attn_flash": True},
        "rotary": {"rotary_pos_emb": True},
        "relative position bias": {"rel_pos_bias": True},
        "normalised queries": {"attn_qk_norm": True},
        "one key head": {"attn_one_kv_head": True},
        "sigmoid": {"attn_sigmoid": True},
        "memory keys": {"attn_num_mem_kv": 4},
    }
    for name, options in variants.items():
        yield name, partial(_x_transformer, **options), 64
    yield "registers", partial(_x_transformer, registers=4), 64


def _x_transformer(registers=0, **options):
    from x_transformers import Encoder, ViTransformerWrapper

    layers = Encoder(dim=96, depth=2, heads=3, attn_dim_head=32, **options)
    sizes = {"image_size": 64, "patch_size": 16, "num_register_tokens": registers}
    return ViTransformerWrapper(**sizes, attn_layers=layers)


def segmentation_models():
    """Yield networks of segmentation-models-pytorch with encoders that attend."""
    import segmentation_models_pytorch as library

    for kind, encoder, side in (
        ("Unet", "mit_b0", 224),
        ("Segformer", "mit_b1", 224),
        ("DPT", "tu-vit_tiny_patch16_224", 224),
        ("UPerNet", "tu-swin_tiny_patch4_window7_224", 224),
        ("MAnet", "resnet18", 128),
    ):
        build = partial(getattr(library, kind), encoder, encoder_weights=None)
        yield f"{kind}, {encoder}", build, side


def monai_models():
    """Yield small two-dimensional models of MONAI."""
    from monai.networks import nets

    small = {"hidden_size": 48, "mlp_dim": 96, "num_heads": 3, "spatial_dims": 2}
    vit = partial(nets.ViT, 3, (64, 64), (16, 16), **small, num_layers=2)
    yield "ViT", vit, 64
    yield "ViT with class token", partial(vit, classification=True), 64
    yield "UNETR", partial(nets.UNETR, 3, 2, (64, 64), **small), 64
    swin = partial(nets.SwinUNETR, 3, 2, num_heads=(3, 3, 3, 3), feature_size=12, spatial_dims=2)
    yield "SwinUNETR", swin, 224


def segment_anything_models():
    """Yield small image encoders of Segment Anything; windows of 7 x 7 tokens need padding."""
    from segment_anything.modeling import ImageEncoderViT

    small = {"img_size": 256, "embed_dim": 48, "depth": 2, "num_heads": 3, "out_chans": 16}
    small |= {"use_rel_pos": True, "global_attn_indexes": (1,)}
    for window in (0, 4, 7):
        yield f"windows of {window}", partial(ImageEncoderViT, **small, window_size=window), 256


LIBRARIES = {
    "transformers": transformers_models,
    "torchvision": torchvision_models,
    "vit-pytorch": vit_pytorch_models,
    "open_clip_torch": open_clip_models,
    "x-transformers": x_transformers_models,
    "segmentation-models-pytorch": segmentation_models,
    "monai": monai_models,
    "segment-anything": segment_anything_models,
    "torch": torch_models,
    "timm": timm_models,
}
