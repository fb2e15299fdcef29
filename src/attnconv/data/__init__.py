"""The data: scikit-learn's digits and photographs (inside the dependencies), and CIFAR-10."""

from .batches import Batches, Split
from .cifar10 import CIFAR10_COUNTS, CIFAR10_FINGERPRINT, CIFAR10_NORMALISATION
from .dataset import DATASETS, Dataset, Normaliser
from .datasets import dataset_at_hand, load_dataset
from .photographs import PHOTOGRAPHS, load_photograph, whitened

__all__ = [
    "CIFAR10_COUNTS",
    "CIFAR10_FINGERPRINT",
    "CIFAR10_NORMALISATION",
    "DATASETS",
    "PHOTOGRAPHS",
    "Batches",
    "Dataset",
    "Normaliser",
    "Split",
    "dataset_at_hand",
    "load_dataset",
    "load_photograph",
    "whitened",
]
