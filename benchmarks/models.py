"""Measure each model's images per second, peak memory and share of peak hardware performance.

Two engines are compared. The engine of this project is `companion.training` itself, with the
paper's network and recipe and with its data on the device; on a GPU, it is compiled to CUDA
graphs and computes in bfloat16. The literal engine computes the same network plainly, in float32
and without compilation, with dense attention probabilities for each image, and takes images from
a DataLoader with torchvision's transforms. Each measurement runs in a separate process, and the
engines alternate, so that changes in the machine's load affect both. Prints a Markdown table;
with --write it also stores the table in benchmarks/results/. The images are noise.

Usage: python benchmarks/models.py [--models NAME ...] [--device cpu|cuda] [--batch-size N]
[--repeats N] [--write NAME]
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torchvision.transforms as T
from torch.utils.flop_counter import FlopCounterMode

from attnconv import build_model
from attnconv.layers.attention import ContentAttention
from attnconv.theory.attention import spatial_softmax
from attnconv.theory.grid import relative_offsets
from companion.data import Dataset, Split
from companion.data.cifar10 import CIFAR10_CLASSES
from companion.runs.parameters import RunParameters
from companion.runs.record import provenance
from companion.specs import MODELS
from companion.studies.cost import added_memory, seconds
from companion.training.learner import Batch, Learner
from companion.training.machine import Processes
from companion.training.origin import Origin, find_origin

WAYS = ("engine", "literal")


class LiteralAttention(torch.nn.Module):
    """An attention layer that follows its formulas literally.

    It computes scores for each pair of pixels, probabilities for each image, and then the values.
    """

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, X):
        batch, height, width, _ = X.shape
        if isinstance(self.layer, ContentAttention):
            content, rows, columns = self.layer.score_parts(X)
            A = content + rows.unsqueeze(-1) + columns.unsqueeze(-2)
            dropout = self.layer.dropout
        else:
            A = self.layer.encoding.scores(relative_offsets(height, width, device=X.device)).expand(
                batch, -1, -1, -1, -1, -1
            )
            dropout = self.layer.dropout.p
        # (B, N_h, T, T)
        probabilities = (
            F.dropout(spatial_softmax(A), dropout, self.training).flatten(4).flatten(2, 3)
        )
        heads = probabilities @ X.flatten(1, 2).unsqueeze(1)  # (B, N_h, T, D)
        return self.layer.value(heads.transpose(1, 2).flatten(2)).unflatten(1, (height, width))


def literal_model(name):
    model = build_model(name)
    for block in getattr(model, "blocks", []):
        block.attention = LiteralAttention(block.attention)
    return model


def noise(count):
    """Return a data set of `count` random images and labels of CIFAR-10's shape."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 10, count))
    normalisation = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}
    return Dataset(
        "cifar10", images, labels, images, labels, classes=CIFAR10_CLASSES, **normalisation
    )


def engine(name, device, batch_size, folder):
    """Return functions that train on a batch and classify one, and the FLOPs of each per image."""
    places = {"runs": folder, "checkpoints": folder, "resume": False}
    parameters = RunParameters(
        model=name, dataset="cifar10", device=device, batch_size=batch_size, **places
    )
    # the network as published, without training its parent first
    if name == "sa-generalized-pruned":
        parameters = parameters.model_copy(update={"model": "sa-generalized"})
    parameters, processes = parameters.on(device), Processes.join(device)
    data = Split.of(noise(batch_size), parameters, processes.device)
    # a pruned model is built without training its parent
    origin = (
        Origin(processes.place(build_model(name)))
        if MODELS[name].parent
        else find_origin(parameters, data, processes, checkpoint=None)
    )
    learner = Learner(parameters, data, processes, origin)
    index = torch.arange(batch_size, device=learner.device)
    corner = torch.ones(batch_size, 2, dtype=torch.int64, device=index.device)
    batch = Batch(index, corner, index % 2 == 0, batch_size)

    def train_batch():
        learner.progress.step = 0
        learner.train_step(batch)

    def classify_batch():
        learner.evaluate()

    plain = counted_flops(learner.model, learner.device)
    return train_batch, classify_batch, plain


