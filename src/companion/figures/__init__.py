"""Figures: each function takes tensors, records or models and returns a matplotlib figure.

No function trains a model. `figure_1` to `figure_14` are the paper's figures; other code relies on
these names.
"""

from .chapters import (
    alpha_curves,
    attention_maps,
    claim,
    cost_curves,
    curves,
    exactness,
    head_locality,
    head_maps,
    image_grid,
    network,
    offset_grid,
    score_maps,
)
from .inspection import attention_report
from .paper import FIGURE_2, FIGURE_13, figure_1, figure_2, figure_11, figure_13
from .trained_heads import (
    figure_3,
    figure_4,
    figure_5,
    figure_6,
    figure_7,
    figure_8,
    figure_9,
    figure_10,
    figure_12,
    figure_14,
    mass_threshold,
)
