"""Functions that measure the multiply-adds, time and memory of a computation."""

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
    """A measured cost: multiply-adds (torch's count), median seconds and peak added MiB."""

    products: float
    seconds: float
    mib: float


def measure(work: Callable[[], object], repeats: int = 7) -> Measured:
    """Measure the cost of `work()` on the CPU, without gradients."""
    with torch.no_grad():
        work()  # a warm-up call, so that one-time set-up is not measured
        mib = added_memory(work)
        with FlopCounterMode(display=False) as counter:
            work()
        return Measured(counter.get_total_flops() / 2, seconds(work, repeats, warm_up=0), mib)


def added_memory(work: Callable[[], object]) -> float:
    """Return the peak resident memory added by `work()`, in MiB.

    Memory is sampled every 0.5 ms.
    """
    process, done = psutil.Process(), threading.Event()
    with suppress(OSError, AttributeError):  # reuse of freed memory would hide new use
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
    """Return the median time of `work()` in seconds, including all of its work on the device."""
    times = []
    for n in range(warm_up + repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times += [time.perf_counter() - start] if n >= warm_up else []
    return statistics.median(times)


def wait(device: str | torch.device) -> None:
    """Wait until a device has finished all pending work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
