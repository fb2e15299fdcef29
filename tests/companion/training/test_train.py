"""The engine on digits: each model, resuming, what is refused, several processes, the command."""

import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from helpers.runs import (
    TORCHRUN,
    as_words,
    check_record,
    command_line,
    in_two_processes,
    places,
    results,
    small,
    stop_after,
)
from helpers.ways import content_probabilities
from torch import nn

from attnconv import load_dataset
from companion.accuracy import evaluate, logits_by_batch
from companion.build import build_network
from companion.cli import main
from companion.data import CIFAR10_FINGERPRINT, Batches
from companion.heads import query_pixels, score_parts
from companion.runs.parameters import RunParameters
from companion.runs.record import LARGEST_RECORD, load_run
from companion.specs import MODELS
from companion.store import write_tensors
from companion.training.checkpoint import Checkpoints
from companion.training.learner import Learner, lay_out_as_parameters
from companion.training.loop import train
from companion.training.machine import Interrupted

pytestmark = pytest.mark.slow

DIGITS = load_dataset("digits")


#: Without dropout, which each process and each way of computing draws for itself.
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [*((model, "sgd") for model in sorted(MODELS)), ("sa-quadratic", "adamw")],
)
def test_every_model_trains_stops_and_goes_on_bit_for_bit(model, optimizer, tmp_path, monkeypatch):
    values = {"model": model, "optimizer": optimizer, "learning_rate": 0.01}
    whole = train(small(tmp_path / "whole", **values), DIGITS)
    first, second = whole.record.metrics
    assert whole.record.info.status == "finished" and whole.record.info.epochs_done == 2
    assert whole.record.info.times_resumed == 0 and not whole.model.training
    assert all(math.isfinite(value) for value in (*first.values(), *second.values()))
    assert first["train_loss"] != second["train_loss"]
    assert sum(path.stat().st_size for path in whole.record.folder.iterdir()) < LARGEST_RECORD

    interruptions = random.Random(model).randrange(7), 7 + random.Random(optimizer).randrange(7)
    parameters = small(tmp_path / "parts", **values)
    if model == "sa-generalized-pruned":
        train(parameters.parent(), DIGITS)
    stop_after(monkeypatch, *interruptions)
    message = (
        r"stopped by SIGTERM in epoch \d, step \d; a checkpoint was written; the same command"
        " continues from the last one"
    )
    for _ in interruptions:
        with pytest.raises(Interrupted, match=message):
            train(parameters, DIGITS)
        assert load_run(parameters.record_folder).info.status == "stopped"
    again = train(parameters, DIGITS)
    assert again.record.info.times_resumed == 2 and results(again) == results(whole)


def test_killed_at_twenty_random_moments_it_ends_as_if_never_killed(tmp_path, capsys):
    values = {"epochs": 40, "num_layers": 1}
    whole = train(small(tmp_path / "whole", **values), DIGITS)
    parameters = small(tmp_path / "killed", **values)
    epoch = whole.record.info.wall_seconds / 40
    moments = random.Random(0)
    for _ in range(20):
        child = multiprocessing.get_context("fork").Process(target=train, args=(parameters, DIGITS))
        child.start()
        time.sleep(moments.uniform(0, 3 * epoch))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL, "the run was under way"
    left = Checkpoints(parameters.checkpoint_folder).read()
    assert left and 0 < left.progress.epoch < 40, "it got somewhere, and not to the end"
    assert results(train(parameters, DIGITS)) == results(whole)
    assert "resumed at epoch" in capsys.readouterr().out
    assert not list((tmp_path / "killed").rglob("*.tmp"))


def test_the_same_seed_gives_the_same_run_and_another_seed_does_not(finished, tmp_path):
    again, other = (train(small(tmp_path / f"{seed}", seed=seed), DIGITS) for seed in (0, 1))
    assert results(finished) == results(again) != results(other)


