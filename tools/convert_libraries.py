"""Try to convert networks of several libraries to attention.

All networks have random weights; nothing is downloaded. From timm and torchvision, one network of
each family is tried, the smallest, with images of 128 pixels a side where it accepts them; from
the other libraries, small networks. Computed weights are folded (`fold=True`).
Parameters that start at almost zero, such as those of LayerScale, are made larger, and statistics
of batch normalisation are those of two images, so that every convolution has an effect on the
output. The record, benchmarks/results/conversion-libraries.json, has for each network the number of
convolutions replaced, modules left, convolutions still executed, and the largest difference of the
outputs in float32 and in float64, relative to the largest output; or the reason of the refusal.
If the difference in float32 is above 10^-3, "rounding" is that between the network itself in
float32 and in float64.
"failed" means an error that is no refusal by attnconv. Rows are kept as in inspect_libraries.py.

Usage: python tools/convert_libraries.py [--again] [--only WORD]
"""

import warnings
from functools import partial
from pathlib import Path

import torch
from outside_models import family, is_refusal, size, smallest_of_each_family, write_record
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map
from vision_transformers import FILES as WITH_ATTENTION

import attnconv
from attnconv.layers.conversion_report import compare
from attnconv.layers.mode import call

RECORD = Path(__file__).parents[1] / "benchmarks/results/conversion-libraries.json"
SMALL, LARGER = 128, (224, 256, 299)  # pixels a side, and what is tried for other networks
LARGEST = 300_000_000  # parameters
# of timm.models, whose models have attention and several convolutions
HYBRIDS = ["coat", "edgenext", "efficientformer", "fastvit", "levit", "maxxvit", "metaformer"]
HYBRIDS += ["mobilevit", "nextvit", "pvt_v2", "tiny_vit", "twins", "visformer", "xcit"]
SAMPLES = (1, 1, 16_000)  # a second of sound


def timm_networks():
    """Yield the name of each network, a function that builds it, and the side of its images."""
    import timm
    from timm.models import _registry

    files = [file for file in sorted(_registry._module_to_models) if file not in WITH_ATTENTION]
    for name in smallest_of_each_family(files + HYBRIDS):
        cfg = timm.models.get_pretrained_cfg(name)
        side = cfg.input_size[-1]
        if side > SMALL and not cfg.fixed_input_size:
            side = SMALL
        yield name, partial(timm.create_model, name), side


def torchvision_networks():
    """Yield one network of each of torchvision's families, but for quantised and video ones."""
    from torchvision import models

    families = {}
    for name in models.list_models(include="*"):
        module = models.get_model_builder(name).__module__
        if "quantization" not in module and "video" not in module:
            families.setdefault((module, family(name)), []).append(name)
    for (module, _), names in families.items():
        name = min(names, key=size)
        if "detection" in module:
            yield f"{name}, backbone", partial(_backbone, name), SMALL
            continue
        options = {"weights_backbone": None} if "segmentation" in module else {}
        shape = "pair" if "optical_flow" in module else SMALL
        yield name, partial(models.get_model, name, weights=None, **options), shape


def _backbone(name):
    """Return a detector's backbone; without training, the detector itself finds nothing."""
    from torchvision import models

    return models.get_model(name, weights=None, weights_backbone=None).backbone


def transformers_networks():
    """Yield small networks of transformers that contain convolutions, with their inputs."""
    import transformers

    speech = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}
    speech |= {"intermediate_size": 96}
    stages = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]}
    cases = {
        "ResNet": stages | {"embedding_size": 16},
        "RegNet": stages | {"embedding_size": 16, "groups_width": 8},
        "ConvNext": stages,
        "ConvNextV2": stages,
        "Bit": stages | {"embedding_size": 32, "num_groups": 8},
        "MobileNetV1": {},
        "MobileNetV2": {},
        "EfficientNet": {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
        "PoolFormer": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]},
        "FocalNet": {"embed_dim": 16, "depths": [1, 1, 1, 1]},
        "MobileViT": {},
        "MobileViTV2": {},
        "SwiftFormer": {},
        "LevitModel": {},
        "Cvt": {},
        "Segformer": {},
        "Wav2Vec2": speech,
        "Hubert": speech,
        "WavLM": speech,
        "SEW": speech,
        "UniSpeech": speech,
        "Data2VecAudio": speech,
        "Encodec": {},
        "Dac": {"encoder_hidden_size": 8, "decoder_hidden_size": 64},
        "Mimi": {
            "hidden_size": 48,
            "num_filters": 8,
            "num_hidden_layers": 2,
            "upsample_groups": 48,
        },
    }
    for name, options in cases.items():
        shape = SMALL
        if options is speech:
            shape = SAMPLES[1:]
        elif name in ("Encodec", "Dac", "Mimi"):
            shape = SAMPLES
        yield name, partial(_transformers_network, transformers, name, options), shape


