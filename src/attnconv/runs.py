"""Run records, under the name that others rely on."""

from .records.provenance import *  # noqa: F403
from .records.record import *  # noqa: F403