def test_two_threads_are_as_repeatable_as_one(tmp_path):
    torch.set_num_threads(2)
    values = {"model": "sa-learned-content", "train_images": 50, "epochs": 1}
    runs = [train(small(tmp_path / str(i), **values), DIGITS) for i in range(2)]
    assert results(runs[0]) == results(runs[1])


def test_other_parameters_are_refused(finished, tmp_path):
    text = r"from a run with other parameters: epochs = 2 \(requested: 3\). Set other folders"
    with pytest.raises(ValueError, match=text):
        train(small(tmp_path, epochs=3), DIGITS)
    (finished.record.folder / "run.json").unlink()
    text = r"safetensors is from a run with other parameters: hidden = 8 \(requested: 16\)"
    with pytest.raises(ValueError, match=text):
        train(small(tmp_path, hidden=16), DIGITS)
    replaced = train(small(tmp_path, hidden=16, resume=False), DIGITS)
    assert replaced.record.info.parameters["hidden"] == 16


def test_a_refused_run_leaves_the_checkpoints(finished, tmp_path):
    kept = sorted((tmp_path / "checkpoints").rglob("*"))
    with pytest.raises(ValueError, match="train_images"):
        train(small(tmp_path, resume=False, train_images=99_999), DIGITS)
    assert len(kept) == 3 and sorted((tmp_path / "checkpoints").rglob("*")) == kept
    assert finished.record.folder.exists()


def test_a_parameter_younger_than_a_record_was_at_its_default(finished, tmp_path, capsys):
    info = finished.record.info
    parameters = small(tmp_path)
    older = {name: value for name, value in info.parameters.items() if name != "label_smoothing"}
    path = parameters.record_folder / "run.json"
    path.write_bytes(info.model_copy(update={"parameters": older}).sealed().as_file())
    Checkpoints(parameters.checkpoint_folder).clear()
    assert train(parameters, DIGITS).record.info.parameters == older
    assert "is finished: this is its record" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"label_smoothing = 0.0 \(requested: 0.2\)"):
        train(small(tmp_path, label_smoothing=0.2), DIGITS)


def test_smoothed_labels_give_every_class_its_share(tmp_path):
    """The first step's loss: cross-entropy with a target of 1 - s + s/10 at the label, s/10
    elsewhere."""
    values = {"epochs": 1, "batch_size": 330, "augment": False} | NO_DROPOUT
    plain, smooth = (
        train(small(tmp_path / str(s), label_smoothing=s, **values), DIGITS).metrics[0]
        for s in (0.0, 0.2)
    )
    torch.manual_seed(0)
    model = build_network(small(tmp_path, **values).model_dump()).train()
    images = DIGITS.normalise(DIGITS.train_images[:330])
    labels = DIGITS.train_labels[:330]
    log_p = model(images).log_softmax(dim=1).detach()
    right = -log_p.gather(1, labels[:, None]).mean().item()
    assert plain["train_loss"] == pytest.approx(right, rel=1e-5)
    mixed = 0.8 * right - 0.2 * log_p.mean().item()
    assert smooth["train_loss"] == pytest.approx(mixed, rel=1e-5)


def test_a_finished_run_is_shown_not_repeated(finished, tmp_path, capsys):
    parameters = small(tmp_path)
    again = train(parameters, DIGITS)
    assert "finished at epoch 2 of 2" in capsys.readouterr().out
    assert results(again) == results(finished)
    assert again.record.info == finished.record.info, "where it was trained, not looked at"
    Checkpoints(parameters.checkpoint_folder).clear()
    shown = train(parameters, DIGITS)
    assert "is finished: this is its record" in capsys.readouterr().out
    assert shown.model is None and shown.record.metrics == finished.record.metrics


def test_a_damaged_newest_checkpoint_falls_back(finished, tmp_path, capsys):
    parameters = small(tmp_path)
    newest = Checkpoints(parameters.checkpoint_folder).paths()[0]
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="is damaged: .*; using the previous checkpoint instead"):
        again = train(parameters, DIGITS)
    assert "resumed at epoch 1 of 2" in capsys.readouterr().out
    assert results(again) == results(finished)


