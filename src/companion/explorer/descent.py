"""Gradient descent that moves nine heads to a kernel's pixels, for scene 2 of the stage."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnconv.theory.grid import offset_set

REACH = 6  # the window's offsets range from -6 to 6
STEPS = 1500
CENTER_RATE = 3e-2
VALUE_RATE = 1e-2
DECAY = 1.0  # of the values
ALPHA = 0.25  # at the start


@dataclass(frozen=True)
class Descent:
    """The states of nine heads during gradient descent, before each step and after the last one.

    `centers` `(steps + 1, 9, 2)` are in pixels, and `alphas` have the shape `(steps + 1, 9)`.
    `values` `(steps + 1, 9, 9)` are the weights of the heads (second axis) in each filter (third
    axis). Filter t learns to return the pixel at offset t of `offset_set`.
    """

    centers: Tensor
    alphas: Tensor
    values: Tensor

    def found(self, step: int, radius: float = 0.2) -> int:
        """Count kernel positions within `radius` pixels of a head's centre after `step` steps."""
        gaps = torch.cdist(offset_set((3, 3)).double(), self.centers[step])
        return int((gaps.amin(dim=1) <= radius).sum())


def find_positions(centers: Tensor, steps: int = STEPS) -> Descent:
    """Train nine quadratic heads, initially at `centers` `(9, 2)`, to compute one-pixel filters.

    The loss is the mean over the nine filters of the squared error on a window of 13 x 13 offsets,
    which is a filter's expected squared error on white noise. The optimizer is AdamW with a cosine
    schedule to zero; weight decay applies only to the values, which start at zero.
    """
    offsets = torch.arange(-REACH, REACH + 1).double()
    asked = torch.zeros(9, len(offsets), len(offsets), dtype=torch.float64)
    asked[(torch.arange(9), *(offset_set((3, 3)) + REACH).unbind(dim=1))] = 1
    centers = centers.double().clone().requires_grad_()
    spreads = torch.full((9,), (2 * ALPHA) ** 0.5, dtype=torch.float64, requires_grad=True)
    values = torch.zeros(9, 9, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW(
        [
            {"params": [centers, spreads], "lr": CENTER_RATE, "weight_decay": 0},
            {"params": [values], "lr": VALUE_RATE, "weight_decay": DECAY},
        ]
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    course = []
    for step in range(steps + 1):
        alphas = spreads.square() / 2
        course.append([part.detach().clone() for part in (centers, alphas, values)])
        if step == steps:
            break
        gaps = offsets - centers.unsqueeze(-1)  # (9, 2, 13)
        rows, columns = (-alphas.view(9, 1, 1) * gaps.square()).softmax(dim=-1).unbind(dim=1)
        filters = torch.einsum("ht,hi,hj->tij", values, rows, columns)
        optimizer.zero_grad()
        ((filters - asked).square().sum() / 9).backward()
        optimizer.step()
        schedule.step()
    return Descent(*(torch.stack(part) for part in zip(*course, strict=True)))
