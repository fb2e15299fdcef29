"""Run records, under the name that others rely on."""

from .records.provenance import processor, provenance
from .records.record import (
    LARGEST_RECORD,
    METRICS,
    RunInfo,
    RunRecord,
    find_runs,
    load_run,
    results_table,
    write_run,
)

__all__ = [
    "LARGEST_RECORD",
    "METRICS",
    "RunInfo",
    "RunRecord",
    "find_runs",
    "load_run",
    "processor",
    "provenance",
    "results_table",
    "write_run",
]
