"""The Chromium of `tools/chromium.py` in tests."""

import os
import sys

import pytest

from . import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from chromium import LOADED, MISSING, find_chromium  # noqa: F401 - LOADED is for conftest


def chromium_or_skip():
    """Return Chromium's path. Without one, skip the test, or fail if ATTNCONV_BROWSER=required."""
    if (executable := find_chromium()) is None:
        required = os.environ.get("ATTNCONV_BROWSER") == "required"
        (pytest.fail if required else pytest.skip)(MISSING)
    return executable
