"""The processes that train together, the device they train on, and the signals that stop them."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from accelerate import PartialState
from accelerate.utils import is_cuda_available
from torch import Tensor, nn

from ..models import SmallCNN


@dataclass(frozen=True)
class Processes:
    """The processes that train together, as torchrun, accelerate launch or `launch` started them;
    else one."""

    index: int
    count: int
    device: torch.device

    @classmethod
    def join(cls, device: str) -> "Processes":
        kind = device_type(device)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            state = PartialState(cpu=kind == "cpu")
            return cls(state.process_index, state.num_processes, cast(torch.device, state.device))
        return cls(0, 1, torch.device(kind))

    @property
    def is_main(self) -> bool:
        return self.index == 0

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over the processes."""
        if self.count > 1:
            torch.distributed.all_reduce(value)
        return value

    def each(self, value: int) -> list[int]:
        """A number of each process."""
        values = torch.zeros(self.count, dtype=torch.int64, device=self.device)
        values[self.index] = value
        return self.total(values).tolist()

    def place(self, model: nn.Module) -> nn.Module:
        """The model on this process's device, in the layout that is fast for its convolutions
        there."""
        if self.device.type == "cuda" and self.count > 1:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        if self.device.type == "cuda" or isinstance(model, SmallCNN):
            model = model.to(memory_format=torch.channels_last)
        return model.to(self.device)

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            torch.distributed.barrier()


def device_type(device: str) -> str:
    """cuda or cpu, `auto` resolved. ValueError for cuda where there is none."""
    # asks the driver without starting CUDA, which forked processes could not use any more
    there = is_cuda_available()
    if device == "cuda" and not there:
        raise ValueError(
            "device = 'cuda': torch finds no CUDA GPU here; expected one, or device = 'cpu'"
        )
    return ("cuda" if there else "cpu") if device == "auto" else device


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM (its number is `signal`) arrived, and the step under way was finished."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.signal = number


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The SIGINTs and SIGTERMs that arrive meanwhile, so that the step under way can finish and be
    saved.

    One stop may arrive twice (from the scheduler and through the launcher); a SIGINT two seconds
    later acts at once.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    first = time.monotonic()

    def remember(number: int, frame) -> None:
        nonlocal first
        if received and number == signal.SIGINT and time.monotonic() - first > 2:
            raise KeyboardInterrupt
        first = first if received else time.monotonic()
        received.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
