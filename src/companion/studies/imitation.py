"""Train attention heads to imitate a convolution (chapter 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from tqdm import tqdm

from attnconv.layers.attention import PositionAttention, attend
from attnconv.layers.encodings import QuadraticEncoding

from ..runs.parameters import Parameters


class ImitationParameters(Parameters):
    """Parameters of chapter 12, in which heads learn to imitate a convolution."""

    kernel_size: Literal[3, 5] = 3
    steps: int = Field(1500, ge=1)
    weight_decay: float = Field(0.1, ge=0)
    values_at_zero: bool = True
    seed: int = Field(0, ge=0, lt=2**32)


@dataclass(frozen=True)
class Imitation:
    """An attention layer trained to imitate a convolution, with its training history.

    `centers` `(steps + 1, N_h, 2)` are the centres of the heads before each step and after the last
    one; `errors` `(steps,)` are the relative errors before each step.
    """

    layer: PositionAttention
    centers: Tensor
    errors: Tensor


def imitate_convolution(
    conv: nn.Conv2d, image: Tensor, parameters: ImitationParameters, crop: int = 12
) -> Imitation:
    """Train K * K heads with random initial centres to reproduce a K x K convolution's output.

    The data are random crops, `crop` pixels on a side, of an image `(H, W, C)`. Adam's learning
    rates fall to zero on a cosine schedule, from 3e-2 for centres and spreads and from 1e-2 for the
    values. The values are initialised to zero (or by torch's default) and are the only parameters
    with weight decay. The error ||attention - convolution|| / ||convolution|| excludes the border
    of each crop, where attention and a zero-padded convolution differ.
    """
    return imitate_convolutions([conv], image, [parameters], crop)[0]


def imitate_convolutions(
    convs: Sequence[nn.Conv2d], image: Tensor, runs: Sequence[ImitationParameters], crop: int = 12
) -> list[Imitation]:
    """Train several layers side by side on the same crops, each to imitate its own convolution.

    The crops are drawn with the seed of the first run. The layers do not influence one another:
    their losses are summed, and Adam updates each parameter separately. All runs must have the same
    number of steps and kernel size, and all convolutions the same numbers of channels.
    """
    layers = [_start(conv, run) for conv, run in zip(convs, runs, strict=True)]
    own = [cast(QuadraticEncoding, layer.encoding) for layer in layers]
    encoding = QuadraticEncoding.from_alpha(torch.cat([e.centers for e in own]).detach(), alpha=0.5)
    encoding.spread.data = torch.cat([e.spread for e in own]).detach()
    encoding.requires_grad_(True)
    # (n, N_h * D_in, D_out)
    weight = nn.Parameter(torch.stack([layer.value.weight.detach().mT for layer in layers]))
    bias = nn.Parameter(torch.stack([layer.value.bias.detach() for layer in layers]))
    optimizer = torch.optim.Adam(
        [{"params": encoding.parameters(), "lr": 3e-2}, {"params": [weight, bias], "lr": 1e-2}]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, runs[0].steps)
    decay = torch.tensor([run.weight_decay for run in runs])
    crops = torch.Generator().manual_seed(runs[0].seed)
    inner = slice(runs[0].kernel_size // 2, crop - runs[0].kernel_size // 2)
    centers = [encoding.centers.detach().clone()]
    errors = []
    for _ in tqdm(range(runs[0].steps), desc="imitating", unit="step"):
        X = _random_crops(image, crop, 16, crops)
        target = _outputs(convs, X)[:, inner, inner]  # (n, H, W, B, D_out)
        rows, columns = encoding.axis_probabilities(crop, crop)
        seen = attend((rows, columns), X.permute(1, 2, 0, 3)).unflatten(0, (len(runs), -1))
        seen = seen[:, :, inner, inner].movedim(1, -2).flatten(-2)  # (n, H, W, B, N_h * D_in)
        ours = torch.baddbmm(bias[:, None], seen.flatten(1, 3), weight).view(target.shape)
        gap = (ours - target).flatten(1)
        scale = target.flatten(1)
        optimizer.zero_grad()
        (gap.square().mean(dim=1) / scale.square().mean(dim=1)).sum().backward()
        for value in (weight, bias):  # AdamW's weight decay, with a separate rate for each layer
            value.data *= (1 - schedule.get_last_lr()[1] * decay).view(-1, *(1,) * (value.ndim - 1))
        optimizer.step()
        schedule.step()
        errors.append(gap.detach().norm(dim=1) / scale.norm(dim=1))
        centers.append(encoding.centers.detach().clone())
    _copy_back(layers, encoding, weight, bias)
    by_layer = torch.stack(centers).chunk(len(layers), dim=1), torch.stack(errors).unbind(dim=1)
    return [Imitation(layer.eval(), *part) for layer, *part in zip(layers, *by_layer, strict=True)]


def _start(conv: nn.Conv2d, run: ImitationParameters) -> PositionAttention:
    torch.manual_seed(run.seed)
    layer = PositionAttention(
        QuadraticEncoding(run.kernel_size**2, center_std=1.0), conv.in_channels, conv.out_channels
    )
    if run.values_at_zero:
        nn.init.zeros_(layer.value.weight)
    return layer


def _random_crops(image: Tensor, size: int, count: int, generator: torch.Generator) -> Tensor:
    crops = image.unfold(0, size, 1).unfold(1, size, 1).movedim(2, -1)  # (rows, columns, ...)
    corner = (torch.randint(extent, (count,), generator=generator) for extent in crops.shape[:2])
    return crops[tuple(corner)].contiguous()


@torch.no_grad()
def _outputs(convs: Sequence[nn.Conv2d], X: Tensor) -> Tensor:
    """Return the output of each convolution on images `(B, H, W, D_in)`: `(n, H, W, B, D_out)`."""
    return torch.stack([conv(X.movedim(-1, 1)).permute(2, 3, 0, 1) for conv in convs])


@torch.no_grad()
def _copy_back(
    layers: Sequence[PositionAttention], encoding: QuadraticEncoding, weight: Tensor, bias: Tensor
) -> None:
    """Copy the jointly trained parameters back to their layers."""
    for number, layer in enumerate(layers):
        own = cast(QuadraticEncoding, layer.encoding)
        own.centers.copy_(encoding.centers.chunk(len(layers))[number])
        own.spread.copy_(encoding.spread.chunk(len(layers))[number])
        layer.value.weight.copy_(weight[number].mT)
        layer.value.bias.copy_(bias[number])
