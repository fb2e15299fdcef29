"""Try to convert networks of timm, torchvision and transformers to attention.

All networks have random weights; nothing is downloaded. From timm and torchvision, one network of
each family is tried, the smallest, with images of 128 pixels a side where it accepts them. Computed
weights are folded (`fold=True`).
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


LIBRARIES = {
    "torchvision": torchvision_networks,
    "transformers": transformers_networks,
    "timm": timm_networks,
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
