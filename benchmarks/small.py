"""Training speed at the small tier's sizes: the engine against the arrangement that it had before,
in turn on one machine.

Before: images first in memory, averages before values, probabilities with their subnormal tails,
whole batches, memory given back after each. Now: tokens first, values first, tails cut off, memory
kept, and no more images at a time than serve speed. Both train the same network with the same data,
optimiser and step. Each measurement runs in a process of its own. Prints a Markdown table; with
--write also keeps it in benchmarks/results/. The images are noise; the generalised encoding's heads
are as they start, which is where tails are long.

Usage: python benchmarks/small.py [--repeats N] [--threads N] [--rounds N] [--write NAME]
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from models import counted_flops, noise
from torch import nn

from attnconv.layers.attention import ContentAttention
from attnconv.measures.cost import peak_rate, seconds
from attnconv.runs.parameters import RunParameters
from attnconv.runs.record import provenance
from attnconv.theory.attention import spatial_softmax
from attnconv.theory.encodings import SeparableEncoding
from attnconv.theory.grid import axis_shifts
from attnconv.training import loop
from attnconv.training.checkpoint import Checkpoints
from attnconv.training.loop import Training
from attnconv.training.processes import Processes

WIDE = {"hidden": 64, "intermediate": 128, "pooling": 2}  # 16 x 16 tokens
CASES = {
    "sa-quadratic, hidden 64, 16 x 16 tokens": ("sa-quadratic", WIDE),
    "sa-generalized, hidden 64, 16 x 16 tokens": ("sa-generalized", WIDE),
    "sa-quadratic, small tier": ("sa-quadratic", {}),
    "sa-quadratic-16, small tier": ("sa-quadratic-16", {}),
    "sa-generalized, small tier": ("sa-generalized", {}),
    "sa-learned, small tier": ("sa-learned", {}),
    "sa-learned-content, small tier": ("sa-learned-content", {}),
    "resnet18, small tier": ("resnet18", {}),
}
WAYS = ("before", "now")


def attention_before(layer, X):
    """The layer's function on images `(B, H, W, D)`, computed as it was."""
    if isinstance(layer, ContentAttention):
        return layer(X)
    batch, height, width, _ = X.shape
    if isinstance(layer.encoding, SeparableEncoding):
        scores = (
            layer.encoding.axis_scores(axis, axis_shifts(size))
            for axis, size in enumerate((height, width))
        )
        rows, columns = (each.softmax(dim=-1) for each in scores)
        by_rows = rows.transpose(0, 1).flatten(0, 1).expand(batch, -1, -1) @ X.flatten(2)
        by_rows = by_rows.view(batch * height, len(rows), width, -1)
        averages = (columns @ by_rows).transpose(1, 2).unflatten(0, (batch, height))
    else:
        maps = spatial_softmax(layer.encoding.position_scores(height, width))
        matrix = maps.permute(1, 2, 0, 3, 4).flatten(3).flatten(0, 2)
        averages = torch.bmm(matrix.expand(batch, -1, -1), X.flatten(1, 2)).unflatten(
            1, (height, width, -1)
        )
    return layer.value(averages.flatten(-2))


class Before(nn.Module):
    """A self-attention network computed images first."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        model, p = self.model, self.model.pooling
        X = images.unflatten(3, (-1, p)).unflatten(2, (-1, p)).permute(0, 2, 4, 3, 5, 1).flatten(3)
        X = model.embedding(X)
        for block in model.blocks:
            X = block.attention_norm(
                X + block.dropout(block.dense(attention_before(block.attention, X)))
            )
            X = block.mlp_norm(X + block.dropout(block.mlp(X)))
        return model.classifier(X.mean(dim=(1, 2)))


def measure(way, case, repeats):
    """One way, one case: JSON on stdout."""
    torch.manual_seed(0)
    model, sizes = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        places = {
            "runs": folder,
            "checkpoints": folder,
            "resume": False,
            "device": "cpu",
            "override": True,
        }
        micro = {"micro_batch": 100} if way == "before" else {}
        if way == "before":
            loop.keep_freed_memory = lambda: None
        parameters = RunParameters.check(
            {"model": model, "dataset": "cifar10", "tier": "small"} | sizes | places | micro
        )
        training = Training(
            parameters.on("cpu"), noise(100), Processes.join("cpu"), Checkpoints(Path(folder))
        )
        training.bar.disable = True
        flops = counted_flops(training.model, training.device)["train"]
        if way == "before" and model != "resnet18":
            training.network = Before(training.model)
        index = torch.arange(100)
        corner, mirrored = torch.ones(100, 2, dtype=torch.int64), index % 2 == 0

        def train_batch():
            training.progress.step = 0
            training.train_step(index, corner, mirrored, 100)

        speed = 100 / seconds(train_batch, repeats, warm_up=2)
    rate = peak_rate("cpu", torch.float32)
    print(json.dumps({"speed": speed, "share": speed * flops / rate, "peak": rate}))


def row(case, found):
    before, now = (
        {key: statistics.median(each[key] for each in found[way]) for key in found[way][0]}
        for way in WAYS
    )
    ratios = [
        each["speed"] / other["speed"]
        for each, other in zip(found["now"], found["before"], strict=True)
    ]
    cells = [
        case,
        f"{before['speed']:.1f}",
        f"{now['speed']:.1f}",
        f"{statistics.median(ratios):.1f}",
    ]
    cells += [f"{before['share']:.0%}", f"{now['share']:.0%}", f"{now['peak'] / 1e9:.0f}"]
    return "| " + " | ".join(cells) + " |\n"


HEAD = (
    "| network | images/s trained: before | now | ratio | share of peak: before | now | peak,"
    " GFLOP/s |\n" + "|---" * 7 + "|\n"
)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        help="batches of 100 images a measurement, after two to warm up",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="how often the two ways take turns; medians are printed",
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--write", metavar="NAME", help="keep the table in benchmarks/results/NAME.md"
    )
    parser.add_argument("--one", nargs=2, metavar=("WAY", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.one:
        return measure(*options.one, options.repeats)
    where = provenance(torch.device("cpu"), 1)
    text = (
        f"{where['hardware']['device']}, {options.threads} CPU threads, torch {torch.__version__},"
        f" Python {platform.python_version()}, batches of 100, {options.rounds} rounds, medians of"
        f" {options.repeats}, commit {where['git_commit']}. Both ways are credited with the"
        f" floating-point operations as they are now.\n\n{HEAD}"
    )
    print(text, end="", flush=True)
    for case in CASES:
        found = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way in WAYS:
                words = [
                    "--threads",
                    str(options.threads),
                    "--repeats",
                    str(options.repeats),
                    "--one",
                    way,
                    case,
                ]
                done = subprocess.run(
                    [sys.executable, __file__, *words],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
        text += row(case, found)
        print(row(case, found), end="", flush=True)
    if options.write:
        (Path(__file__).parent / "results" / f"{options.write}.md").write_text(text)


if __name__ == "__main__":
    main()
