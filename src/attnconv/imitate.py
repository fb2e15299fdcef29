"""Chapter 8: heads that learn to imitate a convolution."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from .config import ImitationParameters
from .encodings import QuadraticEncoding
from .layers import PositionAttention


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
