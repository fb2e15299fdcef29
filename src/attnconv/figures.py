"""The figures, under the name that others rely on."""

from .findings.figures import *  # noqa: F403