def _transformers_network(transformers, name, options):
    name = name.removesuffix("Model")
    config = getattr(transformers, f"{name}Config")(**options)
    return getattr(transformers, f"{name}Model")(config)


def diffusers_networks():
    """Yield small denoising networks and autoencoders of diffusers."""
    import diffusers

    small = {"block_out_channels": (16, 32), "norm_num_groups": 4}
    unet = small | {"sample_size": 16, "layers_per_block": 1}
    attending = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "attention_head_dim": 8}
    attending |= {"up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    crossed = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")}
    crossed |= {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "attention_head_dim": 4}
    coder = small | {"down_block_types": ("DownEncoderBlock2D",) * 2}
    coder |= {"up_block_types": ("UpDecoderBlock2D",) * 2}
    sound = {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "channel_multiples": [1, 2]}
    sound |= {"decoder_channels": 8, "decoder_input_channels": 4}
    images, time, text = (1, 3, 16, 16), (1,), (1, 5, 8)
    cases = {
        "UNet2DModel": (unet | attending, [images, time]),
        "UNet2DConditionModel": (
            unet | crossed | {"cross_attention_dim": 8},
            [(1, 4, 16, 16), time, text],
        ),
        "AutoencoderKL": (coder, images),
        "VQModel": (coder | {"num_vq_embeddings": 32}, images),
        "AutoencoderOobleck": (sound, (1, 2, 256)),
        "T2IAdapter": ({"channels": [16, 32], "num_res_blocks": 1, "downscale_factor": 4}, 64),
    }
    for name, (options, shape) in cases.items():
        yield name, partial(getattr(diffusers, name), **options), shape


def monai_networks():
    """Yield small two-dimensional networks of MONAI."""
    from monai.networks import nets

    scan, pair = (1, 1, 64, 64), (1, 2, 64, 64)
    cases = {
        "UNet": ((2, 1, 2, (4, 8, 16), (2, 2)), scan),
        "BasicUNet": ((2, 1, 2, (8,) * 6), scan),
        "AttentionUnet": ((2, 1, 2, (4, 8, 16), (2, 2)), scan),
        "SegResNet": ((2, 8, 1, 2), scan),
        "DynUNet": ((2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], [4, 8, 16]), scan),
        "AutoEncoder": ((2, 1, 2, (4, 8), (2, 2)), scan),
        "Regressor": (((1, 64, 64), (2,), (4, 8), (2, 2)), scan),
        "VoxelMorphUNet": ((2, 2, 4, (8, 8, 8, 8), (4, 4)), pair),
        "PatchDiscriminator": ((2, 8, 1), scan),
    }
    for name, (arguments, shape) in cases.items():
        yield name, partial(getattr(nets, name), *arguments), shape


def segmentation_networks():
    """Yield the architectures of segmentation-models-pytorch."""
    import segmentation_models_pytorch as library

    kinds = ["Unet", "FPN", "PSPNet", "DeepLabV3Plus", "Linknet", "MAnet", "UPerNet"]
    for kind in kinds:
        yield kind, partial(getattr(library, kind), "resnet18", encoder_weights=None), 64
    yield "Segformer", partial(library.Segformer, "mit_b0", encoder_weights=None), 64


def kornia_networks():
    """Yield feature detectors and vision models of kornia."""
    from kornia import feature
    from kornia.models import rrdbnet, tiny_vit

    yield "KeyNet", partial(feature.KeyNet, False), (1, 1, 64, 64)
    yield "DISK", feature.DISK, 64
    yield "TinyViT", partial(tiny_vit.TinyViT, 64, embed_dims=[24, 24, 48, 48]), 64
    sizes = {"num_feat": 8, "num_block": 1, "num_grow_ch": 4}
    yield "RRDBNet", partial(rrdbnet.RRDBNet, 3, 3, **sizes), 16


def open_clip_networks():
    """Yield small image towers of open_clip."""
    from open_clip import modified_resnet, transformer

    residual = partial(modified_resnet.ModifiedResNet, (1, 1, 1, 1), 16, 4, 64, 8)
    yield "ModifiedResNet", residual, 64
    vit = partial(transformer.VisionTransformer, 64, 16, 48, 2, 3, 2.0, output_dim=16)
    yield "VisionTransformer", vit, 64


def torchaudio_networks():
    """Yield small networks of torchaudio."""
    from torchaudio import models

    yield "ConvTasNet", partial(models.ConvTasNet, 2, 16, 32, 3, 8, 16, 3, 2), (1, 1, 800)
    wave_rnn = partial(models.WaveRNN, [2, 2], 8, 4, 1, 16, 16, 5, 8, 16, 16)
    yield "WaveRNN", wave_rnn, [(1, 1, 16), (1, 1, 8, 8)]


