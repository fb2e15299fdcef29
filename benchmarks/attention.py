"""Measure the time and memory of a 3 x 3 convolution layer, computed in several ways.

These are dense attention; separable attention; one head whose output is shifted for the others, as
in the layer itself, once with one-hot and once with soft heads; soft heads in tiles, which is how
trained heads are computed; and torch's convolution.

Prints one Markdown table with the median time of a forward pass and the peak memory that it adds,
in each way and for images of 8 to 128 pixels a side, and with ratios. Each measurement runs in a
separate process, and the ways alternate, so that changes in load affect all of them. Usage:
python benchmarks/attention.py [--channels 32] [--repeats 7] [--limit-gb 4]
"""

import argparse
import json
import subprocess
import sys

import torch
import torch.nn.functional as F

from attnconv import conv_to_attention
from attnconv.layers.attention import attend
from attnconv.theory import attention
from companion.gaps import largest_gap
from companion.studies import cost

SIDES = (8, 16, 32, 64, 128)
WAYS = ("dense", "separable", "shifts", "soft shifts", "soft tiles", "convolution")
OVER = ("separable", "shifts", "soft shifts", "soft tiles")
SOFT = 2.0  # alpha of soft heads


def dense_forward(layer, x):
    """Compute equation (4) literally.

    The steps are scores between all pairs of pixels of the padded image, softmax, concatenation,
    W_out, and a crop.
    """
    padded = F.pad(x, (1, 1, 1, 1)).movedim(1, -1)
    height, width = padded.shape[1:3]
    scores = layer.encoding.position_scores(height, width).flatten(3).flatten(1, 2)
    W_out = torch.eye(layer.out_channels).repeat(layer.num_heads, 1)
    output = attention.multi_head_self_attention(
        scores, padded.flatten(1, 2), layer.value_matrices(), W_out, layer.bias
    )
    return output.unflatten(1, (height, width))[:, 1:-1, 1:-1].movedim(-1, 1)


def separable_forward(layer, x):
    """Attend along one axis after the other, with all probabilities, including zeros."""
    padded = F.pad(x, (1, 1, 1, 1)).permute(2, 3, 0, 1)  # (H, W, B, C)
    maps = tuple(layer.axis_probabilities(axis, size) for axis, size in enumerate(padded.shape[:2]))
    averages = attend(maps, padded).permute(2, 1, 3, 0, 4)
    return F.linear(averages.flatten(3), layer.weight[0], layer.bias).permute(2, 3, 1, 0)


def tiles_forward(layer, x):
    return layer.along_axes(F.pad(x, (1, 1, 1, 1))) + layer.bias.view(-1, 1, 1)


@torch.no_grad()
def measure(way, side, channels, repeats):
    """Print the median seconds, the added MiB and the gap of one way, as JSON.

    The gap is the largest relative difference from the output of the convolution or, for soft
    heads, of separable attention.
    """
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(channels, channels, 3, padding=1)
    layer, soft = conv_to_attention(conv), conv_to_attention(conv, SOFT)
    x = torch.randn(1, channels, side, side)
    work, reference = {
        "dense": (lambda: dense_forward(layer, x), conv),
        "separable": (lambda: separable_forward(layer, x), conv),
        "shifts": (lambda: layer(x), conv),
        "soft shifts": (lambda: soft(x), lambda x: separable_forward(soft, x)),
        "soft tiles": (lambda: tiles_forward(soft, x), lambda x: separable_forward(soft, x)),
        "convolution": (lambda: conv(x), conv),
    }[way]
    found = cost.measure(work, repeats)
    gap = largest_gap(work(), reference(x))
    print(json.dumps({"seconds": found.seconds, "mib": found.mib, "gap": gap}))


def dense_gib(side):
    """Return the GiB of dense attention's scores and probabilities, 9 heads x pixels x pixels."""
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
        f"| side | {' | '.join(WAYS)} | dense / separable | {' / '.join(OVER)}, over convolution |"
        " added MiB | gap |"
    )
    print("|---" * (len(WAYS) + 5) + "|")
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
        " / ".join(ratio(way, "convolution") for way in OVER),
        added,
        f"{gap:.0e}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
