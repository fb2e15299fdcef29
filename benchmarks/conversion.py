"""Measure the time and memory of CNNs and of single layers, and of the same converted to attention.

Networks are timed with all threads, in a forward pass and in a training step. Layers are timed in
one thread, by the processor's time, in forward passes of one image. Prints Markdown tables; with
--write it also stores the numbers in benchmarks/results/NAME.json, which the page "Use it on your
network" reads. Calls with convolutions and with attention alternate, so that changes in the
machine's load affect both. Weights and images are random.

Usage: python benchmarks/conversion.py [--repeats 15] [--write NAME]
"""

import argparse
import copy
import json
import statistics
import time
from pathlib import Path

import torch
import torchvision
from torch import nn

from attnconv import conv_to_attention, convert_network
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
LAYERS = {  # channels in and out, kernel, stride, groups and pixels a side
    "1 × 1": (64, 64, 1, 1, 1, 56),
    "1 × 1, 256 to 64 channels": (256, 64, 1, 1, 1, 56),
    "1 × 1, stride 2": (256, 512, 1, 2, 1, 28),
    "3 × 3": (64, 64, 3, 1, 1, 56),
    "3 × 3, 32 pixels a side": (64, 64, 3, 1, 1, 32),
    "3 × 3, 128 pixels a side": (64, 64, 3, 1, 1, 128),
    "3 × 3, 256 channels": (256, 256, 3, 1, 1, 14),
    "3 × 3, stride 2": (64, 128, 3, 2, 1, 56),
    "3 × 3, 8 groups": (64, 64, 3, 1, 8, 56),
    "3 × 3, 32 groups": (128, 128, 3, 1, 32, 28),
    "3 × 3, depthwise": (64, 64, 3, 1, 64, 56),
    "3 × 3, depthwise, stride 2": (96, 96, 3, 2, 96, 56),
    "5 × 5, depthwise": (64, 64, 5, 1, 64, 28),
    "7 × 7, depthwise": (96, 96, 7, 1, 96, 56),
}
LONG_ENOUGH = 0.02  # seconds for one measurement of a layer


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


def processor_seconds(work):
    """Return the processor's time of one call, as the mean over enough calls."""
    start = time.process_time()
    calls = 0
    while time.process_time() - start < LONG_ENOUGH:
        work()
        calls += 1
    return (time.process_time() - start) / calls


@torch.no_grad()
def measure_layer(channels, outputs, kernel, stride, groups, side, repeats):
    """Return the numbers of one layer; the ratio is the median of those of `repeats` turns."""
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, groups=groups)
    pair = {"convolution": conv, "attention": conv_to_attention(conv)}
    images = torch.randn(1, channels, side, side)
    times = {way: [] for way in pair}
    for turn in range(repeats + 1):
        for way, layer in pair.items():
            seconds_per_call = processor_seconds(lambda layer=layer: layer(images))
            if turn:  # the first turn is a warm-up
                times[way].append(seconds_per_call)
    ratios = sorted(
        ours / theirs for ours, theirs in zip(times["attention"], times["convolution"], strict=True)
    )
    return {
        "channels": [channels, outputs],
        "side": side,
        "gap": largest_gap(pair["attention"](images), conv(images)),
        "convolution_ms": 1e3 * statistics.median(times["convolution"]),
        "attention_ms": 1e3 * statistics.median(times["attention"]),
        "ratio": statistics.median(ratios),
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
    }


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
    torch.set_num_threads(1)
    result["layers"] = {
        label: measure_layer(*case, options.repeats) for label, case in LAYERS.items()
    }
    print("\n| layer | convolution | attention | ratio | quartiles | gap |\n" + "|---" * 6 + "|")
    for label, found in result["layers"].items():
        low, high = found["ratio_quartiles"]
        print(
            f"| {label} | {found['convolution_ms']:.2f} ms | {found['attention_ms']:.2f} ms"
            f" | {found['ratio']:.1f} | {low:.1f} to {high:.1f} | {found['gap']:.0e} |"
        )
    if options.write:
        file = Path(__file__).parent / "results" / f"{options.write}.json"
        file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
