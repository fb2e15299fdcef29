"""Training: the loop of the quick tier. The only file that knows about devices, processes and progress bars."""

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from .config import ImitationParameters, RunParameters
from .data import Dataset
from .encodings import QuadraticEncoding
from .layers import PositionAttention
from .models import SelfAttentionNet, build_model, head_geometry

# The paper's network made small enough for 8 x 8 digits on a CPU. Without dropout the attention stays separable.
DIGITS_MODEL = {
    "image_size": 8,
    "pooling": 1,
    "num_layers": 3,
    "hidden": 48,
    "intermediate": 96,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "center_std": 1.0,
    "learned_dim": 48,
}
POSITION_RATE = 10  # the centres travel pixels, the weights fractions: their learning rate is this many times higher


@dataclass(frozen=True)
class Run:
    """A trained model and how it got there."""

    model: nn.Module
    metrics: list[dict[str, float]]  # per epoch: epoch, learning_rate, train_loss, test_accuracy, seconds
    heads: dict[str, Tensor]  # quadratic models: `centers` (epochs + 1, layers, N_h, 2) and `alpha` (epochs + 1, layers, N_h)

    @property
    def test_accuracy(self) -> float:
        return self.metrics[-1]["test_accuracy"]


def train(parameters: RunParameters, dataset: Dataset) -> Run:
    """Train a model on the CPU with AdamW, warm-up and cosine. (The paper's SGD is for CIFAR-10.)

    The same parameters give the same run. Raises RuntimeError when the loss is not finite.
    """
    torch.manual_seed(parameters.seed)
    model = _build(parameters.model, dataset)
    images, labels = dataset.normalise(dataset.train_images), dataset.train_labels
    test_images = dataset.normalise(dataset.test_images)
    optimizer = _optimizer(model, parameters.learning_rate)
    steps_per_epoch = -(-len(images) // parameters.batch_size)
    metrics, geometry, start = [], [_geometry(model)], time.perf_counter()
    with tqdm(total=parameters.epochs * steps_per_epoch, desc="training", unit="step") as bar:
        for epoch in range(parameters.epochs):
            losses = []
            for batch in torch.randperm(len(images)).split(parameters.batch_size):
                rate = parameters.learning_rate_at(bar.n, bar.total)
                losses.append(_step(model, optimizer, rate, images[batch], labels[batch]))
                if not torch.isfinite(losses[-1]):
                    where = f"in epoch {epoch + 1}, step {bar.n + 1}"
                    raise RuntimeError(f"the loss is {losses[-1].item()} {where}; try a lower learning_rate")
                bar.update()
            record = {
                "epoch": epoch + 1,
                "learning_rate": rate,
                "train_loss": torch.stack(losses).mean().item(),
                "test_accuracy": evaluate(model, test_images, dataset.test_labels),
                "seconds": time.perf_counter() - start,
            }
            bar.set_postfix(epoch=epoch + 1, loss=f"{record['train_loss']:.3f}", accuracy=f"{record['test_accuracy']:.3f}")
            metrics.append(record)
            geometry.append(_geometry(model))
    heads = {key: torch.stack([entry[key] for entry in geometry]) for key in geometry[0]}
    return Run(model.eval(), metrics, heads)


@torch.no_grad()
def evaluate(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 500) -> float:
    """The share of images `(N, C, H, W)` whose largest logit is at the label. Leaves the model's mode as it was."""
    training = model.training
    model.eval()
    batches = zip(images.split(batch_size), labels.split(batch_size), strict=True)
    correct = sum((model(x).argmax(dim=1) == y).sum().item() for x, y in batches)
    model.train(training)
    return correct / len(labels)


def _build(name: str, dataset: Dataset) -> nn.Module:
    overrides = {"in_channels": dataset.train_images.shape[1], "num_classes": len(dataset.classes)}
    if name != "resnet18":
        overrides |= DIGITS_MODEL
    return build_model(name, **overrides)


def _optimizer(model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    position = [p for name, p in model.named_parameters() if name.rsplit(".", 1)[-1] in ("centers", "spread", "root")]
    chosen = {id(p) for p in position}
    weights = [p for p in model.parameters() if id(p) not in chosen]
    groups = [{"params": weights, "weight_decay": 1e-4, "factor": 1}]
    if position:
        groups.append({"params": position, "weight_decay": 0.0, "factor": POSITION_RATE})
    return torch.optim.AdamW(groups, lr=learning_rate)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, rate: float, images: Tensor, labels: Tensor) -> Tensor:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _geometry(model: nn.Module) -> dict[str, Tensor]:
    quadratic = isinstance(model, SelfAttentionNet) and isinstance(model.encodings[0], QuadraticEncoding)
    return head_geometry(model) if quadratic else {}


# --- chapter 8: heads that learn to imitate a convolution -----------------------------------------------------------


@dataclass(frozen=True)
class Imitation:
    """Heads trained to imitate a convolution: `centers` `(steps + 1, N_h, 2)`, relative `errors` `(steps,)`."""

    layer: PositionAttention
    centers: Tensor
    errors: Tensor


def imitate_convolution(conv: nn.Conv2d, image: Tensor, parameters: ImitationParameters, crop: int = 12) -> Imitation:
    """Train K * K heads from random centres to output what `conv` does on random crops of an image `(H, W, C)`.

    Adam with a cosine to zero, 3e-2 for centres and spreads, 1e-2 for the values, which start at zero (or at torch's
    random values) and carry the weight decay. The error ||attention - convolution|| / ||convolution|| leaves out the
    crop's border, where attention and a zero-padded convolution differ.
    """
    torch.manual_seed(parameters.seed)
    layer = PositionAttention(QuadraticEncoding(parameters.kernel_size**2, center_std=1.0), conv.in_channels, conv.out_channels)
    if parameters.values_at_zero:
        nn.init.zeros_(layer.value.weight)
    encoding = {"params": layer.encoding.parameters(), "lr": 3e-2, "weight_decay": 0.0}
    value = {"params": layer.value.parameters(), "lr": 1e-2, "weight_decay": parameters.weight_decay}
    optimizer = torch.optim.AdamW([encoding, value])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, parameters.steps)
    inner = slice(parameters.kernel_size // 2, crop - parameters.kernel_size // 2)
    centers, errors = [layer.encoding.centers.detach().clone()], []
    for _ in tqdm(range(parameters.steps), desc="imitating", unit="step"):
        X = _random_crops(image, crop, count=16)
        with torch.no_grad():
            target = conv(X.movedim(-1, 1)).movedim(1, -1)[:, inner, inner]
        gap = layer(X)[:, inner, inner] - target
        optimizer.zero_grad()
        (gap.square().mean() / target.square().mean()).backward()
        optimizer.step()
        schedule.step()
        errors.append(gap.detach().norm() / target.norm())
        centers.append(layer.encoding.centers.detach().clone())
    return Imitation(layer.eval(), torch.stack(centers), torch.stack(errors))


def _random_crops(image: Tensor, size: int, count: int) -> Tensor:
    rows, columns = (torch.randint(extent - size + 1, (count,)) for extent in image.shape[:2])
    return torch.stack([image[i : i + size, j : j + size] for i, j in zip(rows, columns, strict=True)])
