import pytest
import torch


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random numbers, in float32, on one thread."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
