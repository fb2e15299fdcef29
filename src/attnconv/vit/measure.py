"""Measure started layers: the mass on their offsets and the residual of Lemma 3.

The probabilities are those that the model itself forms, intercepted at torch's attention functions.

Letters: N_h heads, H x W tokens, T = H * W, Q interior queries, K x K kernel.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..layers.mode import evaluation_mode
from ..theory.grid import offset_set
from .interception import Interception, Weights


@torch.no_grad()
def read_probabilities(
    model: nn.Module,
    attentions: Mapping[str, nn.Module],
    images: Tensor,
    record: Callable[[str, Tensor], None],
) -> None:
    """Run a model on images, one by one, and pass each layer's name and probabilities to `record`.

    Raises TypeError for a layer whose probabilities cannot be read.
    """
    running: list[str] = []
    seen: set[str] = set()

    def take(found: Weights) -> None:
        if running:
            seen.add(running[-1])
            record(running[-1], found.weights)
            if found.problem:
                raise TypeError(f"{running[-1]} cannot be read: {found.problem}")

    fast = torch.backends.mha.get_fastpath_enabled()
    with evaluation_mode(model), ExitStack() as stack:
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.callback(partial(torch.backends.mha.set_fastpath_enabled, fast))
        torch.backends.mha.set_fastpath_enabled(False)  # it would form no probabilities
        for name, module in attentions.items():
            enter = module.register_forward_pre_hook(lambda *_, name=name: running.append(name))
            leave = module.register_forward_hook(lambda *_: running.pop() and None)
            stack.callback(enter.remove)
            stack.callback(leave.remove)
        stack.enter_context(Interception(take))
        for image in images.split(1):
            model(image)
    if silent := [name for name in attentions if name not in seen]:
        raise TypeError(f"{silent[0]} formed no attention probabilities that can be read")


class Measured(NamedTuple):
    """The fidelity of a layer's heads `(N_h,)` and the residual of Lemma 3."""

    fidelity: Tensor
    residual: float


class LayerMeasure:
    """The fidelity and the residual of one layer, collected image by image."""

    def __init__(self, grid: tuple[int, int], offsets: Tensor, kernel_size: int):
        self.grid = grid
        self.offsets = offsets
        self.kernel = offset_set((kernel_size, kernel_size))
        self.queries = _interior(grid, self.kernel)
        self.fidelities: list[Tensor] = []
        self.grams: list[Tensor] = []  # (Q, N_h, N_h)
        self.on_kernel: list[Tensor] = []  # (Q, N_h, K^2)

    def add(self, probabilities: Tensor) -> None:
        """Add the probabilities `(..., N_h, P + T, P + T)` of one image, prefix tokens first.

        Raises ValueError if some are NaN or infinite, as with an alpha that overflows.
        """
        if not probabilities.isfinite().all():
            raise ValueError(
                "the attention maps contain NaN or infinite numbers, expected probabilities;"
                " choose a smaller alpha"
            )
        patches = self.grid[0] * self.grid[1]
        maps = probabilities.reshape(-1, *probabilities.shape[-3:])[:, :, -patches:, -patches:]
        for each in maps:  # windows, or one image
            self._add(each)

    def _add(self, maps: Tensor) -> None:
        """Add the probabilities of patches `(N_h, T, T)`, in float32 or float64."""
        width = self.grid[1]
        maps = maps.float() if maps.element_size() < 4 else maps
        keys = _interior(self.grid, self.offsets)
        shifts = (self.offsets @ self.offsets.new_tensor([width, 1])).tolist()
        self.fidelities.append(
            torch.stack(
                [m[keys, keys + s].double().mean() for m, s in zip(maps, shifts, strict=True)]
            )
        )
        if not len(self.queries):
            return
        A = maps[:, self.queries].movedim(0, 1)  # (Q, N_h, T)
        A = A / A.sum(dim=-1, keepdim=True)
        self.grams.append(torch.cat([(a := c.double()) @ a.mT for c in A.split(64)]))
        kernel = self.queries.unsqueeze(1) + self.kernel @ self.kernel.new_tensor([width, 1])
        index = kernel.unsqueeze(1).expand(-1, len(maps), -1).to(A.device)
        self.on_kernel.append(A.gather(2, index).double())

    def result(self) -> Measured:
        """Return the fidelity, averaged over images, and the largest residual."""
        fidelity = torch.stack(self.fidelities).mean(dim=0).cpu()
        if not self.grams:
            return Measured(fidelity, float("nan"))
        grams, on_kernel = torch.cat(self.grams), torch.cat(self.on_kernel)
        phi = torch.linalg.pinv(grams.sum(dim=0), hermitian=True) @ on_kernel.sum(dim=0)
        # || e - phi^T A_q ||^2 for each kernel position, with A_q A_q^T from the Gram matrices
        squares = 1 - 2 * (phi * on_kernel).sum(dim=1) + (phi * (grams @ phi)).sum(dim=1)
        return Measured(fidelity, float(squares.clamp(min=0).sqrt().max()))


def _interior(grid: tuple[int, int], offsets: Tensor) -> Tensor:
    """Return the numbers of the pixels from which every offset stays inside the image."""
    low = offsets.amin(dim=0).clamp(max=0).tolist()
    high = offsets.amax(dim=0).clamp(min=0).tolist()
    rows = torch.arange(-low[0], grid[0] - high[0])
    columns = torch.arange(-low[1], grid[1] - high[1])
    return (rows.unsqueeze(1) * grid[1] + columns).flatten()
