"""A training run from its start to its final record: what is read, the loop, what is written.

All random numbers in a step depend only on the seed, the epoch and the step (and, for dropout, on
the process). On a CPU, a run that is killed and resumed therefore gives bit-for-bit the same
numbers as an uninterrupted one.
"""

import copy
import os
import signal
import time
from dataclasses import dataclass

from torch import nn
from tqdm import tqdm

from ..data import Dataset, Split, load_dataset
from ..runs.parameters import RunParameters
from ..runs.record import RunRecord, load_run
from ..store import expect_writable
from .learner import Learner, NotFinite
from .machine import Interrupted, Processes, launch, stop_signals
from .origin import earlier_run, find_origin, missing_parent
from .recorder import Recorder


@dataclass(frozen=True)
class Run:
    """A finished training run.

    `record` is None on all processes except the first. `model` is in evaluation mode on the CPU, or
    None if its weights are not available.
    """

    record: RunRecord | None
    model: nn.Module | None
    metrics: list[dict[str, float]]


def train(parameters: RunParameters, dataset: Dataset | None = None) -> Run:
    """Train a model, or continue an interrupted run, and write the run's record.

    On the same machine, equal parameters give equal metrics; on a CPU, the metrics agree bit for
    bit. If `parameters.processes` is greater than 1, the function starts these processes, even from
    a notebook, unless torchrun or accelerate launch has already done so. Raises OSError if the
    folders cannot be written, ValueError if they contain a different run, RuntimeError if the loss
    is not finite, and `Interrupted` after SIGINT or SIGTERM.
    """
    if parameters.processes > 1 and "WORLD_SIZE" not in os.environ:
        launch(train, (parameters, dataset), parameters.processes, parameters.device)
        record = load_run(parameters.record_folder)
        return Run(record, None, record.metrics)
    processes = Processes.join(parameters.device)
    parameters = parameters.on(processes.device.type)

    # what is read: the earlier part of the run, the data, and the model with which it starts
    record, checkpoint = earlier_run(parameters)
    # a finished run that still has a checkpoint continues below, to return its model
    if record and not checkpoint:
        where = f"this is its record in {record.folder}; resume = False repeats the run"
        print(f"{parameters.name} is finished: {where}", flush=True)
        return Run(record, None, record.metrics)
    if not record:  # before a parent is trained
        expect_writable(parameters.record_folder)
        if parameters.checkpoint_every:
            expect_writable(parameters.checkpoint_folder)
    dataset = dataset or load_dataset(parameters.dataset, parameters.data_root or None)
    if checkpoint is None and (parent := missing_parent(parameters)):
        first = f"which is trained first: {parent.epochs} epochs"
        print(f"{parameters.name} starts from {parent.name}, {first}", flush=True)
        train(parent, dataset)
    data = Split.of(dataset, parameters, processes.device)
    origin = find_origin(parameters, data, processes, checkpoint)
    learner = Learner(parameters, data, processes, origin)

    # the loop; the recorder replaces earlier files only now that nothing can be refused any more
    recorder = Recorder(learner)
    with stop_signals() as received, progress_bar(learner) as bar:
        train_epochs(learner, recorder, bar, received)

    # what is written at the end
    if processes.is_main and not record:
        record = recorder.finish()
    processes.wait()
    model = copy.deepcopy(learner.model).cpu().eval()
    return Run(record if processes.is_main else None, model, learner.progress.metrics)


def train_epochs(learner: Learner, recorder: Recorder, bar: tqdm, received: list[int]) -> None:
    """Train to the last epoch and write checkpoints; stop early once a signal is `received`."""
    progress = learner.progress
    parameters = learner.parameters
    if not progress.snapshots:  # a new run
        recorder.keep_state()
    if progress.epoch < parameters.epochs:
        recorder.write_partial("running")
    try:
        while progress.epoch < parameters.epochs:
            lap = Stopwatch()
            for batch in learner.batches_left():
                learner.train_step(batch)
                bar.update(batch.size)
                progress.add_training(lap())
                if learner.agrees_to_stop(bool(received)):
                    stop(learner, recorder, received)
            learner.check_losses()  # waits for the device, so that the time is correct
            progress.add_training(lap())
            test_loss, test_accuracy = learner.evaluate()
            progress.seconds += lap()
            learner.finish_epoch(test_loss, test_accuracy)
            recorder.keep_state()
            if recorder.is_checkpoint_due():
                recorder.write_checkpoint()
            recorder.write_partial("running")
            show_epoch(bar, progress.metrics[-1], parameters.epochs)
    except NotFinite as error:
        recorder.write_partial("stopped")
        last = next(iter(recorder.checkpoints.paths()), "none")
        text = f"{error}; last good checkpoint: {last}; try a lower learning_rate"
        raise RuntimeError(text) from None


def stop(learner: Learner, recorder: Recorder, received: list[int]) -> None:
    """Write a checkpoint in the middle of an epoch and raise `Interrupted`."""
    learner.check_losses()
    written = "checkpoints are off"
    if learner.parameters.checkpoint_every:
        what = "a checkpoint was" if recorder.write_checkpoint() else "no checkpoint could be"
        resumes = learner.parameters.resume
        command = "the same command continues from the last one"
        written = f"{what} written; {command if resumes else 'resume = True continues from it'}"
    recorder.write_partial("stopped")
    learner.processes.wait()  # else an early exit would look like a failure and end the rest
    number = received[0] if received else signal.SIGTERM
    where = f"epoch {learner.progress.epoch + 1}, step {learner.progress.step}"
    raise Interrupted(f"stopped by {signal.Signals(number).name} in {where}; {written}", number)


class Stopwatch:
    """Returns the time in seconds since its last call, or since its creation."""

    def __init__(self):
        self.last = time.perf_counter()

    def __call__(self) -> float:
        before, self.last = self.last, time.perf_counter()
        return self.last - before


def progress_bar(learner: Learner) -> tqdm:
    """Return a progress bar that counts images, shown only in a terminal or a notebook."""
    return tqdm(
        desc="training",
        total=learner.parameters.epochs * len(learner.data.train),
        initial=learner.images_done,
        disable=None if learner.processes.is_main else True,
        unit=" images",
        unit_scale=True,
    )


def show_epoch(bar: tqdm, entry: dict[str, float], epochs: int) -> None:
    """Show the metrics of the last epoch next to the progress bar."""
    shown = {"epoch": f"{entry['epoch']}/{epochs}", "loss": f"{entry['train_loss']:.3f}"}
    bar.set_postfix(shown | {"accuracy": f"{entry['test_accuracy']:.4f}"})
