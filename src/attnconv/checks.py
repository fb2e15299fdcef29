"""Comparisons of two computations, for notebooks and tests."""

from torch import Tensor


def largest_gap(ours: Tensor, reference: Tensor) -> float:
    """Return the largest absolute difference, relative to the reference's largest absolute value.

    If the reference is zero, the difference is not divided. Raises ValueError for different shapes.
    """
    if ours.shape != reference.shape:
        raise ValueError(
            f"got shapes {tuple(ours.shape)} and {tuple(reference.shape)}, expected equal ones"
        )
    scale = reference.double().abs().max().item()
    return (ours.double() - reference.double()).abs().max().item() / (scale or 1.0)


def check_gap(what: str, ours: Tensor, reference: Tensor, bound: float) -> float:
    """Assert that two tensors agree up to `bound`, print their largest gap and return it.

    Raises AssertionError if the gap is larger or NaN.
    """
    gap = largest_gap(ours.detach(), reference.detach())
    if not gap <= bound:
        raise AssertionError(f"{what}: largest gap {gap:.1e}, above the bound {bound:.0e}")
    print(f"{what}: largest gap {gap:.1e}, bound {bound:.0e}")
    return gap
