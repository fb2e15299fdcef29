"""The data sets: scikit-learn's digits and photographs, and CIFAR-10."""

from .cifar10 import CIFAR10_COUNTS, CIFAR10_FINGERPRINT, CIFAR10_NORMALISATION
from .dataset import DATASETS, Batches, Dataset, Normaliser, Split
from .load import PHOTOGRAPHS, dataset_at_hand, load_dataset, load_photograph, whitened