def test_without_an_intact_checkpoint_the_run_starts_again(finished, tmp_path, capsys):
    parameters = small(tmp_path)
    (parameters.record_folder / "run.json").unlink()
    newest, oldest = Checkpoints(parameters.checkpoint_folder).paths()
    newest.write_bytes(b"damaged")
    write_tensors(oldest, {"a.b": torch.zeros(1)}, {"parameters": {}})
    with pytest.warns(UserWarning) as warned:
        again = train(parameters, DIGITS)
    messages = [str(warning.message) for warning in warned]
    assert "is damaged" in messages[0] and "using the previous checkpoint instead" in messages[0]
    assert "is not a checkpoint of this version: KeyError('heads')" in messages[1]
    assert messages[1].endswith("; there is no earlier checkpoint")
    assert "resumed" not in capsys.readouterr().out and results(again) == results(finished)


def test_a_folder_that_cannot_be_written_is_noticed_before_training(tmp_path, monkeypatch, capsys):
    parameters = small(tmp_path)
    for taken in (parameters.record_folder.parent, parameters.checkpoint_folder.parent):
        taken.write_text("a file")
        with monkeypatch.context() as patch:
            patch.setattr(Learner, "train_step", lambda *_: pytest.fail("trained"))
            assert main(as_words(parameters)) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and str(taken) in error
        taken.unlink()


def test_a_finished_run_needs_no_writable_folder(finished, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # as for a finished run of someone else
    assert results(train(small(tmp_path), DIGITS)) == results(finished)
    with pytest.raises(OSError, match="to be a writable folder"):
        train(small(tmp_path, seed=1), DIGITS)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch):
    real = nn.functional.cross_entropy
    calls = iter(range(100))

    def spoiled(logits, labels, **options):
        # 7 steps, 1 evaluation, 4th step
        return real(logits, labels, **options) * (math.nan if next(calls) == 7 + 1 + 3 else 1)

    monkeypatch.setattr("torch.nn.functional.cross_entropy", spoiled)
    parameters = small(tmp_path)
    text = (
        r"the loss is nan in epoch 2, step 4; last good checkpoint: .*step-000000007.safetensors;"
    )
    with pytest.raises(RuntimeError, match=text):
        train(parameters, DIGITS)
    assert load_run(parameters.record_folder).info.status == "stopped"


def test_a_full_disk_stops_no_run_before_its_end(tmp_path, small_files):
    """No file can grow above 1 KiB: neither checkpoints nor records can be written."""
    parameters = small(tmp_path)
    with pytest.warns(UserWarning) as warned, pytest.raises(OSError, match="File too large"):
        train(parameters, DIGITS)
    messages = [str(warning.message) for warning in warned]
    unwritten = [text for text in messages if "could not be written" in text]
    assert sum("there is no earlier one" in text for text in unwritten) == 2
    assert any("the partial record" in text for text in messages)
    assert not list(parameters.checkpoint_folder.iterdir())


@pytest.mark.parametrize("kept", [True, False])
def test_damaged_snapshots_are_written_anew(kept, finished, tmp_path, monkeypatch):
    """A run that ended early goes on from its checkpoint; without one, it is trained again."""
    attention = finished.record.folder / "attention.safetensors"
    attention.write_bytes(b"damaged")
    if not kept:
        Checkpoints(small(tmp_path).checkpoint_folder).clear()
    step = Learner.train_step
    steps = []
    monkeypatch.setattr(Learner, "train_step", lambda *given: steps.append(step(*given)))
    with pytest.warns(
        UserWarning, match="attention.safetensors is damaged.*; it will be rewritten"
    ):
        again = train(small(tmp_path), DIGITS).record
    for name, values in again.attention.items():
        assert torch.equal(finished.record.attention[name], values)
    assert bool(steps) != kept
    assert load_run(attention.parent).attention


