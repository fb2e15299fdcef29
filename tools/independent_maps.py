"""Find a model's attention maps without attnconv, and compare those that attnconv has read.

The maps are operands of matrix products in torch's dispatcher, below all functions at which
attnconv intercepts attention: each matrix whose entries are not negative and whose rows sum to 1 is
a candidate. Fused attention is replaced by torch's own implementation in matrix products.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

#: Differences of sums of rows from 1 that rounding can cause.
ROUNDING = 1e-4
#: Below this relative difference, a product is that of a layer.
AGREES = 1e-4
ATEN = torch.ops.aten


class Products(TorchDispatchMode):
    """Keep the operands of matrix products that may be attention maps, each `(M, T, T)`."""

    def __init__(self):
        super().__init__()
        self.maps = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (ATEN.mm.default, ATEN.bmm.default):
            for operand in args[:2]:
                self._keep(operand)
        return func(*args, **(kwargs or {}))

    def _keep(self, operand):
        rows = min((operand, operand.mT), key=_distance_from_probabilities)
        keys = rows.shape[-1]
        is_map = keys > 1 and _distance_from_probabilities(rows) < ROUNDING
        if is_map and rows.shape[-2] % keys == 0:  # the heads may be joined to the queries
            self.maps.append(rows.detach().reshape(-1, keys, keys).clone())


def _distance_from_probabilities(rows):
    sums = float((rows.sum(dim=-1) - 1).abs().max())
    return max(sums, -float(rows.min()))


@torch.no_grad()
def maps_in_products(model, images):
    """Return all matrices `(M, T, T)` that may be attention maps, in the order of execution."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    model.eval()
    try:
        with sdpa_kernel(SDPBackend.MATH), Products() as products:
            model(images)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return products.maps


def largest_difference(layers, products, ordered=True):
    """Return the largest difference of the layers' maps from those in products, or None.

    It is relative to the largest entry of the layer's maps. A layer is compared with the first
    product after the previous layer's that agrees with it, or else with the one that is closest;
    None means that there is none with as many tokens. `layers` have `maps` `(N, N_h, H, W, H, W)`.
    If `ordered` is false, the entries of each map are compared in ascending order.
    """
    worst, start = 0.0, 0
    for layer in layers:
        maps = layer.maps.flatten(4).flatten(2, 3).flatten(0, 1)  # (N * N_h, T, T)
        best = None
        for number, product in enumerate(products[start:], start):
            if product.shape[-1] < maps.shape[-1] or len(product) < len(maps):
                continue
            difference = _difference(maps, product, ordered) / float(maps.max())
            best = min(best or (difference, number), (difference, number))
            if difference < AGREES:
                break
        if best is None:
            return None
        worst, start = max(worst, best[0]), best[1] + 1
    return worst


def _difference(maps, product, ordered):
    """Return how far maps `(M, T, T)` are from those in a product, on the patches.

    Other tokens come before the patches or after them. Windows with padding, which are left out of
    `maps`, may stand between those that are not, and heads and windows may be in another order.
    """
    tokens, others = maps.shape[-1], product.shape[-1] - maps.shape[-1]
    gaps = []
    for first in range(others + 1):
        patches = product[:, first : first + tokens, first : first + tokens]
        patches = patches / patches.sum(dim=-1, keepdim=True)
        if not ordered:
            maps, patches = (each.flatten(1).sort().values for each in (maps, patches))
        if patches.shape == maps.shape:
            gaps.append(float((maps - patches).abs().max()))
            if gaps[-1] < AGREES * float(maps.max()):
                break
        apart = torch.stack([(patches - each).abs().flatten(1).amax(dim=1) for each in maps])
        nearest = [apart.amin(dim=1).max()]
        if len(patches) == len(maps):  # no map of the product is left over
            nearest.append(apart.amin(dim=0).max())
        gaps.append(float(max(nearest)))
    return min(gaps)
