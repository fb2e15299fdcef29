"""One function per figure: each takes tensors, a record or a model and returns a matplotlib figure;
none trains.

`attnconv.figures` is their name for others.
"""

from .chapters import (
    attention_maps,
    claim,
    exactness,
    head_locality,
    head_maps,
    head_paths,
    image_grid,
    network,
    score_maps,
    shift_grid,
)
from .freed import arm_accuracies, heads_before_and_after, layer_paths, over_training
from .heads import (
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
from .lines import alpha_curves, cost_curves, curves
from .paper import FIGURE_2, FIGURE_13, figure_1, figure_2, figure_11, figure_13
from .scaling import scaling
