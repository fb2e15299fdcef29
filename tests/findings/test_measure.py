"""What a computation costs, of computations whose cost is known."""

import time

import torch

from attnconv.findings.measure import added_memory, cost, seconds


def test_products_are_counted():
    a, b = torch.randn(30, 20), torch.randn(20, 10)
    found = cost(lambda: a @ b)
    assert found.products == 30 * 20 * 10 and found.seconds > 0


def test_memory_is_what_was_held_at_the_peak():
    def work():
        total = torch.zeros(())
        for _ in range(3):  # one at a time
            total = total + torch.ones(16, 2**20).sum()  # 64 MiB
        time.sleep(0.01)
        return total

    assert 60 < added_memory(work) < 140


def test_the_median_time_is_of_the_repeats_alone():
    waits = iter([0.2, 0.01, 0.05, 0.01])
    assert 0.01 <= seconds(lambda: time.sleep(next(waits)), repeats=3, warm_up=1) < 0.05