def test_pruning_starts_from_the_trained_model(tmp_path):
    values = {"model": "sa-generalized-pruned", "epochs": 1, "parent_epochs": 2}
    parameters = small(tmp_path, max_condition=1.2, schedule="constant", **values)
    pruned = train(parameters, DIGITS).record
    record = load_run(tmp_path / "runs" / "sa-generalized--digits--seed0")
    parent = pruned.info.parent
    assert parent["run"] == record.name and parent["epochs"] == 2
    assert parent["max_condition"] == 1.2 and parent["test_accuracy"] == record.accuracy
    assert 0 <= parent["test_accuracy_after_pruning"] <= 1
    removed = [len(heads) for heads in parent["removed_heads"]]
    assert 0 < sum(removed) < 18
    for layer, heads in enumerate(parent["removed_heads"], start=1):
        before, after = (r.attention[f"layer{layer}.centers"] for r in (record, pruned))
        kept = [head for head in range(9) if head not in heads]
        assert after.shape == (2, len(kept), 2) and torch.equal(after[0], before[-1][kept])
    lost = record.info.parameter_count - pruned.info.parameter_count
    assert lost == sum(removed) * (8 * 8 + 6)
    # another network, or another training: that parent will not do
    for changed in ({"hidden": 16}, {"parent_epochs": 1}):
        Checkpoints(parameters.checkpoint_folder).clear()
        (parameters.record_folder / "run.json").unlink(missing_ok=True)
        with pytest.raises(ValueError, match="is from a run with other parameters"):
            train(small(tmp_path, **values | changed), DIGITS)


def test_the_control_of_pruning_starts_from_the_same_model_with_all_heads(tmp_path):
    values = {"epochs": 1, "schedule": "constant", "parent_epochs": 2}
    pruned, control = (
        train(small(tmp_path, model=f"sa-generalized-{end}", **values), DIGITS).record
        for end in ("pruned", "on")
    )
    parent = load_run(tmp_path / "runs" / "sa-generalized--digits--seed0")
    shared = {name: pruned.info.parent[name] for name in ("run", "epochs", "test_accuracy")}
    assert control.info.parent == shared
    for name, moments in parent.attention.items():
        if name != "epochs":
            assert torch.equal(control.attention[name][0], moments[-1]), name
    assert control.info.parameter_count == parent.info.parameter_count
    assert control.heads_left is None
    recipes = [
        RunParameters.check({"model": f"sa-generalized-{end}", "dataset": "cifar10", "tier": tier})
        for end in ("pruned", "on")
        for tier in ("small", "paper")
    ]
    for one, other in zip(recipes[:2], recipes[2:], strict=True):
        assert one.model_copy(update={"model": other.model}) == other


def test_pruning_digits_can_be_repeated(tmp_path):
    """The quick recipe keeps no checkpoints and starts afresh; what the parent leaves must not
    stand in the way."""
    quick = {"checkpoint_every": 0, "resume": False, "epochs": 1, "parent_epochs": 1}
    train(small(tmp_path, model="sa-generalized", **quick | {"parent_epochs": None}), DIGITS)
    pruned = small(tmp_path, model="sa-generalized-pruned", **quick)
    assert results(train(pruned, DIGITS)) == results(train(pruned, DIGITS))


def test_snapshots_follow_the_training(finished):
    assert finished.record.attention["epochs"].tolist() == [0, 1, 2]
    centers = finished.record.attention["layer2.centers"]
    assert centers.shape == (3, 9, 2) and not torch.equal(centers[0], centers[2])
    assert torch.equal(centers[2], finished.model.attentions[1].encoding.centers)


