"""A model in training: one step, the evaluation, and the optimizer."""

import hashlib
import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..accuracy import autocast, evaluate
from ..data import DATASETS, Split
from ..runs.history import heads_per_layer
from ..runs.parameters import MOMENTUM, RunParameters
from ..runs.weights import named_weights
from .checkpoint import Checkpoint, Progress
from .machine import Processes, keep_freed_memory
from .origin import Origin

# in pixels, or position scores; both change more than weights do and have no weight decay
POSITION_PARAMETERS = (".centers", ".spread", ".root", ".relative_position_bias_table")
LARGEST_BLOCK = 32 * 2**20  # largest tensor in a step on a CPU, in bytes
CHECK_EVERY = 50  # steps between two looks at the losses, and at signals with several processes


class NotFinite(RuntimeError):
    """Raised when a loss is not finite."""


@dataclass(frozen=True)
class Batch:
    """A process's share of a batch of `size` images.

    The share consists of the images with the indices `index` `(n,)`, cropped at `corner` `(n, 2)`
    and mirrored where `mirrored` `(n,)` is true.
    """

    index: Tensor
    corner: Tensor
    mirrored: Tensor
    size: int


class Learner:
    """The model, optimizer and progress of a run, which only this class's methods change."""

    def __init__(
        self, parameters: RunParameters, data: Split, processes: Processes, origin: Origin
    ):
        self.parameters = parameters
        self.data = data
        self.processes = processes
        self.device = processes.device
        self.steps = math.ceil(len(data.train) / parameters.batch_size)  # per epoch
        # one for each step of this epoch, summed over the step's images
        self.losses = torch.zeros(self.steps, device=self.device)
        self.hits = torch.zeros((), dtype=torch.int64, device=self.device)
        self.progress = Progress(parent=origin.parent)
        self.model = origin.model
        self.optimizer = make_optimizer(self.model, parameters)
        if origin.checkpoint:
            self._restore(origin.checkpoint)
        self._expect_one_position()
        self._prepare()

    # --- one epoch ---

    def batches_left(self) -> Iterator[Batch]:
        """Yield this process's share of each remaining batch of the epoch."""
        size = self.parameters.batch_size
        generator = torch.Generator().manual_seed(self._seed("epoch", self.progress.epoch))
        plan = self.data.train.shuffled(generator, self.parameters.augment)
        while self.progress.step < self.steps:
            whole = [part[self.progress.step * size :][:size] for part in plan]
            index, corner, mirrored = (part[self.processes.share] for part in whole)
            yield Batch(index, corner, mirrored, size=len(whole[0]))

    def train_step(self, batch: Batch) -> None:
        """Perform one training step on this process's share of a batch."""
        epoch = self.progress.epoch
        step = self.progress.step
        torch.manual_seed(self._seed("step", epoch, step, self.processes.index))
        torch.compiler.cudagraph_mark_step_begin()
        set_rate(self.optimizer, self.parameters.learning_rate_at(epoch, step, self.steps))
        self.network.train()
        smoothing = self.parameters.label_smoothing
        share = batch.index, batch.corner, batch.mirrored
        parts = list(zip(*(values.split(self.micro_batch) for values in share), strict=True))
        for part in parts:
            images, labels = self.data.train.windows(*part)
            # processes exchange their gradients only after the last part
            with nullcontext() if part is parts[-1] else self.without_exchange():
                with autocast(self.device, self.parameters.precision):
                    logits = self.network(images).float()
                loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
                # averaged over the processes, this gives the mean over the whole batch
                (loss * (self.processes.count / batch.size)).backward()
            self.losses[step] += loss.detach()
            self.hits += (logits.argmax(dim=1) == labels).sum()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.step += 1
        if self.device.type == "cpu" or self.progress.step % CHECK_EVERY == 0:
            self.check_losses()

    def _seed(self, *parts: int | str) -> int:
        text = repr((self.parameters.seed, *parts))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")

    def check_losses(self) -> None:
        """Wait for the device and raise `NotFinite` if a loss of this epoch is not finite."""
        step = self.progress.step
        if torch.isfinite(self.losses[max(0, step - CHECK_EVERY) : step]).all():
            return
        bad = int((~torch.isfinite(self.losses[:step])).nonzero()[0])
        where = f"epoch {self.progress.epoch + 1}, step {bad + 1}"
        raise NotFinite(f"the loss is {self.losses[bad].item()} in {where}")

    def agrees_to_stop(self, asked: bool) -> bool:
        """Return whether any process is asked to stop; all processes answer at the same steps."""
        if self.processes.count == 1:
            return asked
        if self.progress.step % CHECK_EVERY and self.progress.step < self.steps:
            return False
        return any(self.processes.each(asked))

    def evaluate(self) -> tuple[float, float]:
        """Return the test cross-entropy and accuracy, computed jointly by all processes.

        Raises `NotFinite` if the cross-entropy is not finite.
        """
        shared = {"share": self.processes.share, "total": self.processes.total}
        precision = self.parameters.precision
        loss, accuracy = evaluate(self.forward, self.data.test, precision, **shared)
        if not math.isfinite(loss):
            raise NotFinite(f"the test loss is {loss} after epoch {self.progress.epoch + 1}")
        return loss, accuracy

    def finish_epoch(self, test_loss: float, test_accuracy: float) -> None:
        """Add the metrics of an epoch to the progress and begin the next epoch."""
        progress = self.progress
        count = len(self.data.train)
        losses, hits = self._totals()
        entry = {
            "epoch": progress.epoch + 1,
            "lr": self.parameters.learning_rate_at(progress.epoch, self.steps - 1, self.steps),
            "train_loss": losses.double().sum().item() / count,
            "train_accuracy": hits.item() / count,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
            "seconds": round(progress.seconds, 3),
        }
        progress.metrics.append(entry)
        progress.epoch += 1
        progress.step = 0
        self.losses.zero_()
        self.hits.zero_()

    def _totals(self) -> tuple[Tensor, Tensor]:
        """Return the losses and hits of this epoch, summed over all processes."""
        total = self.processes.total
        return total(self.losses.clone()), total(self.hits.clone())

    # --- continuing ---

    def checkpoint(self) -> Checkpoint:
        """Return the complete state of the run; all processes must call this method."""
        losses, hits = self._totals()
        return Checkpoint(
            self.parameters.identity(),
            self.progress,
            named_weights(self.model),
            self.optimizer.state_dict()["state"],
            losses,
            hits,
            heads=heads_per_layer(self.model) if self.progress.parent else None,
        )

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Take over the state in a checkpoint, except for the weights, which the model has."""
        self.progress = checkpoint.progress
        self.progress.times_resumed += not checkpoint.is_finished
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": checkpoint.optimizer, "param_groups": groups})
        lay_out_as_parameters(self.optimizer)
        if self.processes.is_main:  # the stored values are sums over the processes
            self.losses.copy_(checkpoint.losses)
            self.hits.copy_(checkpoint.hits)

    @property
    def images_done(self) -> int:
        """The number of images processed since the start of the run."""
        count = len(self.data.train)
        in_epoch = min(self.progress.step * self.parameters.batch_size, count)
        return self.progress.epoch * count + in_epoch

    def _expect_one_position(self) -> None:
        """Raise ValueError if processes with separate folders continue from different steps."""
        positions = self.processes.each(self.progress.epoch * self.steps + self.progress.step)
        if len(set(positions)) > 1:
            raise ValueError(
                f"the processes found different checkpoints (steps done: {positions}): their"
                " folders must be a single one, shared by the machines; set checkpoints to it (now"
                f" {self.parameters.checkpoint_folder})"
            )

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
        self.network = self.forward
        self.without_exchange = nullcontext
        if self.processes.count > 1:
            self.network = DistributedDataParallel(self.forward)
            self.without_exchange = self.network.no_sync


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
    decay = parameters.weight_decay
    rate = parameters.norm_rate
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
    whole = math.ceil(parameters.batch_size / processes.count)
    heads = heads_per_layer(model)
    if processes.device.type != "cpu" or parameters.attention_dropout or not heads:
        return whole
    pixels = (DATASETS[parameters.dataset].image_size // parameters.pooling) ** 2
    fit = max(1, LARGEST_BLOCK // (4 * max(1, *heads) * pixels * parameters.hidden))
    return math.ceil(whole / math.ceil(whole / fit))
