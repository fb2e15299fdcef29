"""What a run or a chapter can be told, validated before anything starts."""

from .base import Parameters
from .chapters import ImitationParameters, ResultsParameters
from .run import (
    FREE_IN_A_TIER,
    MOMENTUM,
    Convolutional,
    Folders,
    Network,
    Optimisation,
    Place,
    Pruning,
    RunParameters,
    Task,
    build_network,
)
