"""Run records as the paper tier and the small one leave them, made without training, to draw and
tabulate."""

import torch

from companion.data import CIFAR10_FINGERPRINT
from companion.heads import query_pixels
from companion.runs.history import snapshot
from companion.runs.parameters import Folders, RunParameters
from companion.runs.record import write_run
from companion.specs import MODELS, SPECS

SMALL = {"hidden": 16, "intermediate": 16}
CIFAR10 = {
    "name": "cifar10",
    "fingerprint": CIFAR10_FINGERPRINT,
    "train_images": 50_000,
    "test_images": 10_000,
}


def content_attention(heads=9, layers=6, size=16):
    """Return random content of a content model's record."""
    queries = query_pixels(size, size)

    def maps(*shape):
        return torch.rand(*shape, size * size).softmax(dim=-1).unflatten(-1, (size, size)).half()

    shifts = torch.rand(layers, heads, 2 * size - 1, 2 * size - 1) / 100
    images = {}
    for name, count in (("image", 3), ("photograph", 2)):
        images |= {
            f"{name}_{axis}_scores": torch.randn(count, layers, heads, 9, size)
            for axis in ("row", "column")
        }
        images[f"{name}_content_scores"] = torch.randn(count, layers, heads, 9, size, size).half()
    return {
        "queries": queries,
        "mean_maps": maps(layers, heads, 9),
        "shift_probabilities": shifts,
    } | images


def attention_of(model, seed=0, pooling=2):
    """Return the content of a model's record, with untrained heads at three moments."""
    torch.manual_seed(seed)
    if model == "sa-learned-content":
        return content_attention(size=32 // pooling)
    if model == "resnet18":
        return {}
    moments = [snapshot(SPECS[model].build(**SMALL, pooling=pooling)) for _ in range(3)]
    stacked = {name: torch.stack([moment[name] for moment in moments]) for name in moments[0]}
    return {"epochs": torch.tensor([0, 1, 3])} | stacked


def write_record(
    folder, model, accuracy=0.9, seed=0, attention=None, status="finished", tier="paper", **changes
):
    """A record of three epochs that ends at this accuracy; one epoch before it was a tenth of a
    point better."""
    given = {
        "model": model,
        "dataset": "cifar10",
        "tier": tier,
        "seed": seed,
        "precision": "bfloat16",
    }
    parameters = RunParameters.check(given | ({"epochs": 3} if tier == "paper" else {}))
    info = {
        "status": status,
        "parameters": parameters.model_dump(exclude=Folders.names()),
        "dataset": CIFAR10,
        "parameter_count": 12,
        "wall_seconds": 600.0,
        "images_per_second": 20_000.0,
        "times_resumed": 0,
        "git_commit": "0123456789abcdef",
        "versions": {"torch": "2.11.0"},
        "hardware": {"device": "an imagined GPU", "processes": 1},
    }
    if model == "sa-generalized-pruned":
        info["parent"] = {
            "run": parameters.parent().name,
            "epochs": 9,
            "test_accuracy": accuracy + 0.002,
            "test_accuracy_after_pruning": accuracy / 2,
            "removed_heads": [[0, 1], [2, 3, 4, 5], [6], [0, 8], [0, 1, 2, 3, 4, 5], []],
            "max_condition": 1000.0,
            "min_eigenvalue": 1e-5,
        }
    reached = (accuracy / 2, accuracy + 0.001, accuracy)
    usual = {"lr": 0.1, "train_accuracy": 0.5, "test_loss": 1.0}
    metrics = [
        {"epoch": n, "train_loss": 2 / n, "test_accuracy": a, "seconds": 9.0 * n} | usual
        for n, a in enumerate(reached, start=1)
    ]
    attention = attention_of(model, seed, parameters.pooling) if attention is None else attention
    return write_run(
        folder / parameters.name,
        info | changes,
        metrics,
        attention if status == "finished" else None,
    )


def write_records(folder, accuracy=0.9, tier="paper"):
    """One record of each model."""
    return {model: write_record(folder, model, accuracy, tier=tier) for model in MODELS}
