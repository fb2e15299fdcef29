"""The training loop, which carries out a run from its start to its final record.

All random numbers in a step depend only on the seed, the epoch and the step (and, for dropout, on
the process). On a CPU, a run that is killed and resumed therefore gives bit-for-bit the same
numbers as an uninterrupted one.
"""

import copy
import hashlib
import math
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from ..data import DATASETS, Dataset, Split, load_dataset
from ..runs.history import heads_per_layer, snapshot
from ..runs.parameters import MOMENTUM, RunParameters
from ..runs.record import RunRecord, load_run
from ..runs.weights import named_weights
from ..store import expect_writable, remove_temporary
from .checkpoint import Checkpoint, Checkpoints, Progress
from .machine import Interrupted, Processes, autocast, keep_freed_memory, launch, stop_signals
from .origin import Origin, earlier_run, epochs_to_keep, final_measures, find_origin, missing_parent
from .recorder import Recorder, evaluate, snapshot_interval

# in pixels, or position scores; both change more than weights do and have no weight decay
POSITION_PARAMETERS = (
    ".centers",
    ".spread",
    ".root",
    ".relative_position_bias_table",
)
LARGEST_BLOCK = 32 * 2**20  # largest tensor in a step on a CPU, in bytes


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
    training = Training(parameters, data, processes, origin)
    if processes.is_main and not parameters.resume:  # only now: all that can be refused has been
        training.checkpoints.clear()
    with stop_signals() as received, training.bar:
        training.run(received, epochs_to_keep(parameters))
    if processes.is_main and not record:
        record = training.finish(final_measures(parameters, training.model, data.test))
    processes.wait()
    model = copy.deepcopy(training.model).cpu().eval()
    return Run(record if processes.is_main else None, model, training.progress.metrics)


