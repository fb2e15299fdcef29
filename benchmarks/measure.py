"""What the benchmarks share: peak memory, the peak rate of the hardware, and medians."""

import statistics
import threading
import time

import psutil
import torch


class PeakMemory(threading.Thread):
    """Samples the resident memory of this process; `added` is its highest value above the start, in
    MiB."""

    def __init__(self):
        super().__init__(daemon=True)
        self.process, self.done = psutil.Process(), threading.Event()
        self.start_size = self.highest = self.process.memory_info().rss

    def run(self):
        while not self.done.wait(0.0005):
            self.highest = max(self.highest, self.process.memory_info().rss)

    @property
    def added(self):
        return (self.highest - self.start_size) / 2**20


def seconds(work, repeats, device="cpu", warm_up=1):
    """The median time of `work()`, the device having finished it."""
    times = []
    for n in range(warm_up + repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times += [time.perf_counter() - start] if n >= warm_up else []
    return statistics.median(times)


def wait(device):
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def peak_rate(device, dtype):
    """FLOP/s of a large product of random matrices, the practical peak of the hardware for this
    type."""
    size, repeats = (8192, 20) if torch.device(device).type == "cuda" else (2048, 5)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: a @ b, repeats, device, warm_up=3)
