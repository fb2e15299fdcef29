"""Measure the time to inspect the attention of a vision transformer, in forward passes.

The forward pass and the inspection of the same model and images alternate, so that changes in the
machine's load affect both; the ratio is the median of each pair's ratio. Times are processor times
in one thread. ViT-S on images of 8 x 8 to 37 x 37 patches, with random weights. Prints a Markdown
table; with --write it also stores the numbers in benchmarks/results/NAME.json.

Usage: python benchmarks/inspection.py [--repeats 5] [--batch 4] [--sides 8 14 24 37] [--write NAME]
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import timm
import torch

from attnconv import inspect_attention
from companion.runs.record import provenance

SIDES = (8, 14, 24, 37)  # patches a side
PATCH = 16


def seconds(call):
    """Return the processor time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


@torch.no_grad()
def measure(side, batch, repeats):
    """Return the median times in milliseconds, the median ratio and the range of the ratios."""
    torch.manual_seed(0)
    pixels = side * PATCH
    vit = timm.create_model("vit_small_patch16_224", pretrained=False, img_size=pixels).eval()
    images = torch.randn(batch, 3, pixels, pixels)
    calls = {"forward": lambda: vit(images), "inspect": lambda: inspect_attention(vit, images)}
    times = {kind: [] for kind in calls}
    for call in calls.values():
        seconds(call)
    for _ in range(repeats):
        for kind, call in calls.items():
            times[kind].append(seconds(call))
    ratios = [b / a for a, b in zip(times["forward"], times["inspect"], strict=True)]
    medians = {f"{kind}_ms": 1e3 * statistics.median(found) for kind, found in times.items()}
    spread = {"ratio": statistics.median(ratios), "least": min(ratios), "largest": max(ratios)}
    return {"side": side, "batch": batch} | medians | spread


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sides", type=int, nargs="+", default=SIDES)
    parser.add_argument("--write", metavar="NAME")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| patches | forward pass | inspect | ratio (range) |\n" + "|---" * 4 + "|")
    rows = []
    for side in options.sides:
        row = measure(side, options.batch, options.repeats)
        rows.append(row)
        ratio = f"{row['ratio']:.2f} ({row['least']:.2f}-{row['largest']:.2f})"
        print(
            f"| {side} x {side} | {row['forward_ms']:.0f} ms | {row['inspect_ms']:.0f} ms"
            f" | {ratio} |",
            flush=True,
        )
    if options.write:
        result = {"repeats": options.repeats} | provenance(torch.device("cpu"), 1)
        file = Path(__file__).parent / "results" / f"{options.write}.json"
        file.write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
