"""Tell whether the values of a tensor can be read, or only its shape is known."""

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._guards import detect_fake_mode
from torch.jit._trace import is_tracing


def only_shapes_are_known() -> bool:
    """Return whether a graph for other inputs is being recorded (compiled, exported or traced)."""
    return torch.compiler.is_compiling() or is_tracing()


def can_be_read(values: Tensor) -> bool:
    """Return whether the program may depend on the values of a tensor.

    They are unknown on the meta device, of fake tensors, inside `torch.func` transforms of the
    tensor, and while a graph is recorded.
    """
    if only_shapes_are_known() or values.is_meta or detect_fake_mode(values) is not None:
        return False
    return not is_functorch_wrapped_tensor(values)
