"""Functions that compare the results of two computations, for notebooks and tests."""

from torch import Tensor


def largest_gap(ours: Tensor, reference: Tensor) -> float:
    """Return the largest absolute difference between two tensors, relative to the reference.

    The difference is divided by the largest absolute value of the reference, unless that is zero.
    Raises ValueError if the shapes differ.
    """
    if ours.shape != reference.shape:
        raise ValueError(
            f"got shapes {tuple(ours.shape)} and {tuple(reference.shape)}, expected equal ones"
        )
    scale = reference.double().abs().max().item()
    return (ours.double() - reference.double()).abs().max().item() / (scale or 1.0)


def check_gap(what: str, ours: Tensor, reference: Tensor, bound: float) -> float:
    """Assert that the `largest_gap` of two tensors is at most `bound`; print and return the gap.

    The printed line starts with `what`. Raises AssertionError if the gap exceeds `bound` or
    is NaN.
    """
    gap = largest_gap(ours.detach(), reference.detach())
    if not gap <= bound:
        raise AssertionError(f"{what}: largest gap {gap:.1e}, above the bound {bound:.0e}")
    print(f"{what}: largest gap {gap:.1e}, bound {bound:.0e}")
    return gap
