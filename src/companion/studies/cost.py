"""Measure the multiply-adds, time and memory of a computation.

The last section makes the table of chapter 16 and the numbers that its text quotes.
"""

import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import psutil
import torch
from torch.utils.flop_counter import FlopCounterMode

from ..display import Numbers, Table


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
    process = psutil.Process()
    done = threading.Event()
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


# --- chapter 16 -----------------------------------------------------------------------------------

#: The cost of each method by the side of the image, in pixels; the last one is the convolution.
Costs = Mapping[str, Mapping[int, Measured]]


def per_pixel(costs: Costs, name: str, side: int) -> float:
    """Return a method's number of products per pixel of an image."""
    return costs[name][side].products / side**2


def times_longer(costs: Costs, name: str) -> dict[int, float]:
    """Return a method's time divided by that of the convolution, by the side of the image."""
    convolution = costs["convolution"]
    return {side: cost.seconds / convolution[side].seconds for side, cost in costs[name].items()}


def times_table(costs: Costs) -> Table:
    """Return a table of each method's time, relative to that of the convolution."""
    rows = []
    for side, base in costs["convolution"].items():
        row = {"pixels per side": str(side)}
        for name in costs:
            ratio = times_longer(costs, name).get(side)
            row[name] = f"{ratio:.1f}" if ratio else "-"
        rows.append(row | {"convolution": f"{1e3 * base.seconds:.2f} ms"})
    caption = (
        "The time of each method, divided by that of the convolution (last column). Measured on"
        " one core while this book was built."
    )
    return Table.of("cost-times", caption, rows)


def numbers(costs: Costs) -> Numbers:
    """Return the numbers that chapter 16 quotes."""
    slower = times_longer(costs, "one-hot heads, shifts").values()
    padded_pixels = (max(costs["convolution"]) + 2) ** 2
    maps = 9 * padded_pixels**2  # numbers in the maps of nine heads
    return {
        "cost-slower": f"{min(slower):.1f} to {max(slower):.1f}",
        "cost-soft": per_pixel(costs, "soft heads, shifts", 128),
        "cost-one-hot": per_pixel(costs, "one-hot heads, shifts", 128),
        "cost-dense-gib": 4 * maps / 2**30,
    }
