import pytest

from companion.runs.select import Records


@pytest.fixture(scope="session")
def committed():
    """Return the committed run records, which the book's pages describe."""
    return Records.read()
