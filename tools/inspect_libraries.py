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
it already has are kept unless --again is given or their library, or torch, has another version.
Needs all libraries in vision_transformers.LIBRARIES.

Usage: python tools/inspect_libraries.py [--again] [--only WORD]
"""

from pathlib import Path

import torch
from outside_models import is_refusal, write_record
from vision_transformers import LIBRARIES

from attnconv.vit.capture import attention_of, read_attention

RECORD = Path(__file__).parents[1] / "benchmarks/results/inspection-libraries.json"


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
