"""Try to read the attention of vision transformers from timm, transformers, torchvision and others.

All models have random weights; nothing is downloaded.
From timm, one model of each family is tried: the smallest among the models of a file with attention
whose names differ in sizes only. The record, benchmarks/results/inspection-libraries.json, has the
date, the versions of the libraries and, for each model, whether its attention was read, the number
of layers, the largest gap between weights times values and the layers' own results, the attention
that was skipped, or the reason of the refusal. "independent" is the largest difference between the
maps read with fused and with explicit attention, relative to the largest map value, or null for a
model that does not have both. "failed" means an error that is no refusal by
attnconv, such as one in the model itself. The record is written after each model, and models that
it already has are kept unless --again is given or a library has another version. Needs timm,
torchvision, transformers and vit-pytorch.

Usage: python tools/inspect_libraries.py [--again] [--only WORD]
"""

from functools import partial
from pathlib import Path

import torch
from outside_models import is_refusal, smallest_of_each_family, write_record
from torch import nn

from attnconv.vit.capture import attention_of, read_attention

RECORD = Path(__file__).parents[1] / "benchmarks/results/inspection-libraries.json"
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


LIBRARIES = {
    "transformers": transformers_models,
    "torchvision": torchvision_models,
    "vit-pytorch": vit_pytorch_models,
    "torch": torch_models,
    "timm": timm_models,
}


def attempt(build, side):
    """Return what reading a model's attention gives, or None if there is no such model."""
    side = side if isinstance(side, int) else side[0]
    row = {"side": side}
    torch.manual_seed(0)
    try:
        model = build()
    except Exception as error:
        if "does not support an attention implementation" in str(error):
            return None  # there is no such variant
        return row | {"outcome": "not built", "reason": f"{type(error).__name__}: {error}"[:300]}
    images = torch.randn(1, 3, side, side)
    try:
        reading = read_attention(model, images, use=summarise)
    except Exception as error:
        outcome = "refused" if is_refusal(error) else "failed"
        return row | {"outcome": outcome, "reason": f"{type(error).__name__}: {error}"[:500]}
    grids = sorted({f"{height} x {width}" for _, (height, width) in reading.layers})
    return row | {
        "outcome": "read",
        "layers": len(reading.layers),
        "gap": max(gap for gap, _ in reading.layers),
        "independent": independent(model, images),
        "grids": grids,
        "skipped": len(reading.skipped),
        "first skipped": reading.skipped[:1],
    }


def independent(model, images):
    """Return how far maps differ between fused and explicit attention, or None if one is missing.

    The maps of explicit attention are those that the model itself multiplies; those of fused
    attention are computed from its queries and keys.
    """
    first = [layer.maps for layer in attention_of(model, images)]
    if not switch_path(model):
        return None
    pairs = zip(first, [layer.maps for layer in attention_of(model, images)], strict=True)
    return max(float((one - other).abs().max() / one.max()) for one, other in pairs)


def switch_path(model):
    """Switch a model from fused to explicit attention or back; return whether it has both."""
    inner = getattr(model, "model", model)
    if hasattr(inner, "set_attn_implementation"):  # transformers
        other = {"eager": "sdpa", "sdpa": "eager"}[inner.config._attn_implementation]
        try:
            inner.set_attn_implementation(other)
        except ValueError:
            return False
        return inner.config._attn_implementation == other
    switches = [module for module in model.modules() if hasattr(module, "fused_attn")]  # timm
    for module in switches:
        module.fused_attn = not module.fused_attn
    return bool(switches)


def summarise(layer):
    return layer.gap, tuple(layer.maps.shape[-2:])


if __name__ == "__main__":
    write_record(RECORD, LIBRARIES, attempt, __doc__)
