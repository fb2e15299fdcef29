"""Measure the time to start a vision transformer as a convolution and to inspect its attention.

Both are compared with a forward pass on eight images; the calls alternate, so that changes in
the machine's load affect all of them. Prints a Markdown table; with --write it also stores the
numbers in benchmarks/results/NAME.json, which the page "Use it on your network" reads. Weights and
images are random.

Usage: python benchmarks/vit.py [--repeats 5] [--write NAME]
"""

import argparse
import json
import statistics
from pathlib import Path

import timm
import torch

from attnconv import init_as_convolution, inspect_attention
from companion.runs.record import provenance
from companion.studies.cost import seconds

CASES = {  # timm's name and the side of the images in pixels
    "relative positions": ("vit_relpos_base_patch16_224", 224),
    "absolute positions": ("vit_base_patch16_224", 224),
}
BATCH = 8
KINDS = ("forward", "start", "inspect")


@torch.no_grad()
def measure(name, side, repeats):
    """Return the median times of one model in milliseconds."""
    torch.manual_seed(0)
    vit = timm.create_model(name, pretrained=False, img_size=side).eval()
    images = torch.randn(BATCH, 3, side, side)
    calls = {
        "forward": lambda: vit(images),
        "start": lambda: init_as_convolution(vit, images=images),
        "inspect": lambda: inspect_attention(vit, images),
    }
    times = {kind: [] for kind in calls}
    for _ in range(repeats):
        for kind, call in calls.items():
            times[kind].append(seconds(call, 1, warm_up=0))
    medians = {f"{kind}_ms": 1e3 * statistics.median(found) for kind, found in times.items()}
    return {"model": name, "batch": BATCH, "side": side} | medians


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", metavar="NAME")
    options = parser.parse_args()
    rows = {label: measure(*case, options.repeats) for label, case in CASES.items()}
    result = {"repeats": options.repeats} | provenance(torch.device("cpu"), 1) | {"models": rows}
    print("| model | forward pass | start | inspect |\n" + "|---" * 4 + "|")
    for found in rows.values():
        times = " | ".join(f"{found[f'{kind}_ms']:.0f} ms" for kind in KINDS)
        print(f"| {found['model']} | {times} |")
    if options.write:
        file = Path(__file__).parent / "results" / f"{options.write}.json"
        file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