def encodec_networks():
    """Yield small encoders and decoders of encodec."""
    from encodec.modules import SEANetDecoder, SEANetEncoder

    small = {"channels": 1, "dimension": 8, "n_filters": 4, "ratios": [4, 2], "lstm": 1}
    for norm in ("none", "weight_norm"):
        for causal in (True, False):
            options = small | {"norm": norm, "causal": causal}
            kind = f"{norm}, causal" if causal else norm
            yield f"SEANetEncoder, {kind}", partial(SEANetEncoder, **options), (1, 1, 256)
            yield f"SEANetDecoder, {kind}", partial(SEANetDecoder, **options), (1, 8, 32)


LIBRARIES = {
    "torchvision": torchvision_networks,
    "transformers": transformers_networks,
    "timm": timm_networks,
    "diffusers": diffusers_networks,
    "monai": monai_networks,
    "segmentation-models-pytorch": segmentation_networks,
    "kornia": kornia_networks,
    "open_clip_torch": open_clip_networks,
    "torchaudio": torchaudio_networks,
    "encodec": encodec_networks,
}


def attempt(build, shape):
    """Return what the conversion of a network gives."""
    torch.manual_seed(0)
    row = {"input": shape}
    try:
        network = build()
    except Exception as error:
        return row | {"outcome": "not built", "reason": f"{type(error).__name__}: {error}"[:300]}
    if sum(parameter.numel() for parameter in network.parameters()) > LARGEST:
        return row | {"outcome": "left out", "reason": f"more than {LARGEST:,} parameters"}
    try:
        row["input"], images = accepted(network, shape)
        enliven(network, images)
    except Exception as error:
        return row | {"outcome": "not run", "reason": f"{type(error).__name__}: {error}"[:300]}
    try:
        row |= compared(network, images)
    except Exception as error:
        outcome = "refused" if is_refusal(error) else "failed"
        return row | {"outcome": outcome, "reason": f"{type(error).__name__}: {error}"[:800]}
    try:
        row["gap in float64"] = compared(network.double(), as_double(images))["gap"]
        if row["gap"] > 1e-3:
            row["rounding"] = rounding(network, images)
    except RuntimeError:  # the network makes float32 numbers of its own
        row["gap in float64"] = None
    return row | {"outcome": "converted"}


@torch.no_grad()
def accepted(network, shape):
    """Return inputs that a network accepts, and what `inputs` makes them of."""
    for side in (shape, *LARGER):
        images = inputs(side)
        try:
            call(network.eval(), images)
        except Exception:
            if not isinstance(shape, int) or side == LARGER[-1]:
                raise
        else:
            break
    return side, images


def inputs(shape):
    """Return random inputs of a network as `convert_network` takes them."""
    if isinstance(shape, list):  # several inputs
        return tuple(map(inputs, shape))
    if shape == "pair":
        return (torch.rand(1, 3, SMALL, SMALL), torch.rand(1, 3, SMALL, SMALL))
    return torch.randn(1, 3, shape, shape) if isinstance(shape, int) else torch.randn(shape)


def as_double(images):
    return tree_map(torch.Tensor.double, images)


@torch.no_grad()
def enliven(network, images):
    """Give every layer an effect on the output, without which a difference could not be seen."""
    for name, parameter in network.named_parameters():
        if "bias" not in name and parameter.numel() and parameter.abs().max() < 1e-3:
            nn.init.uniform_(parameter, 0.5, 1.5) if parameter.dim() < 2 else nn.init.normal_(
                parameter, std=parameter[0].numel() ** -0.5
            )
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    network.eval()
    for norm in norms:
        norm.train().reset_running_stats()
        norm.momentum = None
    call(network, tree_map(lambda one: torch.cat([one, -one]), images))
    network.eval()


def compared(network, images):
    converted = attnconv.convert_network(network, fold=True)
    report, found = converted.conversion_report, compare(network, converted, images)
    return {
        "replaced": len(report.replaced),
        "left": len(report.left),
        "executed": len(found.executed),
        "gap": found.gap / found.largest if found.largest else None,
    }


@torch.no_grad()
def rounding(network, images):
    """Return by how much a float64 network's output changes in float32, relative to its largest."""
    exact = tree_leaves(call(network.eval(), as_double(images)))
    single = tree_leaves(call(network.float(), images))
    gaps = [float((a - b).abs().max()) for a, b in zip(exact, single, strict=True)]
    return max(gaps) / max(float(a.abs().max()) for a in exact)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write_record(RECORD, LIBRARIES, attempt, __doc__)
