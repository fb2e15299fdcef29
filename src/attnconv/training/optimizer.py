"""The optimizer of a run, and its learning rates."""

import torch
from torch import nn

from ..runs.parameters import MOMENTUM, RunParameters

POSITION_PARAMETERS = ("centers", "spread", "root")  # they travel pixels, the weights fractions


def make_optimizer(model: nn.Module, parameters: RunParameters) -> torch.optim.Optimizer:
    """SGD or AdamW, with two groups of their own: the parameters of positions, with another rate
    and no decay, and the shifts of batch normalisation, with another rate and the others' decay."""
    position = [
        p for name, p in model.named_parameters() if name.rsplit(".", 1)[-1] in POSITION_PARAMETERS
    ]
    norms = [m.bias for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    apart = norms if parameters.norm_rate != 1 else []
    chosen = {id(parameter) for parameter in position + apart}
    weights = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    decay, rate = parameters.weight_decay, parameters.norm_rate
    groups = [{"params": weights, "weight_decay": decay, "factor": 1.0}]
    if position:
        groups.append({"params": position, "weight_decay": 0.0, "factor": parameters.position_rate})
    if apart:
        groups.append({"params": apart, "weight_decay": decay / rate, "factor": rate})
    options = {"lr": parameters.learning_rate, "fused": next(model.parameters()).is_cuda}
    if parameters.optimizer == "adamw":
        return torch.optim.AdamW(groups, **options)
    nesterov = parameters.optimizer == "nesterov"
    return torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=nesterov, **options)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step, each group's times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]


def restore(optimizer: torch.optim.Optimizer, state: dict[int, dict[str, torch.Tensor]]) -> None:
    """Go on with what an optimizer had, parameter by parameter."""
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    lay_out_as_parameters(optimizer)


def lay_out_as_parameters(optimizer: torch.optim.Optimizer) -> None:
    """A file keeps no strides, but fused optimisers want those of the parameter (channels last, on
    a GPU)."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value.shape == parameter.shape:
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