def test_content_maps_are_averages_of_the_models_own(tmp_path):
    run = train(small(tmp_path, model="sa-learned-content", attention_dropout=0.0), DIGITS)
    attention = run.record.attention
    single = run.record.content_maps.single["image"].maps()
    images = DIGITS.normalise(DIGITS.test_images[:60])
    queries = query_pixels(8, 8)
    assert torch.equal(attention["queries"], queries) and [4, 4] in queries.tolist()
    i, j = queries[5]
    for layer, maps in enumerate(content_probabilities(run.model, images)):
        assert torch.allclose(maps.sum(dim=(-2, -1)), torch.ones(60, 9, 8, 8), atol=1e-5)
        assert (attention["mean_maps"][layer, :, 5] - maps[:, :, i, j].mean(0)).abs().max() < 1e-3
        assert (single[1, layer, :, 5] - maps[1, :, i, j]).abs().max() < 1e-3
        # queries that have the key one row down and two columns left
        shifted = maps[:, :, :-1, 2:].mean(0)
        keys = torch.stack([shifted[:, r, c, r + 1, c] for r in range(7) for c in range(6)]).mean(0)
        assert (attention["shift_probabilities"][layer, :, 7 + 1, 7 - 2] - keys).abs().max() < 1e-5
    i, j = queries.unbind(1)
    for layer, parts in enumerate(score_parts(run.model, images[:3])):
        for name, part in zip(("content", "row", "column"), parts, strict=True):
            stored = attention[f"image_{name}_scores"][:, layer].float()
            assert torch.allclose(stored, part[:, :, i, j], atol=1e-3), name
    assert "photograph_content_scores" not in attention  # digits are grey


def test_evaluate_counts():
    class Fixed(nn.Module):
        def forward(self, x):
            return nn.functional.one_hot((x[:, 0, 0, 0] > 0).long(), 3).float()

    model = Fixed().train()
    images = torch.zeros(250, 1, 8, 8, dtype=torch.uint8)
    images[200:] = 255
    labels = torch.cat([torch.zeros(240), torch.ones(10)]).long()
    loss, accuracy = evaluate(model, Batches(DIGITS, images, labels))
    right = -math.log(math.e / (math.e + 2))
    wrong = -math.log(1 / (math.e + 2))
    assert accuracy == 210 / 250 and loss == pytest.approx((210 * right + 40 * wrong) / 250)
    assert model.training


def test_evaluation_keeps_the_mode_of_each_module():
    class Failing(nn.Module):
        def forward(self, x):
            raise RuntimeError("no")

    images = torch.zeros(250, 1, 8, 8, dtype=torch.uint8)
    labels = torch.zeros(250).long()
    batches = Batches(DIGITS, images, labels)
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(), nn.Linear(64, 10))
    model[1].eval()  # frozen
    before = [module.training for module in model.modules()]
    evaluate(model, batches)
    assert [module.training for module in model.modules()] == before
    next(logits_by_batch(model, batches))  # leaves the loop early
    assert [module.training for module in model.modules()] == before
    broken = nn.Sequential(model, Failing())
    with pytest.raises(RuntimeError):
        evaluate(broken, batches)
    assert [module.training for module in broken.modules()] == [True, *before, True]


def test_compiled_training_is_the_same_training(tmp_path, monkeypatch):
    modes = []
    compile = torch.compile

    def compiled_once(model, mode, **options):
        modes.append(mode)
        return compile(model, mode=mode, **options)

    monkeypatch.setattr(torch, "compile", compiled_once)
    values = {"train_images": 100, "epochs": 1, "num_layers": 1} | NO_DROPOUT
    plain, compiled = (
        train(small(tmp_path / mode, compile=mode, **values), DIGITS) for mode in ("off", "default")
    )
    assert modes == [compiled.record.info.parameters["compile"]] == ["default"]
    for name in ("train_loss", "test_loss"):
        assert compiled.metrics[0][name] == pytest.approx(plain.metrics[0][name], rel=1e-4)


@pytest.mark.parametrize(
    "model", ["sa-quadratic", "sa-generalized", "sa-learned-content", "resnet18"]
)
def test_bfloat16_is_close_to_float32(model, tmp_path):
    values = {"model": model, "train_images": 100, "epochs": 1}
    runs = [
        train(small(tmp_path / p, precision=p, **values), DIGITS) for p in ("float32", "bfloat16")
    ]
    losses = [run.record.metrics[0]["train_loss"] for run in runs]
    assert losses[0] != losses[1] and losses[1] == pytest.approx(losses[0], rel=2e-2)


