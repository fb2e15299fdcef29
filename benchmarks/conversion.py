"""Measure the time and memory of CNNs, and of the same CNNs converted to attention.

Both a forward pass and a training step are timed. Prints a Markdown table; with --write
it also stores the numbers in benchmarks/results/NAME.json, which the page "Use it on your network"
reads. The calls of the two networks alternate, so that changes in the machine's load affect
both. Weights and images are random.

Usage: python benchmarks/conversion.py [--repeats 15] [--write NAME]
"""

import argparse
import copy
import json
import statistics
from pathlib import Path

import torch
import torchvision

from attnconv import convert_network
from companion.gaps import largest_gap
from companion.runs.record import provenance
from companion.studies.cost import added_memory, seconds

CASES = {  # network, batch size, pixels a side and memory format
    "ResNet18, one image": ("resnet18", 1, 224, torch.contiguous_format),
    "ResNet18, a batch of small images": ("resnet18", 16, 64, torch.contiguous_format),
    "ResNet50, one image": ("resnet50", 1, 224, torch.contiguous_format),
    "ResNet50, one channels-last image": ("resnet50", 1, 224, torch.channels_last),
    "MobileNetV3-Small, one image": ("mobilenet_v3_small", 1, 224, torch.contiguous_format),
}


def step(network, images):
    """Run a forward and a backward pass."""
    network(images).square().mean().backward()


def measure(name, batch, side, memory_format, repeats):
    """Return the numbers of one case; times are medians over `repeats` turns."""
    torch.manual_seed(0)
    cnn = getattr(torchvision.models, name)().eval().to(memory_format=memory_format)
    pair = {"convolution": cnn, "attention": convert_network(cnn)}
    images = torch.randn(batch, 3, side, side).contiguous(memory_format=memory_format)
    with torch.no_grad():
        gap = largest_gap(pair["attention"](images), pair["convolution"](images))
    trained = {way: copy.deepcopy(network).train() for way, network in pair.items()}
    times = {(way, kind): [] for way in pair for kind in ("forward", "step")}
    for _ in range(repeats):
        for way in pair:
            with torch.no_grad():
                times[way, "forward"].append(seconds(lambda way=way: pair[way](images), 1))
            if batch > 1:  # batch normalisation cannot train on one image
                times[way, "step"].append(
                    seconds(lambda way=way: step(trained[way], images), 1, warm_up=0)
                )
    found = {"batch": batch, "side": side, "gap": gap}
    for way, network in pair.items():
        for kind in ("forward", "step"):
            found[f"{way}_{kind}_ms"] = (
                1e3 * statistics.median(times[way, kind]) if times[way, kind] else None
            )
        with torch.no_grad():
            found[f"{way}_mib"] = added_memory(lambda network=network: network(images))
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--write", metavar="NAME")
    options = parser.parse_args()
    rows = {label: measure(*case, options.repeats) for label, case in CASES.items()}
    result = {"repeats": options.repeats} | provenance(torch.device("cpu"), 1)
    result["networks"] = rows
    print(
        "| network | convolution | attention | ratio | training step, ratio | gap |\n"
        + "|---" * 6
        + "|"
    )
    for label, found in rows.items():
        ours, theirs = found["attention_forward_ms"], found["convolution_forward_ms"]
        steps = found["attention_step_ms"], found["convolution_step_ms"]
        ratio = f"{steps[0] / steps[1]:.1f}" if steps[0] else "-"
        print(
            f"| {label} | {theirs:.1f} ms | {ours:.1f} ms | {ours / theirs:.1f} | {ratio}"
            f" | {found['gap']:.0e} |"
        )
    if options.write:
        file = Path(__file__).parent / "results" / f"{options.write}.json"
        file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
