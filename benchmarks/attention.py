"""Time and memory of a 3 x 3 convolution layer: dense attention, separable attention, shifts of the
image (which one-hot heads are, and the layer takes), torch's convolution.

Prints one Markdown table: for images of 8 to 128 pixels a side, the median time of a forward pass
and the peak of memory that it added, each way, and the ratios. Every measurement runs in a process
of its own, the ways in turn, so that they share the machine's moods. Usage: python
benchmarks/attention.py [--channels 32] [--repeats 7] [--limit-gb 4]
"""

import argparse
import json
import subprocess
import sys

import torch
import torch.nn.functional as F
from measure import PeakMemory, seconds

from attnconv import conv_to_attention
from attnconv.checks import largest_gap
from attnconv.theory import attention

SIDES = (8, 16, 32, 64, 128)
WAYS = ("dense", "separable", "shifts", "convolution")


def dense_forward(layer, x):
    """The literal equation (4): scores between all pairs of pixels of the padded image, softmax,
    concatenation, W_out, crop."""
    padded = F.pad(x, (1, 1, 1, 1)).movedim(1, -1)
    height, width = padded.shape[1:3]
    scores = layer.encoding.position_scores(height, width).flatten(3).flatten(1, 2)
    W_out = torch.eye(layer.out_channels).repeat(layer.num_heads, 1)
    output = attention.multi_head_self_attention(
        scores, padded.flatten(1, 2), layer.value_matrices(), W_out, layer.bias
    )
    return output.unflatten(1, (height, width))[:, 1:-1, 1:-1].movedim(-1, 1)


def with_bias(layer, x):
    return x + layer.bias.view(-1, 1, 1)


@torch.no_grad()
def measure(way, side, channels, repeats):
    """Median seconds, added MiB and the gap to the convolution, as JSON on stdout."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(channels, channels, 3, padding=1)
    layer, x = conv_to_attention(conv), torch.randn(1, channels, side, side)
    forward = {
        "dense": lambda: dense_forward(layer, x),
        "separable": lambda: with_bias(layer, layer.along_axes(F.pad(x, (1, 1, 1, 1)))),
        "shifts": lambda: layer(x),
        "convolution": lambda: conv(x),
    }[way]
    memory = PeakMemory()
    memory.start()
    output, median = forward(), seconds(forward, repeats, warm_up=0)
    memory.done.set()
    print(json.dumps({"seconds": median, "mib": memory.added, "gap": largest_gap(output, conv(x))}))


def dense_gib(side):
    """What the scores and probabilities of dense attention take in float32: two of 9 heads x pixels
    x pixels."""
    return 2 * 9 * (side + 2) ** 4 * 4 / 2**30


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--limit-gb", type=float, default=4.0, help="skip dense attention above this size"
    )
    parser.add_argument("--one", nargs=2, metavar=("WAY", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return measure(options.one[0], int(options.one[1]), options.channels, options.repeats)
    print(
        f"3 x 3 convolution, {options.channels} channels, float32, {torch.get_num_threads()}"
        f" threads, torch {torch.__version__}\n"
    )
    print(
        "| side | dense | separable | shifts | convolution | dense / separable | separable /"
        " convolution | shifts / convolution | added MiB | gap |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for side in SIDES:
        found = {}
        for way in WAYS:
            if way == "dense" and dense_gib(side) > options.limit_gb:
                continue
            arguments = [
                sys.executable,
                __file__,
                "--one",
                way,
                str(side),
                "--channels",
                str(options.channels),
            ]
            arguments += ["--repeats", str(options.repeats)]
            found[way] = json.loads(
                subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
            )
        print(row(side, found), flush=True)


def row(side, found):
    def ms(way):
        return (
            f"{1e3 * found[way]['seconds']:.2f} ms"
            if way in found
            else f"not run ({dense_gib(side):.0f} GiB)"
        )

    def ratio(a, b):
        return f"{found[a]['seconds'] / found[b]['seconds']:.1f}" if a in found else "-"

    added = " / ".join(f"{found[way]['mib']:.0f}" if way in found else "-" for way in WAYS)
    gap = max(result["gap"] for result in found.values())
    cells = [
        side,
        *map(ms, WAYS),
        ratio("dense", "separable"),
        ratio("separable", "convolution"),
        ratio("shifts", "convolution"),
        added,
        f"{gap:.0e}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