def literal(name, device, batch_size, folder):
    """Return the same as `engine`, for the literal model in float32 with a DataLoader."""
    dataset, model = noise(20 * batch_size), literal_model(name).to(device)
    steps = [T.ToPILImage(), T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToTensor()]
    transform = T.Compose([*steps, T.Normalize(dataset.mean, dataset.std)])

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return len(dataset.train_labels)

        def __getitem__(self, i):
            return transform(dataset.train_images[i].numpy()), dataset.train_labels[i]

    loader = torch.utils.data.DataLoader(
        Images(), batch_size, shuffle=True, num_workers=2, persistent_workers=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    batches = iter(())

    def next_batch():
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        return (part.to(device) for part in batch)

    def train_batch():
        model.train()
        images, labels = next_batch()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    @torch.no_grad()
    def classify_batch():
        model.eval()
        images, _ = next_batch()
        model(images).argmax(dim=1)

    return train_batch, classify_batch, counted_flops(model, torch.device(device))


def counted_flops(model, device):
    """Return the FLOPs per image, as torch counts them, of a training step and a classification."""
    images, count = torch.zeros(2, 3, 32, 32, device=device), {}
    with FlopCounterMode(display=False) as counter:
        model.train()(images).sum().backward()
    count["train"] = counter.get_total_flops() / 2
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(images)
    count["classify"] = counter.get_total_flops() / 2
    model.zero_grad()
    return count


def peak_rate(device, dtype):
    """Return the FLOP/s of a large matrix product, the practical peak of the hardware."""
    size, repeats = (8192, 20) if torch.device(device).type == "cuda" else (2048, 5)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, repeats, device, warm_up=3)


def measure(way, name, device, batch_size, repeats):
    """Measure one model in one way, and print the numbers as JSON."""
    torch.manual_seed(0)
    cuda = device == "cuda"
    dtype = torch.bfloat16 if cuda and way == "engine" else torch.float32
    with tempfile.TemporaryDirectory() as folder:
        train_batch, classify_batch, flops = {"engine": engine, "literal": literal}[way](
            name, device, batch_size, folder
        )
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        times = []
        warm_up = 20 if cuda else 1
        mib = added_memory(
            lambda: times.append(seconds(train_batch, repeats, device, warm_up=warm_up))
        )
        mib = torch.cuda.max_memory_allocated() / 2**20 if cuda else mib
        (train,) = times
        # a classification is shorter, so it is repeated more often
        classify = seconds(classify_batch, 5 * repeats, device, warm_up=5 if cuda else 1)
    found = {"train": batch_size / train, "classify": batch_size / classify, "mib": mib}
    rate = peak_rate(device, dtype)
    print(
        json.dumps(
            found
            | {
                "share": found["train"] * flops["train"] / rate,
                "flops": flops["train"],
                "peak": rate,
            }
        )
    )


def row(name, found):
    ours, theirs = found["engine"], found["literal"]
    cells = [name]
    for kind in ("train", "classify"):
        cells += [f"{ours[kind]:,.1f}", f"{theirs[kind]:,.1f}", f"{ours[kind] / theirs[kind]:.1f}"]
    cells += [
        f"{ours['mib']:,.0f} / {theirs['mib']:,.0f}",
        f"{ours['flops'] / 1e9:.1f} / {theirs['flops'] / 1e9:.1f}",
    ]
    cells += [
        f"{ours['share']:.0%} of {ours['peak'] / 1e12:.2f}",
        f"{theirs['share']:.0%} of {theirs['peak'] / 1e12:.2f}",
    ]
    return "| " + " | ".join(cells) + " |\n"


HEAD = (
    "| model | training, images/s: engine | literal | ratio | classification, images/s: engine |"
    " literal | ratio | peak memory, MiB: engine / literal | GFLOP per image trained: engine /"
    " literal | share of peak, TFLOP/s: engine | literal |\n" + "|---" * 11 + "|\n"
)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument(
        "--batch-size", type=int, help="default: 100, the recipe's, on a GPU, 20 on a CPU"
    )
    parser.add_argument("--repeats", type=int, help="default: 50 on a GPU, 3 on a CPU")
    parser.add_argument(
        "--write", metavar="NAME", help="keep the table in benchmarks/results/NAME.md"
    )
    parser.add_argument("--one", nargs=2, metavar=("WAY", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    cuda = options.device == "cuda"
    batch_size = options.batch_size or (100 if cuda else 20)
    repeats = options.repeats or (50 if cuda else 3)
    if options.one:
        return measure(*options.one, options.device, batch_size, repeats)
    where = provenance(torch.device(options.device), 1)
    text = (
        f"{where['hardware']['device']}, {torch.get_num_threads()} CPU threads, torch"
        f" {torch.__version__}, Python {platform.python_version()}, batches of {batch_size},"
        f" medians of {repeats} (training) and {5 * repeats}, commit {where['git_commit']}.\n\n"
    )
    print(text + HEAD, end="", flush=True)
    text += HEAD
    for name in options.models:
        found = {}
        for way in WAYS:
            words = [
                "--device",
                options.device,
                "--batch-size",
                str(batch_size),
                "--repeats",
                str(repeats),
                "--one",
                way,
                name,
            ]
            done = subprocess.run(
                [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=True
            )
            found[way] = json.loads(done.stdout.splitlines()[-1])
        text += row(name, found)
        print(row(name, found), end="", flush=True)
    if options.write:
        path = Path(__file__).parent / "results" / f"{options.write}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
