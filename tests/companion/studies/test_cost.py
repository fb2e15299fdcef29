"""Measured costs of computations whose cost is known."""

import torch
from helpers.memory import run_alone

from companion.studies import cost


def test_products_are_counted():
    a, b = torch.randn(30, 20), torch.randn(20, 10)
    found = cost.measure(lambda: a @ b)
    assert found.products == 30 * 20 * 10 and found.seconds > 0


HOLDS_ONE_AT_A_TIME = """
import time, torch
from companion.studies.cost import added_memory
def work():
    total = torch.zeros(())
    for _ in range(3):
        total = total + torch.ones(16, 2**20).sum()  # 64 MiB
    time.sleep(0.01)
    return total
print(added_memory(work))
"""


def test_memory_is_what_was_held_at_the_peak():
    """Alone, since a process that has trained keeps what is freed (`keep_freed_memory`)."""
    (added,), _ = run_alone(HOLDS_ONE_AT_A_TIME)
    assert 60 < float(added) < 140


def test_the_median_time_is_of_the_repeats_alone(monkeypatch):
    clock, waits = [0.0], iter([64.0, 1.0, 16.0, 2.0])
    monkeypatch.setattr(cost.time, "perf_counter", lambda: clock[0])

    def work():
        clock[0] += next(waits)

    assert cost.seconds(work, repeats=3, warm_up=1) == 2.0


def test_the_table_and_numbers_of_chapter_16():
    def measured(products, seconds):
        return {side: cost.Measured(products * side**2, seconds * side, 1.0) for side in (64, 128)}

    costs = {
        "dense": {64: cost.Measured(1.0, 640.0, 1.0)},  # not measured on large images
        "soft heads, shifts": measured(5, 4),
        "one-hot heads, shifts": measured(3, 2),
        "convolution": measured(3, 1),
    }
    assert cost.times_table(costs).rows == [
        ["64", "10.0", "4.0", "2.0", "64000.00 ms"],
        ["128", "-", "4.0", "2.0", "128000.00 ms"],
    ]
    assert cost.numbers(costs) == {
        "cost-slower": "2.0 to 2.0",
        "cost-soft": 5,
        "cost-one-hot": 3,
        "cost-dense-gib": 9 * 130**4 * 4 / 2**30,
    }
