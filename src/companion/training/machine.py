"""Use of the machine: its device and memory, multiple processes, and signals that stop a run."""

import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import torch
from accelerate import PartialState, notebook_launcher
from accelerate.utils import is_cuda_available
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.api import SignalException

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)


@dataclass(frozen=True)
class Processes:
    """The index and device of this process, and the number of processes training the model."""

    index: int
    count: int
    device: torch.device

    @classmethod
    def join(cls, device: str) -> "Processes":
        """Join the processes started by torchrun, accelerate launch or `launch`, if any."""
        kind = device_type(device)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            state = PartialState(cpu=kind == "cpu")
            return cls(state.process_index, state.num_processes, cast(torch.device, state.device))
        return cls(0, 1, torch.device(kind))

    @property
    def is_main(self) -> bool:
        """Return whether the current process is the one that writes files."""
        return self.index == 0

    @property
    def share(self) -> slice:
        """The part of a list of images that this process handles."""
        return slice(self.index, None, self.count)

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes, computed in place."""
        if self.count > 1:
            torch.distributed.all_reduce(value)
        return value

    def each(self, value: int) -> list[int]:
        """Return the values that all processes pass to this method, in process order."""
        values = torch.zeros(self.count, dtype=torch.int64, device=self.device)
        values[self.index] = value
        return self.total(values).tolist()

    def place(self, model: nn.Module) -> nn.Module:
        """Return a model moved to this process's device, in the layout that is fastest there."""
        if self.device.type == "cuda" and self.count > 1:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        if self.device.type == "cuda" or getattr(model, "channels_last", False):
            model = model.to(memory_format=torch.channels_last)
        return model.to(self.device)

    def wait(self) -> None:
        """Wait until every process has called this method."""
        if self.count > 1:
            torch.distributed.barrier()


def device_type(device: str) -> str:
    """Return cuda or cpu, resolving `auto`; raise ValueError for cuda if there is no GPU."""
    # query the driver without initialising CUDA, which forked processes could not use afterwards
    there = is_cuda_available()
    if device == "cuda" and not there:
        raise ValueError(
            "device = 'cuda': torch finds no CUDA GPU; expected one, or device = 'cpu'"
        )
    return ("cuda" if there else "cpu") if device == "auto" else device


def launch(function: Callable[..., Any], arguments: tuple, count: int, device: str) -> None:
    """Call a function in `count` processes on this machine, even from a notebook."""
    device_type(device)  # errors are clearer before there are several processes
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    try:
        notebook_launcher(function, arguments, num_processes=count, use_port=port)
    except SignalException as stop:  # the launcher has notified the processes and waited for them
        raise Interrupted(f"stopped by {stop.sigval.name}", stop.sigval) from None


def keep_freed_memory() -> None:
    """Make glibc keep the memory of freed tensors for the next step.

    By default, glibc returns large blocks to the system and requests them again page by page; in
    our measurements, this takes about a quarter of the time of a step. With other C libraries, this
    function does nothing.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, 2**30)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)


class Interrupted(KeyboardInterrupt):
    """Raised when SIGINT or SIGTERM (in `signal`) has stopped training at the end of a step."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.signal = number


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Hold back SIGINT and SIGTERM so that the current training step can finish and be saved.

    Yields the list of the signal numbers received so far. A signal may arrive twice (from the
    scheduler and through the launcher), so only a SIGINT that arrives more than two seconds after
    the first signal takes effect immediately.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    moments: list[float] = []

    def remember(number: int, frame) -> None:
        moments.append(time.monotonic())
        if number == signal.SIGINT and moments[-1] - moments[0] > 2:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
