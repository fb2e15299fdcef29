"""The tables, under the name that others rely on."""

from .findings.tables import *  # noqa: F403
