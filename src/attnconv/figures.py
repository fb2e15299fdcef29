"""The paper's figures, `figure_1` to `figure_14`, and those of the book (needs the extra `lab`)."""

from companion.explorer.stills import descent_still, network_still, still
from companion.figures import *  # noqa: F403
from companion.studies.ablation import accuracy_kept
from companion.studies.freed.figures import (
    arm_accuracies,
    head_paths,
    heads_before_and_after,
    layer_paths,
    over_training,
)
from companion.studies.scaling.figures import gaps, scaling
from companion.studies.starts.figures import starts, sums_of_cosines
