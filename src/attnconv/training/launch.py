"""Training with several processes of one machine, from a command line or a notebook."""

import os
import socket

from accelerate import notebook_launcher
from torch.distributed.elastic.multiprocessing.api import SignalException

from ..data import Dataset
from ..runs.parameters import RunParameters
from ..runs.record import load_run
from .loop import Run, train
from .processes import Interrupted, device_type


def launch(parameters: RunParameters, dataset: Dataset | None = None) -> Run:
    """Train with `parameters.processes` processes of this machine; from a notebook too
    (Accelerate's launcher)."""
    # torchrun or accelerate launch has started them
    if parameters.processes == 1 or "WORLD_SIZE" in os.environ:
        return train(parameters, dataset)
    device_type(parameters.device)
    try:
        notebook_launcher(
            train, (parameters, dataset), num_processes=parameters.processes, use_port=_free_port()
        )
    except SignalException as interruption:  # it has told the processes and waited for them
        raise Interrupted(f"stopped by {interruption.sigval.name}", interruption.sigval) from None
    record = load_run(parameters.record_folder)
    return Run(record, None, record.metrics)


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