class Training:
    """A training run in progress; only the loop changes its model, optimizer and progress."""

    def __init__(
        self, parameters: RunParameters, data: Split, processes: Processes, origin: Origin
    ):
        self.parameters, self.data, self.processes = parameters, data, processes
        self.checkpoints, self.device = Checkpoints(parameters.checkpoint_folder), processes.device
        self.steps = math.ceil(len(data.train) / parameters.batch_size)  # per epoch
        # one for each step of this epoch, summed over the step's images
        self.losses = torch.zeros(self.steps, device=self.device)
        self.hits = torch.zeros((), dtype=torch.int64, device=self.device)
        self.progress = Progress(parent=origin.parent)
        self.model = origin.model
        self.optimizer = make_optimizer(self.model, parameters)
        if found := origin.checkpoint:
            self.progress = found.progress
            self.progress.times_resumed += not found.is_finished
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": found.optimizer, "param_groups": groups})
            lay_out_as_parameters(self.optimizer)
            if processes.is_main:  # the stored values are sums over the processes
                self.losses.copy_(found.losses)
                self.hits.copy_(found.hits)
        self._expect_one_position()
        if processes.is_main:
            remove_temporary(parameters.checkpoint_folder)
            remove_temporary(parameters.record_folder)
        self.recorder = Recorder(parameters, data, processes, self.model)
        self.snapshot_every = snapshot_interval(self.model, parameters.epochs)
        self._prepare()
        count, progress = len(data.train), self.progress
        done = progress.epoch * count + min(progress.step * parameters.batch_size, count)
        total, unit = parameters.epochs * count, {"unit": " images", "unit_scale": True}
        quiet = None if processes.is_main else True  # None: shown only in a terminal or a notebook
        self.bar = tqdm(desc="training", total=total, initial=done, disable=quiet, **unit)

    # --- the loop ---

    def run(self, received: list[int], keep_after: Collection[int] = ()) -> None:
        """Train to the last epoch and write checkpoints; stop early once a signal is `received`.

        After each epoch in `keep_after`, the weights are stored for other runs to start from.
        """
        progress, every = self.progress, self.parameters.checkpoint_every
        if not progress.snapshots:  # a new run
            self._keep_state(keep_after)
        if progress.epoch < self.parameters.epochs:
            self.recorder.partial("running", progress)
        while progress.epoch < self.parameters.epochs:
            start = time.perf_counter()
            before, trained = progress.seconds, progress.training_seconds
            for batch in self._batches_left():
                self.train_step(*batch)
                progress.seconds = before + time.perf_counter() - start
                progress.training_seconds = trained + time.perf_counter() - start
                if self._agreed_to_stop(received):
                    self._stop(received)
            self._check_losses()  # waits for the device, so that the time is correct
            progress.training_seconds = trained + time.perf_counter() - start
            test_loss, test_accuracy = self.evaluate()
            if not math.isfinite(test_loss):
                self._give_up(f"the test loss is {test_loss} after epoch {progress.epoch + 1}")
            progress.seconds = before + time.perf_counter() - start
            self._finish_epoch(test_loss, test_accuracy)
            self._keep_state(keep_after)
            last = progress.epoch == self.parameters.epochs
            if every and (progress.epoch % every == 0 or last):
                self._checkpoint()
            self.recorder.partial("running", progress)

    def finish(self, measured: Mapping[str, Any]) -> RunRecord:
        """Write and return the complete record, including the values `measured` after training."""
        if measured:
            self.progress.parent = {**(self.progress.parent or {}), **measured}
        return self.recorder.finish(self.progress)

    def _batches_left(self) -> Iterator[tuple[Tensor, Tensor, Tensor, int]]:
        """Yield this process's share of each remaining batch of the epoch.

        A share consists of the indices of its images, the corners of their crops, whether each is
        mirrored, and the size of the whole batch.
        """
        size = self.parameters.batch_size
        generator = torch.Generator().manual_seed(self._seed("epoch", self.progress.epoch))
        plan = self.data.train.shuffled(generator, self.parameters.augment)
        share = slice(self.processes.index, None, self.processes.count)
        while self.progress.step < self.steps:
            whole = [part[self.progress.step * size :][:size] for part in plan]
            index, corner, mirrored = (part[share] for part in whole)
            yield index, corner, mirrored, len(whole[0])

    def train_step(self, index: Tensor, corner: Tensor, mirrored: Tensor, size: int) -> None:
        """Perform one training step on this process's share of a batch of `size` images.

        The share consists of the images with the indices `index` `(n,)`, cropped at `corner`
        `(n, 2)` and mirrored where `mirrored` `(n,)` is true.
        """
        epoch, step = self.progress.epoch, self.progress.step
        torch.manual_seed(self._seed("step", epoch, step, self.processes.index))
        torch.compiler.cudagraph_mark_step_begin()
        set_rate(self.optimizer, self.parameters.learning_rate_at(epoch, step, self.steps))
        self.network.train()
        parts = [values.split(self.micro_batch) for values in (index, corner, mirrored)]
        for number, part in enumerate(zip(*parts, strict=True), start=1):
            images, labels = self.data.train.windows(*part)
            # processes exchange their gradients only after the last part
            with nullcontext() if number == len(parts[0]) else self.without_exchange():
                with autocast(self.device, self.parameters.precision):
                    logits = self.network(images).float()
                smoothing = self.parameters.label_smoothing
                loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
                # averaged over the processes, this gives the mean over the whole batch
                (loss * (self.processes.count / size)).backward()
            self.losses[step] += loss.detach()
            self.hits += (logits.argmax(dim=1) == labels).sum()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.step += 1
        if self.device.type == "cpu" or self.progress.step % 50 == 0:
            self._check_losses()
        self.bar.update(size)

    def _seed(self, *parts: int | str) -> int:
        text = repr((self.parameters.seed, *parts))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")

    def evaluate(self) -> tuple[float, float]:
        """Return the test cross-entropy and accuracy, computed jointly by all processes."""
        precision = self.parameters.precision
        return evaluate(self.forward, self.data.test, precision, self.processes)

    def _finish_epoch(self, test_loss: float, test_accuracy: float) -> None:
        progress, count = self.progress, len(self.data.train)
        losses, hits = self.processes.total(self.losses.double()), self.processes.total(self.hits)
        entry = {
            "epoch": progress.epoch + 1,
            "lr": self.parameters.learning_rate_at(progress.epoch, self.steps - 1, self.steps),
            "train_loss": losses.sum().item() / count,
            "train_accuracy": hits.item() / count,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "seconds": round(progress.seconds, 3),
        }
        progress.metrics.append(entry)
        progress.epoch, progress.step = progress.epoch + 1, 0
        self.losses.zero_()
        self.hits.zero_()
        shown = {"epoch": f"{progress.epoch}/{self.parameters.epochs}"}
        shown |= {"loss": f"{entry['train_loss']:.3f}", "accuracy": f"{test_accuracy:.4f}"}
        self.bar.set_postfix(shown)

    def _keep_state(self, keep_after: Collection[int]) -> None:
        """Store a snapshot of the heads and, for other runs, the weights, if they are due."""
        epoch = self.progress.epoch
        if epoch in keep_after and self.processes.is_main:
            identity = self.parameters.identity()
            self.checkpoints.keep_weights(epoch, named_weights(self.model), identity)
        if epoch % self.snapshot_every == 0 or epoch == self.parameters.epochs:
            self.progress.snapshots[epoch] = snapshot(self.model)

    # --- when training must stop ---

    def _check_losses(self) -> None:
        """Wait for the device and raise RuntimeError if a loss of this epoch is not finite."""
        step = self.progress.step
        if torch.isfinite(self.losses[max(0, step - 50) : step]).all():
            return
        bad = int((~torch.isfinite(self.losses[:step])).nonzero()[0])
        where = f"epoch {self.progress.epoch + 1}, step {bad + 1}"
        self._give_up(f"the loss is {self.losses[bad].item()} in {where}")

    def _give_up(self, what: str) -> None:
        last = next(iter(self.checkpoints.paths()), "none")
        self.recorder.partial("stopped", self.progress)
        raise RuntimeError(f"{what}; last good checkpoint: {last}; try a lower learning_rate")

    def _agreed_to_stop(self, received: list[int]) -> bool:
        """Return whether any process received a signal; all processes ask at the same steps."""
        if self.processes.count == 1:
            return bool(received)
        if self.progress.step % 50 and self.progress.step < self.steps:
            return False
        return any(self.processes.each(len(received)))

    def _stop(self, received: list[int]) -> None:
        self._check_losses()
        written = "checkpoints are off"
        if self.parameters.checkpoint_every:
            what = "a checkpoint was" if self._checkpoint() else "no checkpoint could be"
            how = "the same command continues from the last one"
            how = how if self.parameters.resume else "resume = True continues from it"
            written = f"{what} written; {how}"
        self.recorder.partial("stopped", self.progress)
        self.processes.wait()  # else an early exit would look like a failure and end the rest
        number = received[0] if received else signal.SIGTERM
        where = f"epoch {self.progress.epoch + 1}, step {self.progress.step}"
        raise Interrupted(f"stopped by {signal.Signals(number).name} in {where}; {written}", number)

    # --- starting and continuing ---

    def _prepare(self) -> None:
        """Create the compiled and parallel forms of the model, which share its weights."""
        if self.device.type == "cpu":
            keep_freed_memory()
        else:
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = self.parameters.precision != "float32"
        fitting = micro_batch(self.model, self.parameters, self.processes)
        self.micro_batch = self.parameters.micro_batch or fitting
        self.forward: nn.Module = self.model
        if (mode := self.parameters.compile) != "off":
            torch.compiler.reset()  # code compiled for other models counts towards a limit
            self.forward = cast(nn.Module, torch.compile(self.model, mode=mode, dynamic=False))
        self.network, self.without_exchange = self.forward, nullcontext
        if self.processes.count > 1:
            self.network = DistributedDataParallel(self.forward)
            self.without_exchange = self.network.no_sync

    def _checkpoint(self) -> bool:
        """Write a checkpoint from the first process; return False if writing failed."""
        losses = self.processes.total(self.losses.clone())
        hits = self.processes.total(self.hits.clone())
        if not self.processes.is_main:
            return True
        run, weights = self.parameters.identity(), named_weights(self.model)
        state = self.optimizer.state_dict()["state"]
        heads = heads_per_layer(self.model) if self.progress.parent else None
        checkpoint = Checkpoint(run, self.progress, weights, state, losses, hits, heads)
        return self.checkpoints.write(self._steps_done(), checkpoint)

    def _expect_one_position(self) -> None:
        """Raise ValueError if processes with separate folders continue from different steps."""
        positions = self.processes.each(self._steps_done())
        if len(set(positions)) > 1:
            raise ValueError(
                f"the processes found different checkpoints (steps done: {positions}): their"
                " folders must be a single one, shared by the machines; set checkpoints to it (now"
                f" {self.parameters.checkpoint_folder})"
            )

    def _steps_done(self) -> int:
        return self.progress.epoch * self.steps + self.progress.step


