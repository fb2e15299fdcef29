"""The loop: an epoch, a step, and the run around them.

Everything random in a step is a function of the seed, the epoch and the step (and, for dropout, the
process), so that a run that was killed and resumed is, on a CPU, bit for bit the run that was not.
"""

import copy
import hashlib
import math
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from ..data import Dataset, Split, load_dataset
from ..models import SPECS, SmallCNN
from ..runs.parameters import RunParameters, build_network
from ..runs.record import RunRecord
from ..runs.weights import named_weights, set_weights
from ..store import remove_temporary
from .checkpoint import Checkpoint, Checkpoints, Progress
from .evaluation import evaluate
from .lineage import from_another, what_is_there
from .memory import heads_per_layer, keep_freed_memory, micro_batch
from .optimizer import make_optimizer, restore, set_rate
from .processes import Interrupted, Processes, stop_signals
from .recorder import Recorder


@dataclass(frozen=True)
class Run:
    """A finished run: its record (None on all but the first of several processes) and, where its
    weights are at hand, the trained model, in evaluation mode on the CPU."""

    record: RunRecord | None
    model: nn.Module | None
    metrics: list[dict[str, float]]


def train(parameters: RunParameters, dataset: Dataset | None = None) -> Run:
    """Train a model, or go on with a run that was interrupted, and write its record.

    The same parameters on the same machine give the same metrics, on a CPU bit for bit. ValueError
    when the folders hold another run, RuntimeError when the loss is not finite, `Interrupted` after
    SIGINT or SIGTERM.
    """
    processes = Processes.join(parameters.device)
    parameters = parameters.on(processes.device.type)
    checkpoints = Checkpoints(parameters.checkpoint_folder)
    found = what_is_there(parameters, checkpoints)
    if isinstance(found, RunRecord):
        return Run(found, None, found.metrics)
    dataset = dataset or load_dataset(parameters.dataset, parameters.data_root or None)
    training = Training(parameters, dataset, processes, checkpoints, found)
    with stop_signals() as received, training.bar:
        training.run(received)
    record = training.recorder.finish()
    processes.wait()
    return Run(record, copy.deepcopy(training.model).cpu().eval(), training.progress.metrics)


