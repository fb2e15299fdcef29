"""Functions that measure the cost of a computation: products, time and memory."""

import ctypes
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import psutil
import torch
from torch.utils.flop_counter import FlopCounterMode


class Measured(NamedTuple):
    """The cost of a computation: multiply-adds (torch's count), median seconds, peak added MiB."""

    products: float
    seconds: float
    mib: float


def measure(work: Callable[[], object], repeats: int = 7) -> Measured:
    """Measure the cost of `work()` on the CPU, without gradients."""
    with torch.no_grad():
        work()  # exclude the set-up of a first call
        mib = added_memory(work)
        with FlopCounterMode(display=False) as counter:
            work()
        return Measured(counter.get_total_flops() / 2, seconds(work, repeats, warm_up=0), mib)


def added_memory(work: Callable[[], object]) -> float:
    """Return the MiB of resident memory that `work()` adds at its peak.

    Memory is sampled twice a millisecond.
    """
    process, done = psutil.Process(), threading.Event()
    with suppress(OSError, AttributeError):  # freed memory that glibc keeps would hide what is used
        ctypes.CDLL(None).malloc_trim(0)
    start = highest = process.memory_info().rss

    def sample() -> None:
        nonlocal highest
        while not done.wait(0.0005):
            highest = max(highest, process.memory_info().rss)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        result = work()
        highest = max(highest, process.memory_info().rss)
        del result
    finally:
        done.set()
        sampler.join()
    return (highest - start) / 2**20


def seconds(
    work: Callable[[], object],
    repeats: int,
    device: str | torch.device = "cpu",
    warm_up: int = 1,
) -> float:
    """Return the median time of `work()` in seconds, measured until the device has finished."""
    times = []
    for n in range(warm_up + repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times += [time.perf_counter() - start] if n >= warm_up else []
    return statistics.median(times)


def wait(device: str | torch.device) -> None:
    """Wait until a device has finished its work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
