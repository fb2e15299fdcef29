"""scikit-learn's two photographs, which lie inside the dependencies."""

import torch
from torch import Tensor

#: Their names.
PHOTOGRAPHS = ("china", "flower")


def load_photograph(name: str = "china", size: tuple[int, int] | None = None) -> Tensor:
    """One of scikit-learn's two photographs, `china` or `flower`: `(H, W, 3)`, float32 from 0 to 1.

    With `size` it is reduced to that height and width by averaging.
    """
    from sklearn.datasets import load_sample_image

    if name not in PHOTOGRAPHS:
        raise ValueError(f"unknown photograph {name!r}, expected {' or '.join(PHOTOGRAPHS)}")
    image = torch.as_tensor(load_sample_image(f"{name}.jpg").copy()).float() / 255
    if size is None:
        return image
    reduced = torch.nn.functional.interpolate(image.permute(2, 0, 1)[None], size=size, mode="area")
    return reduced[0].permute(1, 2, 0)


def whitened(image: Tensor) -> Tensor:
    """An image `(H, W, C)` with its channels decorrelated, at mean 0 and variance 1 (the symmetric,
    "ZCA", whitening)."""
    centred = image - image.mean(dim=(0, 1))
    covariance = torch.cov(centred.flatten(0, 1).T)
    variance, basis = torch.linalg.eigh(covariance)
    return centred @ (basis * variance.rsqrt()) @ basis.T
