"""The data sets (digits and CIFAR-10) and pictures from scikit-learn and scikit-image."""

from .cifar10 import CIFAR10_FINGERPRINT, CIFAR10_NORMALISATION
from .dataset import DATASETS, Batches, Dataset, Normaliser, Split
from .layouts import CIFAR10_COUNTS
from .load import (
    PHOTOGRAPHS,
    PICTURES,
    dataset_at_hand,
    load_dataset,
    load_photograph,
    middle_square,
    whitened,
)