# --- the optimizer, and how much memory a step touches ---


def make_optimizer(model: nn.Module, parameters: RunParameters) -> torch.optim.Optimizer:
    """Return an SGD or AdamW optimizer with parameter groups for positions and normalisation.

    Position parameters have their own learning rate and no weight decay. The shifts of batch
    normalisation have their own learning rate but the same weight decay per step as the weights.
    """
    position = [p for name, p in model.named_parameters() if name.endswith(POSITION_PARAMETERS)]
    norms = [m.bias for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    apart = norms if parameters.norm_rate != 1 else []
    chosen = {id(parameter) for parameter in position + apart}
    weights = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    decay, rate = parameters.weight_decay, parameters.norm_rate
    groups = [{"params": weights, "weight_decay": decay, "factor": 1.0}]
    if position:
        groups.append({"params": position, "weight_decay": 0.0, "factor": parameters.position_rate})
    if apart:
        groups.append({"params": apart, "weight_decay": decay / rate, "factor": rate})
    options = {"lr": parameters.learning_rate, "fused": next(model.parameters()).is_cuda}
    if parameters.optimizer == "adamw":
        return torch.optim.AdamW(groups, **options)
    nesterov = parameters.optimizer == "nesterov"
    return torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=nesterov, **options)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of each parameter group to `rate` times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["factor"]


def lay_out_as_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Give the tensors in an optimizer's state the same strides as its parameters.

    Files do not store strides, but fused optimizers need them on a GPU, where parameters are
    channels-last.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value.shape == parameter.shape:
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def micro_batch(model: nn.Module, parameters: RunParameters, processes: Processes) -> int:
    """Return how many images to process at a time, dividing a batch into parts of similar size.

    On a CPU, memory access dominates the time of a step, so a layer's largest tensor, which holds
    the values of all heads, is limited to 32 MiB. The whole batch is processed at once on other
    devices, and also on a CPU if its images share random numbers (attention dropout) or statistics
    (batch normalisation).
    """
    whole, heads = math.ceil(parameters.batch_size / processes.count), heads_per_layer(model)
    if processes.device.type != "cpu" or parameters.attention_dropout or not heads:
        return whole
    pixels = (DATASETS[parameters.dataset].image_size // parameters.pooling) ** 2
    fit = max(1, LARGEST_BLOCK // (4 * max(1, *heads) * pixels * parameters.hidden))
    return math.ceil(whole / math.ceil(whole / fit))
