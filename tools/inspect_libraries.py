"""Try to read the attention of vision transformers from timm, transformers, torchvision and others.

All models have random weights; nothing is downloaded.
From timm, one model of each family is tried: the smallest among the models of a file with attention
whose names differ in sizes only. The record, benchmarks/results/inspection-libraries.json, has the
date, the versions of the libraries and, for each model, whether its attention was read, the number
of layers, the largest gap between weights times values and the layers' own results, the attention
that was skipped, or the reason of the refusal. "independent" is the largest difference between the
maps that were read and those that independent_maps.py finds in the matrix products of torch's
dispatcher, relative to the largest map value; it is computed in float64 if it exceeds 10^-5 in
float32, and null if a layer's maps are no operand of a matrix product. "failed" means an error that
is no refusal by attnconv, such as one in the model itself. The record is written after each model,
and models that it already has are kept unless --again is given or their library, or torch, has
another version. Needs all libraries in vision_transformers.LIBRARIES.

Usage: python tools/inspect_libraries.py [--again] [--only WORD]
"""

from pathlib import Path

import torch
from independent_maps import largest_difference, maps_in_products
from outside_models import is_refusal, write_record
from vision_transformers import LIBRARIES

from attnconv.vit.capture import attention_of, read_attention
from attnconv.vit.interception import TOLERANCE

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
    """Return how far the maps that are read are from those in matrix products, or None."""
    difference = _difference(model, images)
    if difference is not None and difference > TOLERANCE:  # large scores round more
        difference = _difference(model.double(), images.double())
    return difference


def _difference(model, images):
    layers = attention_of(model, images)
    ordered = not any(hasattr(module, "reroll") for module in model.modules())  # not in Hiera
    return largest_difference(layers, maps_in_products(model, images), ordered)


def summarise(layer):
    return layer.gap, tuple(layer.maps.shape[-2:])


if __name__ == "__main__":
    write_record(RECORD, LIBRARIES, attempt, __doc__)