class Training:
    """A run under way: the model, its optimizer, and how far they are."""

    def __init__(
        self,
        parameters: RunParameters,
        dataset: Dataset,
        processes: Processes,
        checkpoints: Checkpoints,
        found: Checkpoint | None = None,
        model: nn.Module | None = None,
    ):
        """`found`: the checkpoint to go on from. `model`: to start from, else the one that the
        parameters describe."""
        self.parameters, self.processes, self.checkpoints = parameters, processes, checkpoints
        self.device = processes.device
        self.data = Split.of(dataset, parameters, self.device)
        self.steps = math.ceil(len(self.data.train) / parameters.batch_size)  # per epoch
        self.progress = found.progress if found else Progress()
        # of this epoch's steps, summed over their images
        self.losses = torch.zeros(self.steps, device=self.device)
        self.hits = torch.zeros((), dtype=torch.int64, device=self.device)
        if processes.is_main:
            remove_temporary(checkpoints.folder)
            remove_temporary(parameters.record_folder)
        self.model = processes.place(model or self._start(dataset, found))
        self.optimizer = make_optimizer(self.model, parameters)
        if found:
            self._restore(found)
        self._expect_one_position()
        self.recorder = Recorder(parameters, self.data, processes, self.model, self.progress)
        if not found:
            self.recorder.take_snapshot()
        self._prepare()
        total, done = parameters.epochs * len(self.data.train), self._images_done()
        # None: quiet unless it is a terminal or a notebook
        quiet = None if processes.is_main else True
        self.bar = tqdm(
            total=total,
            initial=done,
            desc="training",
            unit=" images",
            unit_scale=True,
            disable=quiet,
        )

    # --- the loop ---

    def run(self, received: list[int]) -> None:
        """From where the run is to its last epoch, with checkpoints on the way, unless a signal is
        received."""
        progress, every = self.progress, self.parameters.checkpoint_every
        if progress.epoch < self.parameters.epochs:
            self.recorder.partial("running")
        while progress.epoch < self.parameters.epochs:
            start = time.perf_counter()
            before, trained = progress.seconds, progress.training_seconds
            for batch in self._batches_left():
                self.train_step(*batch)
                progress.seconds = before + time.perf_counter() - start
                progress.training_seconds = trained + time.perf_counter() - start
                if self._agreed_to_stop(received):
                    self._stop(received)
            self._check_losses()  # waits for the device, so that the clock is right
            progress.training_seconds = trained + time.perf_counter() - start
            test_loss, test_accuracy = self.evaluate()
            if not math.isfinite(test_loss):
                self._give_up(f"the test loss is {test_loss} after epoch {progress.epoch + 1}")
            progress.seconds = before + time.perf_counter() - start
            self._finish_epoch(test_loss, test_accuracy)
            last = progress.epoch == self.parameters.epochs
            if every and (progress.epoch % every == 0 or last):
                self._checkpoint()
            self.recorder.partial("running")

    def _batches_left(self) -> Iterator[tuple[Tensor, Tensor, Tensor, int]]:
        """This process's share of the epoch's batches, from the step where the run is: indices,
        windows, size of the whole."""
        seed, size = self.parameters.seed, self.parameters.batch_size
        generator = torch.Generator().manual_seed(_seed(seed, "epoch", self.progress.epoch))
        plan = self.data.train.shuffled(generator, self.parameters.augment)
        share = slice(self.processes.index, None, self.processes.count)
        while self.progress.step < self.steps:
            whole = [part[self.progress.step * size :][:size] for part in plan]
            index, corner, mirrored = (part[share] for part in whole)
            yield index, corner, mirrored, len(whole[0])

    def train_step(self, index: Tensor, corner: Tensor, mirrored: Tensor, size: int) -> None:
        """One step, on this process's images of a batch of `size`: windows of them at `corner`,
        `mirrored` where told."""
        epoch, step = self.progress.epoch, self.progress.step
        torch.manual_seed(_seed(self.parameters.seed, "step", epoch, step, self.processes.index))
        torch.compiler.cudagraph_mark_step_begin()
        set_rate(self.optimizer, self.parameters.learning_rate_at(epoch, step, self.steps))
        self.network.train()
        parts = list(
            zip(
                *(tensor.split(self.micro_batch) for tensor in (index, corner, mirrored)),
                strict=True,
            )
        )
        for number, part in enumerate(parts, start=1):
            images, labels = self.data.train.windows(*part)
            with self._gradients_shared(number == len(parts)):
                with self._autocast():
                    logits = self.network(images).float()
                smoothing = self.parameters.label_smoothing
                loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
                # the processes' gradients are averaged: together this makes the mean over the whole
                # batch
                (loss * (self.processes.count / size)).backward()
            self.losses[step] += loss.detach()
            self.hits += (logits.argmax(dim=1) == labels).sum()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.step += 1
        if self.device.type == "cpu" or self.progress.step % 50 == 0:
            self._check_losses()
        self.bar.update(size)

    def _gradients_shared(self, now: bool) -> AbstractContextManager:
        """Of several processes: only after the last part of a batch do they exchange their
        gradients."""
        if now or not isinstance(self.network, DistributedDataParallel):
            return nullcontext()
        return self.network.no_sync()

    def _autocast(self) -> torch.autocast:
        low = self.parameters.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=low)

    def evaluate(self) -> tuple[float, float]:
        """Mean cross-entropy and accuracy on the test images, shared between the processes."""
        return evaluate(self.forward, self.data.test, self._autocast, self.processes)

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
        self.recorder.take_snapshot()
        shown = {"epoch": f"{progress.epoch}/{self.parameters.epochs}"}
        shown |= {"loss": f"{entry['train_loss']:.3f}", "accuracy": f"{test_accuracy:.4f}"}
        self.bar.set_postfix(shown)

    # --- when it must not go on ---

    def _check_losses(self) -> None:
        """RuntimeError when a loss of this epoch is not finite. This waits for the device."""
        step = self.progress.step
        if torch.isfinite(self.losses[max(0, step - 50) : step]).all():
            return
        bad = int((~torch.isfinite(self.losses[:step])).nonzero()[0])
        where = f"epoch {self.progress.epoch + 1}, step {bad + 1}"
        self._give_up(f"the loss is {self.losses[bad].item()} in {where}")

    def _give_up(self, what: str) -> None:
        last = next(iter(self.checkpoints.paths()), "none")
        self.recorder.partial("stopped")
        raise RuntimeError(f"{what}; last good checkpoint: {last}; try a lower learning_rate")

    def _agreed_to_stop(self, received: list[int]) -> bool:
        """Whether a signal arrived at any of the processes, which ask at the same steps."""
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
            how = "the same command goes on from the last one"
            how = how if self.parameters.resume else "resume = True goes on from it"
            written = f"{what} written; {how}"
        self.recorder.partial("stopped")
        self.processes.wait()  # one that ends is taken as a failure, and the others are killed
        number = received[0] if received else signal.SIGTERM
        where = f"epoch {self.progress.epoch + 1}, step {self.progress.step}"
        raise Interrupted(f"stopped by {signal.Signals(number).name} in {where}; {written}", number)

    def _expect_one_position(self) -> None:
        """ValueError when several processes go on from different steps, as when they do not share
        the folder of checkpoints."""
        positions = self.processes.each(self._steps_done())
        if len(set(positions)) > 1:
            raise ValueError(
                f"the processes found different checkpoints (steps done: {positions}): their"
                " folders must be one, shared between the machines; name it by checkpoints (now"
                f" {self.parameters.checkpoint_folder})"
            )

    # --- the start, and going on ---

    def _start(self, dataset: Dataset, found: Checkpoint | None) -> nn.Module:
        torch.manual_seed(self.parameters.seed)
        if SPECS[self.parameters.model].parent and not found:
            model, origin = from_another(self.parameters, dataset, train, self._accuracy)
            self.progress.parent = origin
            return model
        model = build_network(self.parameters.model_dump(), found.heads if found else None)
        if isinstance(model, SmallCNN) and not found:
            count = min(model.WHITENED_BY, len(self.data.train))
            first = torch.arange(count, device=self.device)
            model.whiten(self.data.train.plain(first)[0].cpu())
        return model

    def _prepare(self) -> None:
        """Compiled and parallel forms of the model; they share its weights."""
        if self.device.type == "cpu":
            keep_freed_memory()
        else:
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = self.parameters.precision != "float32"
        fitting = micro_batch(self.model, self.parameters, self.processes)
        self.micro_batch = self.parameters.micro_batch or fitting
        self.forward: nn.Module = self.model
        if (mode := self.parameters.compile) != "off":
            torch.compiler.reset()  # another model's compiled code counts towards a limit
            self.forward = cast(nn.Module, torch.compile(self.model, mode=mode, dynamic=False))
        shared = self.processes.count > 1
        self.network = DistributedDataParallel(self.forward) if shared else self.forward

    def _accuracy(self, model: nn.Module) -> float:
        """Of a model that is not trained here, on the test images."""
        return evaluate(self.processes.place(model), self.data.test, self._autocast)[1]

    def _checkpoint(self) -> bool:
        """The first process writes it."""
        losses = self.processes.total(self.losses.clone())
        hits = self.processes.total(self.hits.clone())
        if not self.processes.is_main:
            return True
        checkpoint = Checkpoint(
            parameters=self.parameters.identity(),
            progress=self.progress,
            weights=named_weights(self.model),
            optimizer=self.optimizer.state_dict()["state"],
            losses=losses,
            hits=hits,
            heads=heads_per_layer(self.model) if self.progress.parent else None,
        )
        return self.checkpoints.write(self._steps_done(), checkpoint)

    def _restore(self, found: Checkpoint) -> None:
        set_weights(self.model, found.weights)
        restore(self.optimizer, found.optimizer)
        progress, epochs = self.progress, self.parameters.epochs
        progress.times_resumed += not found.is_finished
        if self.processes.is_main:
            self.losses.copy_(found.losses)  # they are sums over the processes
            self.hits.copy_(found.hits)
            what = "finished" if found.is_finished else "resumed"
            step = f", step {progress.step}" if progress.step else ""
            at = f"epoch {progress.epoch} of {epochs}{step}"
            print(f"{self.parameters.name}: {what} at {at} ({found.path})", flush=True)

    def _steps_done(self) -> int:
        return self.progress.epoch * self.steps + self.progress.step

    def _images_done(self) -> int:
        count = len(self.data.train)
        of_this_epoch = min(self.progress.step * self.parameters.batch_size, count)
        return self.progress.epoch * count + of_this_epoch


def _seed(*parts: int | str) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=7).digest(), "little")