def test_optimizer_state_is_laid_out_as_the_parameters():
    """Fused SGD on a GPU wants equal strides; a file has none."""
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(conv.parameters(), lr=0.1, momentum=0.9)
    conv(torch.randn(2, 3, 5, 5)).sum().backward()
    optimizer.step()
    state = {
        i: {name: value.contiguous() for name, value in entry.items()}
        for i, entry in optimizer.state_dict()["state"].items()
    }
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    assert optimizer.state[conv.weight]["momentum_buffer"].stride() != conv.weight.stride()
    before = optimizer.state[conv.weight]["momentum_buffer"].clone()
    lay_out_as_parameters(optimizer)
    after = optimizer.state[conv.weight]["momentum_buffer"]
    assert after.stride() == conv.weight.stride() and torch.equal(after, before)


def test_a_gpu_that_is_not_there(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    text = "device = 'cuda': torch finds no CUDA GPU; expected one, or device = 'cpu'"
    with pytest.raises(ValueError, match=text):
        train(small(tmp_path, device="cuda"), DIGITS)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_each_model_trains_on_cifar10(model, cifar10_root, tmp_path):
    """Two epochs with the paper's recipe, on so many images and so narrow a network that it takes
    seconds."""
    given = {"model": model, "dataset": "cifar10", "epochs": 2, "parent_epochs": 1}
    given |= {"train_images": 30, "test_images": 20, "data_root": str(cifar10_root)}
    attention = {"num_layers": 1, "hidden": 16, "intermediate": 16}
    given |= {"width": 16} if model == "resnet18" else attention
    record = train(RunParameters.check(given | places(tmp_path))).record
    check_record(record, model, epochs=2)
    assert record.info.dataset["fingerprint"] == CIFAR10_FINGERPRINT
    assert record.info.parameters["optimizer"] == "sgd"
    assert ("photograph_content_scores" in record.attention) == (model == "sa-learned-content")


# --- processes and the command line ---------------------------------------------------------------


def launched_by_torchrun(parameters):
    return command_line(*as_words(parameters), launcher=(*TORCHRUN, "-m", "attnconv"))


def launched_by_a_notebook(parameters):
    """As from a notebook's cell: `train` forks. In a process of its own, since a fork copies this
    one's threads."""
    given = parameters.model_dump() | {"processes": 2}
    program = "from companion.runs.parameters import *; from companion.training.loop import *\n"
    program += f"print(train(RunParameters.check({given!r})))"
    return command_line("-c", program, launcher=())


@pytest.mark.parametrize(
    ("launched", "model"),
    [(launched_by_torchrun, "sa-quadratic"), (launched_by_a_notebook, "sa-learned-content")],
)
def test_two_processes_are_one_with_the_same_batch(launched, model, tmp_path):
    """Batches of 50 and a last one of 29: the shares are uneven."""
    values = {"model": model, "train_images": 329, "optimizer": "sgd"} | NO_DROPOUT
    one = train(small(tmp_path / "one", **values), DIGITS).record
    parameters = small(tmp_path / "two", **values)
    shell = launched(parameters)
    assert shell.returncode == 0, shell.stderr[-3000:]
    two = load_run(parameters.record_folder)
    assert two.info.hardware["processes"] == 2 and two.info.status == "finished"
    for ours, theirs in zip(one.metrics, two.metrics, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
        assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-5)
        assert ours["test_accuracy"] == theirs["test_accuracy"]


STOPPED = """
import os, signal, sys
from companion.cli import main
from companion.training.learner import Learner

def step(self, *batch, real=Learner.train_step):
    real(self, *batch)
    if (self.progress.epoch, self.progress.step) == (1, 60):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

Learner.train_step = step
sys.exit(main(sys.argv[1:]))
"""


def test_two_processes_stop_and_go_on(tmp_path, capfd):
    """Stopped in mid-epoch by a signal that arrives twice, as from a scheduler through the
    launcher."""
    values = {"train_images": 210, "batch_size": 2, "checkpoint_every": 100} | NO_DROPOUT
    whole = train(small(tmp_path / "whole", **values), DIGITS).record
    parameters = small(tmp_path / "parts", **values)
    program = tmp_path / "stopped.py"
    program.write_text(STOPPED)
    stopped = command_line(*as_words(parameters), launcher=(*TORCHRUN, str(program)))
    text = "stopped by SIGTERM in epoch 2, step 100; a checkpoint was written"
    assert stopped.returncode != 0 and text in stopped.stderr
    assert load_run(parameters.record_folder).info.status == "stopped"
    assert in_two_processes(main, as_words(parameters)) == [0, 0]
    assert "resumed at epoch 1 of 2, step 100" in capfd.readouterr().out
    parts = load_run(parameters.record_folder)
    for ours, theirs in zip(whole.metrics, parts.metrics, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)
        assert ours["train_accuracy"] == pytest.approx(theirs["train_accuracy"], abs=0.01)


def test_processes_with_folders_of_their_own_are_refused(finished, tmp_path, capfd):
    """One finds a checkpoint and the other does not."""
    # the last one: it is at the first epoch again
    Checkpoints(small(tmp_path).checkpoint_folder).paths()[0].unlink()
    (finished.record.folder / "run.json").unlink()

    def train_apart():
        folder = tmp_path / "checkpoints" / ("none" if os.environ["RANK"] == "1" else "")
        return main([*as_words(small(tmp_path)), "--checkpoints", str(folder)])

    codes = in_two_processes(train_apart)
    text = "the processes found different checkpoints (steps done: [7, 0])"
    assert all(codes) and text in capfd.readouterr().err


def test_the_command_line_trains_stops_and_goes_on(tmp_path):
    parameters = small(tmp_path, epochs=300, checkpoint_every=100)
    command = [sys.executable, "-m", "attnconv", *as_words(parameters)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    shell = subprocess.Popen(command, text=True, **pipes)
    # not load_run, which may meet the moment between the new metrics.csv and its run.json
    table = parameters.record_folder / "metrics.csv"
    while not table.exists() or len(table.read_text().splitlines()) < 2:
        assert shell.poll() is None, shell.communicate()
        time.sleep(0.05)
    shell.terminate()
    _, errors = shell.communicate(timeout=60)
    assert shell.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM in epoch" in errors and "Traceback" not in errors
    assert "training:" not in errors, "no progress bar where there is no terminal"
    done = load_run(parameters.record_folder).info.epochs_done
    left = Checkpoints(parameters.checkpoint_folder).read().progress
    assert left.epoch == done and len(left.metrics) == done


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train --epochs=ten", "epochs = 'ten': Input should be a valid integer"),
        ("train --model resnet", "model = 'resnet': expected one of resnet18, sa-quadratic"),
        ("data --dataset mnist", "unknown dataset 'mnist', expected digits or cifar10"),
    ],
)
def test_the_command_line_refuses_by_name(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert f"error: {message}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        ("train --epoch 3", "--epoch 3"),
        ("train -seed 3", "-seed 3"),
        ("train --seed 3 4", "4"),
        ("runs --all", "--all"),
    ],
)
def test_the_command_line_refuses_what_it_does_not_know(words, unknown, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    assert capsys.readouterr().err.endswith(f"error: unrecognized arguments: {unknown}\n")


def test_the_command_line_lists_records(finished, tmp_path, capsys):
    (tmp_path / "none").mkdir()
    assert main(("runs", "--runs", str(tmp_path / "none"))) == 0
    assert capsys.readouterr().out == "no run records\n"
    listing = ("runs", "--runs", str(tmp_path / "runs"))
    assert main(listing) == 0
    assert f"| 2 of 2 | {finished.record.accuracy:.4f} (" in capsys.readouterr().out
    (finished.record.folder / "run.json").write_text("{}")
    assert main(listing) == 1
    assert "run.json is damaged: version Field required" in capsys.readouterr().err
