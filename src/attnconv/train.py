"""Training: the loop, evaluation, checkpoints and resuming. The only file that knows about devices and processes.

Everything random in a step is a function of the seed, the epoch and the step (and, for dropout, the process), so that a run
that was killed and resumed is, on a CPU, bit for bit the run that was not.
"""

import copy
import ctypes
import hashlib
import math
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import PartialState, notebook_launcher
from accelerate.utils import is_cuda_available
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from .checkpoints import Checkpoints
from .config import MOMENTUM, PLACE, RunParameters, build_network
from .data import IMAGE_SIZES, Batches, Dataset, load_dataset, load_photograph
from .maps import MEAN_IMAGES, SINGLE_IMAGES, content_maps, single_scores
from .models import SelfAttentionNet, prune_degenerate_heads, snapshot
from .runs import RunRecord, load_run, provenance, write_run
from .store import DamagedFile, remove_temporary
from .weights import named_weights, set_weights, write_weights

POSITION_PARAMETERS = ("centers", "spread", "root")
SNAPSHOTS_SIZE = 2_000_000  # bytes: where a snapshot every epoch would be more, every second or third is kept
OF_PARENT = (
    "dataset",
    "tier",
    "seed",
    "epochs",
    "train_images",
    "held_out",
    "num_layers",
    "hidden",
    "intermediate",
    "pooling",
)  # must be as asked
LARGEST_BLOCK = 32 * 2**20  # bytes; see _micro_batch
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt(3)
FOLDERS = {"runs", "checkpoints", "data_root"}  # of one machine: not for the record


@dataclass(frozen=True)
class Run:
    """A finished run: its record (None on all but the first of several processes) and, where its weights are at hand, the
    trained model, in evaluation mode on the CPU."""

    record: RunRecord | None
    model: nn.Module | None
    metrics: list[dict[str, float]]


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM (its number is `signal`) arrived, and the step under way was finished."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.signal = number


@dataclass(frozen=True)
class Processes:
    """The processes that train together, as torchrun, accelerate launch or `launch` started them; else one."""

    index: int
    count: int
    device: torch.device

    @classmethod
    def join(cls, device: str) -> "Processes":
        kind = _device_type(device)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            state = PartialState(cpu=kind == "cpu")
            return cls(state.process_index, state.num_processes, state.device)
        return cls(0, 1, torch.device(kind))

    @property
    def is_main(self) -> bool:
        return self.index == 0

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over the processes."""
        if self.count > 1:
            torch.distributed.all_reduce(value)
        return value


def _device_type(device: str) -> str:
    there = is_cuda_available()  # asks the driver without starting CUDA, which forked processes could not use any more
    if device == "cuda" and not there:
        raise ValueError("device = 'cuda': torch finds no CUDA GPU here; expected one, or device = 'cpu'")
    return ("cuda" if there else "cpu") if device == "auto" else device


def launch(parameters: RunParameters, dataset: Dataset | None = None) -> Run:
    """Train with `parameters.processes` processes of this machine; from a notebook too (Accelerate's launcher)."""
    if parameters.processes == 1 or "WORLD_SIZE" in os.environ:  # torchrun or accelerate launch has started them
        return train(parameters, dataset)
    _device_type(parameters.device)
    try:
        notebook_launcher(train, (parameters, dataset), num_processes=parameters.processes, use_port=_free_port())
    except SignalException as interruption:  # it has told the processes and waited for them
        raise Interrupted(f"stopped by {interruption.sigval.name}", interruption.sigval) from None
    record = load_run(parameters.record_folder)
    return Run(record, None, record.metrics)


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def train(parameters: RunParameters, dataset: Dataset | None = None) -> Run:
    """Train a model, or go on with a run that was interrupted, and write its record.

    The same parameters on the same machine give the same metrics, on a CPU bit for bit. ValueError when the folders hold
    another run, RuntimeError when the loss is not finite, `Interrupted` after SIGINT or SIGTERM.
    """
    processes = Processes.join(parameters.device)
    parameters = parameters.on(processes.device.type)
    checkpoints = Checkpoints(parameters.checkpoint_folder)
    found = _what_is_there(parameters, checkpoints)
    if isinstance(found, RunRecord):
        return Run(found, None, found.metrics)
    dataset = dataset or load_dataset(parameters.dataset, parameters.data_root or None)
    training = Training(parameters, dataset, processes, checkpoints, found)
    try:
        with _signals() as received:
            training.run(received)
    finally:
        training.bar.close()
    return Run(training.finish(), copy.deepcopy(training.model).cpu().eval(), training.metrics)


def _what_is_there(parameters: RunParameters, checkpoints: Checkpoints) -> tuple | RunRecord | None:
    """The newest checkpoint of this run, or its record when that is all there is, or nothing. ValueError for another run's."""
    if not parameters.resume:
        if int(os.environ.get("RANK", "0")) == 0:
            checkpoints.clear()
        return None
    record = None
    try:
        record = load_run(parameters.record_folder)
    except FileNotFoundError:
        pass
    except DamagedFile as error:  # as a partial one that was being written when the run was killed
        warnings.warn(f"{error}; it will be written anew", stacklevel=2)
    if record:
        _expect_same_run(parameters, record.info.parameters, record.folder)
    if found := checkpoints.read():
        _expect_same_run(parameters, found[2]["parameters"], found[0])
        return found
    if record and record.info.status == "finished":
        print(f"{parameters.name} is finished: this is its record in {record.folder}; resume = False repeats the run", flush=True)
        return record
    return None


def _expect_same_run(parameters: RunParameters, other: dict[str, Any], where) -> None:
    ours, theirs = parameters.identity(), {name: value for name, value in other.items() if name not in PLACE}
    if names := sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)):
        differences = ", ".join(f"{name} = {theirs.get(name)!r} (asked for: {ours.get(name)!r})" for name in names)
        raise ValueError(
            f"{where} is of a run with other parameters: {differences}. Name other folders with runs and checkpoints, or set"
            " resume to False to replace it"
        )


class Training:
    """A run under way: the model, its optimizer, and how far they are."""

    def __init__(
        self,
        parameters: RunParameters,
        dataset: Dataset,
        processes: Processes,
        checkpoints: Checkpoints,
        found: tuple | None,
    ):
        self.parameters, self.dataset, self.processes, self.checkpoints = parameters, dataset, processes, checkpoints
        self.provenance = provenance(processes.device, processes.count)
        self.device = processes.device
        used = dataset.hold_out(parameters.held_out).subset(parameters.train_images, parameters.test_images)
        padding = 4 if parameters.augment else 0
        self.train_batches = Batches(used, used.train_images, used.train_labels, self.device, padding)
        self.test_batches = Batches(used, used.test_images, used.test_labels, self.device)
        self.steps = math.ceil(len(self.train_batches) / parameters.batch_size)  # per epoch
        if processes.is_main:
            remove_temporary(checkpoints.folder)
            remove_temporary(parameters.record_folder)
        self.epoch = self.step = 0  # done: whole epochs, and steps of the next one
        self.metrics: list[dict[str, float]] = []
        self.snapshots: dict[int, dict[str, Tensor]] = {}  # by number of epochs done
        self.losses = torch.zeros(self.steps, device=self.device)  # of this epoch's steps, summed over their images
        self.hits = torch.zeros((), dtype=torch.int64, device=self.device)
        self.seconds = self.training_seconds = 0.0
        self.times_resumed, self.parent = 0, None
        self.model = self._model(found)
        self.optimizer = _optimizer(self.model, parameters, self.device)
        if found:
            self._restore(*found)
        else:
            self.snapshots[0] = snapshot(self.model)
        self.finished_before = self.epoch == parameters.epochs
        self._expect_one_position()
        self.snapshot_every = _snapshot_every(self.snapshots[0], parameters.epochs)
        self._prepare()
        total, done = parameters.epochs * len(self.train_batches), self._images_done()
        quiet = None if processes.is_main else True  # None: quiet unless it is a terminal or a notebook
        self.bar = tqdm(total=total, initial=done, desc="training", unit=" images", unit_scale=True, disable=quiet)

    def _model(self, found: tuple | None) -> nn.Module:
        parameters, metadata = self.parameters, found[2] if found else {}
        torch.manual_seed(parameters.seed)
        if parameters.model == "sa-generalized-pruned" and not found:
            model, self.parent = _pruned_parent(parameters, self.dataset)
        else:
            model = build_network(parameters.model_dump(), metadata.get("heads"))
        if self.device.type == "cuda":
            if self.processes.count > 1:
                model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            model = model.to(memory_format=torch.channels_last)
        return model.to(self.device)

    def _prepare(self) -> None:
        """Compiled and parallel forms of the model; they share its weights."""
        if self.device.type == "cpu":
            _keep_freed_memory()
        else:
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = self.parameters.precision != "float32"
        self.micro_batch = self.parameters.micro_batch or _micro_batch(self.model, self.parameters, self.processes)
        mode = self.parameters.compile
        if mode != "off":
            torch.compiler.reset()  # another model's compiled code counts towards a limit
        self.forward = self.model if mode == "off" else torch.compile(self.model, mode=mode, dynamic=False)
        self.network = DistributedDataParallel(self.forward) if self.processes.count > 1 else self.forward
        if self.parent and "test_accuracy_after_pruning" not in self.parent:
            self.parent["test_accuracy_after_pruning"] = self.evaluate()[1]

    # --- the loop ---

    def run(self, received: list[int]) -> None:
        """From where the run is to its last epoch, with checkpoints on the way, unless a signal is received."""
        every = self.parameters.checkpoint_every
        if self.epoch < self.parameters.epochs:
            self._write_partial("running")
        while self.epoch < self.parameters.epochs:
            start = time.perf_counter()
            before, trained = self.seconds, self.training_seconds
            for batch in self._batches_left():
                self._train_step(*batch)
                self.seconds = before + time.perf_counter() - start
                self.training_seconds = trained + time.perf_counter() - start
                if self._agreed_to_stop(received):
                    self._stop(received)
            self._check_losses()  # waits for the device, so that the clock is right
            self.training_seconds = trained + time.perf_counter() - start
            self._finish_epoch(before, start)
            last = self.epoch == self.parameters.epochs
            if every and (self.epoch % every == 0 or last):
                self._checkpoint()
            self._write_partial("running")

    def _batches_left(self) -> Iterator[tuple[Tensor, Tensor, Tensor, int]]:
        """This process's share of the epoch's batches, from the step where the run is: indices, windows, size of the whole."""
        generator = torch.Generator().manual_seed(_seed(self.parameters.seed, "epoch", self.epoch))
        count = len(self.train_batches)
        order = torch.randperm(count, generator=generator)
        corner, mirrored = self.train_batches.random_windows(count, generator)
        corner, mirrored = (corner, mirrored) if self.parameters.augment else (corner * 0, mirrored & False)
        plan = [tensor.to(self.device) for tensor in (order, corner, mirrored)]
        size, share = self.parameters.batch_size, slice(self.processes.index, None, self.processes.count)
        while self.step < self.steps:
            whole = slice(self.step * size, (self.step + 1) * size)
            yield *(tensor[whole][share] for tensor in plan), len(order[whole])

    def _train_step(self, index: Tensor, corner: Tensor, mirrored: Tensor, size: int) -> None:
        torch.manual_seed(_seed(self.parameters.seed, "step", self.epoch, self.step, self.processes.index))
        torch.compiler.cudagraph_mark_step_begin()
        rate = self.parameters.learning_rate_at(self.epoch, self.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        self.network.train()
        parts = list(zip(*(tensor.split(self.micro_batch) for tensor in (index, corner, mirrored)), strict=True))
        for number, part in enumerate(parts, start=1):
            images, labels = self.train_batches.windows(*part)
            with self._gradients_shared(number == len(parts)):
                with self._autocast():
                    logits = self.network(images).float()
                loss = F.cross_entropy(logits, labels, reduction="sum")
                # the processes' gradients are averaged: together this makes the mean over the whole batch
                (loss * (self.processes.count / size)).backward()
            self.losses[self.step] += loss.detach()
            self.hits += (logits.argmax(dim=1) == labels).sum()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        if self.device.type == "cpu" or self.step % 50 == 0:
            self._check_losses()
        self.bar.update(size)

    def _gradients_shared(self, now: bool):
        """Of several processes: only after the last part of a batch do they exchange their gradients."""
        return nullcontext() if now or self.processes.count == 1 else self.network.no_sync()

    def _check_losses(self) -> None:
        """RuntimeError when a loss of this epoch is not finite. On a GPU this waits for the device, so not at every step."""
        recent = self.losses[max(0, self.step - 50) : self.step]
        if torch.isfinite(recent).all():
            return
        bad = int((~torch.isfinite(self.losses[: self.step])).nonzero()[0])
        self._give_up(f"the loss is {self.losses[bad].item()} in epoch {self.epoch + 1}, step {bad + 1}")

    def _give_up(self, what: str) -> None:
        last = next(iter(self.checkpoints.paths()), "none")
        self._write_partial("stopped")
        raise RuntimeError(f"{what}; last good checkpoint: {last}; try a lower learning_rate")

    def _finish_epoch(self, before: float, start: float) -> None:
        count = len(self.train_batches)
        losses = self.processes.total(self.losses.double())
        hits = self.processes.total(self.hits)
        test_loss, test_accuracy = self.evaluate()
        if not math.isfinite(test_loss):
            self._give_up(f"the test loss is {test_loss} after epoch {self.epoch + 1}")
        self.seconds = before + time.perf_counter() - start
        entry = {
            "epoch": self.epoch + 1,
            "lr": self.parameters.learning_rate_at(self.epoch, self.steps - 1, self.steps),
            "train_loss": losses.sum().item() / count,
            "train_accuracy": hits.item() / count,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "seconds": round(self.seconds, 3),
        }
        self.metrics.append(entry)
        self.epoch, self.step = self.epoch + 1, 0
        self.losses.zero_()
        self.hits.zero_()
        if self.epoch % self.snapshot_every == 0 or self.epoch == self.parameters.epochs:
            self.snapshots[self.epoch] = snapshot(self.model)
        shown = {"loss": f"{entry['train_loss']:.3f}", "accuracy": f"{test_accuracy:.4f}"}
        self.bar.set_postfix(epoch=f"{self.epoch}/{self.parameters.epochs}", **shown)

    def evaluate(self) -> tuple[float, float]:
        """Mean cross-entropy and accuracy on the test images, shared between the processes."""
        return evaluate(self.forward, self.test_batches, self._autocast, self.processes)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.parameters.precision == "bfloat16")

    # --- interruptions, checkpoints and records ---

    def _agreed_to_stop(self, received: list[int]) -> bool:
        """Whether a signal arrived; of several processes, at any of them, asked at the same steps."""
        if self.processes.count == 1:
            return bool(received)
        if self.step % 50 and self.step < self.steps:
            return False
        return bool(self.processes.total(torch.tensor(float(bool(received)), device=self.device)))

    def _stop(self, received: list[int]) -> None:
        self._check_losses()
        written = "checkpoints are off"
        if self.parameters.checkpoint_every:
            written = "a checkpoint was written" if self._checkpoint() else "no checkpoint could be written"
            written += (
                "; the same command goes on from the last one" if self.parameters.resume else "; resume = True goes on from it"
            )
        self._write_partial("stopped")
        if self.processes.count > 1:
            torch.distributed.barrier()  # a process that ends is taken as a failure, and the others are killed
        number = received[0] if received else signal.SIGTERM
        name, where = signal.Signals(number).name, f"epoch {self.epoch + 1}, step {self.step}"
        raise Interrupted(f"stopped by {name} in {where}; {written}", number)

    def _checkpoint(self) -> bool:
        """Everything that the rest of the run depends on; the first process writes it."""
        losses, hits = self.processes.total(self.losses.clone()), self.processes.total(self.hits.clone())
        if not self.processes.is_main:
            return True
        tensors = {f"model.{name}": value for name, value in named_weights(self.model).items()}
        tensors |= {"epoch.losses": losses, "epoch.hits": hits}
        state = self.optimizer.state_dict()["state"]
        tensors |= {f"optimizer.{i}.{name}": value for i, entry in state.items() for name, value in entry.items()}
        for epoch, entry in self.snapshots.items():
            tensors |= {f"snapshot.{epoch}.{name}": value for name, value in entry.items()}
        metadata = {
            "parameters": self.parameters.identity(),
            "epoch": self.epoch,
            "step": self.step,
            "metrics": self.metrics,
            "snapshots": list(self.snapshots),
            "heads": _heads(self.model) if self.parent else None,
            "parent": self.parent,
            "seconds": self.seconds,
            "training_seconds": self.training_seconds,
            "times_resumed": self.times_resumed,
        }
        return self.checkpoints.write(self.epoch * self.steps + self.step, tensors, metadata)

    def _restore(self, path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        self.epoch, self.step, self.metrics = metadata["epoch"], metadata["step"], metadata["metrics"]
        self.seconds, self.training_seconds = metadata["seconds"], metadata["training_seconds"]
        self.parent = metadata["parent"]
        parts = _split(tensors)
        set_weights(self.model, parts["model"])
        state = {int(i): entry for i, entry in _split(parts.get("optimizer", {})).items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        _lay_out_as_parameters(self.optimizer)
        if self.processes.is_main:  # they are sums over the processes
            self.losses.copy_(parts["epoch"]["losses"])
            self.hits.copy_(parts["epoch"]["hits"])
        snapshots = _split(parts.get("snapshot", {}))
        self.snapshots = {epoch: snapshots.get(str(epoch), {}) for epoch in metadata["snapshots"]}
        finished = self.epoch == self.parameters.epochs
        self.times_resumed = metadata["times_resumed"] + (not finished)
        if self.processes.is_main:
            at = f"epoch {self.epoch} of {self.parameters.epochs}" + (f", step {self.step}" if self.step else "")
            print(f"{self.parameters.name}: {'finished' if finished else 'resumed'} at {at} ({path})", flush=True)

    def _expect_one_position(self) -> None:
        """ValueError when several processes go on from different steps, as when they do not share the folder of checkpoints."""
        if self.processes.count == 1:
            return
        done = torch.zeros(self.processes.count, dtype=torch.int64, device=self.device)
        done[self.processes.index] = self.epoch * self.steps + self.step
        positions = self.processes.total(done).tolist()
        if len(set(positions)) > 1:
            raise ValueError(
                f"the processes found different checkpoints (steps done: {positions}): their folders must be one, shared between"
                f" the machines; name it by checkpoints (now {self.parameters.checkpoint_folder})"
            )

    def _images_done(self) -> int:
        return self.epoch * len(self.train_batches) + min(self.step * self.parameters.batch_size, len(self.train_batches))

    def _write_partial(self, status: str) -> None:
        if not self.processes.is_main:
            return
        try:
            self._write(status, None)
        except OSError as error:  # a full disk: the run can still end well
            warnings.warn(f"the partial record in {self.parameters.record_folder} could not be written ({error})", stacklevel=2)

    def finish(self) -> RunRecord | None:
        """The whole record, written by the first process unless it is there; None on the others."""
        record = None
        if self.processes.is_main:
            if self.finished_before:  # then the record that is there is this run's, and tells where it was trained
                with suppress(FileNotFoundError, DamagedFile):
                    record = load_run(self.parameters.record_folder)
            if not record or record.info.status != "finished":
                record = self._write("finished", self._attention())
        if self.processes.count > 1:
            torch.distributed.barrier()
        return record

    def _write(self, status: str, attention: dict[str, Tensor] | None) -> RunRecord:
        done = len(self.metrics) * len(self.train_batches)
        info = {
            "status": status,
            "parameters": self.parameters.model_dump(exclude=FOLDERS),
            "dataset": {
                "name": self.dataset.name,
                "fingerprint": self.dataset.fingerprint,
                "train_images": len(self.train_batches),
                "test_images": len(self.test_batches),
            },
            "parameter_count": sum(parameter.numel() for parameter in self.model.parameters()),
            "wall_seconds": round(self.seconds, 3),
            "images_per_second": round(done / self.training_seconds, 1) if self.training_seconds else None,
            "times_resumed": self.times_resumed,
            "parent": self.parent,
        }
        if status == "finished" and self.parameters.keeps_weights:
            write_weights(self.parameters.record_folder, self.model, self._first_test_images())
        return write_run(self.parameters.record_folder, info | self.provenance, self.metrics, attention)

    def _first_test_images(self) -> dict[str, float]:
        """How many of the first test images the trained model gets right: what a reader of its weights can check quickly."""
        first = self.dataset.hold_out(self.parameters.held_out).subset(None, min(1000, len(self.test_batches)))
        _, accuracy = evaluate(self.model, Batches(first, first.test_images, first.test_labels, self.device))
        return {"first_test_images": len(first.test_labels), "accuracy": accuracy}

    def _attention(self) -> dict[str, Tensor]:
        """What the figures need: the snapshots over the epochs and, with content, maps of test images and photographs."""
        names = self.snapshots[0]
        attention = {"epochs": torch.tensor(list(self.snapshots))} if names else {}
        attention |= {name: torch.stack([entry[name] for entry in self.snapshots.values()]) for name in names}
        images = self.test_batches.plain(torch.arange(min(MEAN_IMAGES, len(self.test_batches)), device=self.device))[0]
        if maps := content_maps(self.model, images):
            attention |= maps | single_scores(self.model, images[:SINGLE_IMAGES], "image")
            if images.shape[1] == 3:
                photographs = torch.stack([load_photograph(name, tuple(images.shape[2:])) for name in ("china", "flower")])
                pixels = (photographs.permute(0, 3, 1, 2) * 255).round().to(torch.uint8)
                attention |= single_scores(self.model, self.dataset.normalise(pixels).to(self.device), "photograph")
        return attention


@torch.no_grad()
def evaluate(model: nn.Module, batches: Batches, autocast=nullcontext, processes: Processes | None = None) -> tuple[float, float]:
    """Mean cross-entropy, and the share of images whose largest logit is at the label. Leaves the model's mode as it was."""
    training = model.training
    model.eval()
    device = batches.labels.device
    mine = torch.arange(len(batches), device=device)
    mine = mine[processes.index :: processes.count] if processes else mine
    sums = torch.zeros(2, dtype=torch.float64, device=device)  # of the losses, of the hits
    for index in mine.split(500 if device.type == "cuda" else 100):
        images, labels = batches.plain(index)
        torch.compiler.cudagraph_mark_step_begin()
        with autocast():
            logits = model(images).float()
        sums += torch.stack([F.cross_entropy(logits, labels, reduction="sum"), (logits.argmax(dim=1) == labels).sum()])
    model.train(training)
    sums = processes.total(sums) if processes else sums
    loss, accuracy = (sums / len(batches)).tolist()
    return loss, accuracy


def _pruned_parent(parameters: RunParameters, dataset: Dataset) -> tuple[nn.Module, dict[str, Any]]:
    """The trained sa-generalized without its degenerate heads, and where it came from. It is trained first if need be."""
    parent = parameters.parent()
    found = Checkpoints(parent.checkpoint_folder).read()
    if found and _is_finished(found[2]) and all(found[2]["parameters"][name] == getattr(parent, name) for name in OF_PARENT):
        model, metrics = build_network(parent.model_dump()), found[2]["metrics"]
        set_weights(model, _split(found[1])["model"])
    else:
        print(f"{parameters.name} starts from {parent.name}, which is trained first: {parent.epochs} epochs", flush=True)
        run = train(parent, dataset)
        if run.model is None:
            raise ValueError(
                f"{parent.name} has a record in {run.record.folder} but no checkpoint in {parent.checkpoint_folder}: its weights"
                " are not at hand; repeat it with resume = False, or name the folder of its checkpoint by checkpoints"
            )
        model, metrics = run.model, run.metrics
    criterion = {"max_condition": parameters.max_condition, "min_eigenvalue": parameters.min_eigenvalue}
    pruned, removed = prune_degenerate_heads(model, **criterion)
    origin = {"run": parent.name, "epochs": parent.epochs, "test_accuracy": metrics[-1]["test_accuracy"]}
    return pruned, origin | {"removed_heads": removed} | criterion


def _micro_batch(model: nn.Module, parameters: RunParameters, processes: Processes) -> int:
    """How many images of a batch to take at a time, in about equal parts.

    On a CPU as many as keep a layer's largest tensor, the values of all heads, below 32 MiB: beyond, memory is what takes the
    time. Elsewhere, and where the images of a batch share what is random or measured (dropout of the attention, batch
    normalisation), all.
    """
    whole = math.ceil(parameters.batch_size / processes.count)
    if processes.device.type != "cpu" or parameters.attention_dropout or not isinstance(model, SelfAttentionNet):
        return whole
    pixels = (IMAGE_SIZES[parameters.dataset] // parameters.pooling) ** 2
    fit = max(1, LARGEST_BLOCK // (4 * max(1, *_heads(model)) * pixels * parameters.hidden))
    return math.ceil(whole / math.ceil(whole / fit))


def _keep_freed_memory() -> None:
    """Have glibc keep the memory of freed tensors for the next step. As it is set up it gives large blocks back to the system,
    and asks for them again page by page, which took about a quarter of a step where it was measured. No other C library has
    the call."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, 2**30)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)


def _is_finished(metadata: dict[str, Any]) -> bool:
    return metadata["epoch"] == metadata["parameters"]["epochs"]


def _optimizer(model: nn.Module, parameters: RunParameters, device: torch.device) -> torch.optim.Optimizer:
    position = [p for name, p in model.named_parameters() if name.rsplit(".", 1)[-1] in POSITION_PARAMETERS]
    chosen = {id(parameter) for parameter in position}
    weights = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    groups = [{"params": weights, "weight_decay": parameters.weight_decay, "factor": 1.0}]
    if position:
        groups.append({"params": position, "weight_decay": 0.0, "factor": parameters.position_rate})
    options = {"lr": parameters.learning_rate, "fused": device.type == "cuda"}
    return (
        torch.optim.SGD(groups, momentum=MOMENTUM, **options)
        if parameters.optimizer == "sgd"
        else torch.optim.AdamW(groups, **options)
    )


def _lay_out_as_parameters(optimizer: torch.optim.Optimizer) -> None:
    """A file keeps no strides, but fused optimisers want those of the parameter (channels last, on a GPU)."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if value.shape == parameter.shape:
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _heads(model: nn.Module) -> list[int]:
    return [getattr(attention, "encoding", attention).num_heads for attention in model.attentions]


def _split(tensors: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """`{"a.b": x}` as `{"a": {"b": x}}`."""
    parts: dict[str, dict[str, Any]] = {}
    for name, value in tensors.items():
        head, _, rest = name.partition(".")
        parts.setdefault(head, {})[rest] = value
    return parts


def _snapshot_every(first: dict[str, Tensor], epochs: int) -> int:
    size = sum(value.numel() * value.element_size() for value in first.values())
    return max(1, math.ceil(size * (epochs + 1) / SNAPSHOTS_SIZE))


def _seed(*parts: int | str) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=7).digest(), "little")


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The SIGINTs and SIGTERMs that arrive meanwhile, so that the step under way can finish and be saved.

    One stop may arrive twice (from the scheduler and through the launcher); a SIGINT two seconds later acts at once.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    first = time.monotonic()

    def remember(number: int, frame) -> None:
        nonlocal first
        if received and number == signal.SIGINT and time.monotonic() - first > 2:
            raise KeyboardInterrupt
        first = first if received else time.monotonic()
        received.append(number)

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
