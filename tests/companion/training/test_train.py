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
from helpers.runs import check_record, command_line, results, stop_after
from torch import nn

from attnconv import load_dataset
from companion.accuracy import evaluate, logits_by_batch
from companion.build import build_network
from companion.cli import main
from companion.data import CIFAR10_FINGERPRINT, Batches
from companion.heads import content_probabilities, query_pixels, score_parts
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


def small(folder, **values):
    """A run of a second, with everything that is random: dropout, crops and mirroring."""
    network = {
        "num_layers": 2,
        "hidden": 8,
        "intermediate": 8,
        "dropout": 0.1,
        "attention_dropout": 0.1,
    }
    data = {"train_images": 330, "test_images": 60, "batch_size": 50, "augment": True}
    places = {
        "runs": str(folder / "runs"),
        "checkpoints": str(folder / "checkpoints"),
        "resume": True,
        "checkpoint_every": 1,
    }
    return RunParameters.check(network | data | places | {"epochs": 2, "device": "cpu"} | values)


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        *((model, "sgd") for model in sorted(MODELS)),
        ("sa-quadratic", "adamw"),
        ("sa-learned", "adamw"),
    ],
)
def test_every_model_trains_stops_and_goes_on_bit_for_bit(model, optimizer, tmp_path, monkeypatch):
    values = {"model": model, "optimizer": optimizer, "learning_rate": 0.01}
    whole = train(small(tmp_path / "whole", **values), DIGITS)
    info = whole.record.info
    assert (
        info.status == "finished"
        and info.epochs_done == len(whole.record.metrics) == 2
        and info.times_resumed == 0
    )
    assert all(math.isfinite(value) for entry in whole.record.metrics for value in entry.values())
    assert sum(path.stat().st_size for path in whole.record.folder.iterdir()) < LARGEST_RECORD
    assert (
        whole.record.metrics[0]["train_loss"] != whole.record.metrics[1]["train_loss"]
        and not whole.model.training
    )

    interruptions = random.Random(model).randrange(7), 7 + random.Random(optimizer).randrange(7)
    parameters = small(tmp_path / "parts", **values)
    if model == "sa-generalized-pruned":
        train(parameters.parent(), DIGITS)
    stop_after(monkeypatch, *interruptions)
    for _ in interruptions:
        with pytest.raises(
            Interrupted,
            match=(
                r"stopped by SIGTERM in epoch \d, step \d; a checkpoint was written; the same"
                r" command continues from the last one"
            ),
        ):
            train(parameters, DIGITS)
        assert load_run(parameters.record_folder).info.status == "stopped"
    again = train(parameters, DIGITS)
    assert again.record.info.times_resumed == 2 and results(again) == results(whole)


def endless(parameters):
    train(parameters, DIGITS)


def test_killed_at_twenty_random_moments_it_ends_as_if_never_killed(tmp_path, capsys):
    whole = train(small(tmp_path / "whole", epochs=80, hidden=16), DIGITS)
    parameters = small(tmp_path / "killed", epochs=80, hidden=16)
    epoch = whole.record.info.wall_seconds / 80
    moments, kills = random.Random(0), 0
    while kills < 20:
        child = multiprocessing.get_context("fork").Process(target=endless, args=(parameters,))
        child.start()
        time.sleep(moments.uniform(0, 4 * epoch))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL, "the run was under way"
        kills += 1
    left = Checkpoints(parameters.checkpoint_folder).read()
    assert left and 0 < left.progress.epoch < 80, (
        "it got somewhere between the kills, and not to the end"
    )
    killed = train(parameters, DIGITS)
    assert results(killed) == results(whole)
    assert "resumed at epoch" in capsys.readouterr().out
    assert not [path for path in (tmp_path / "killed").rglob("*") if path.name.endswith(".tmp")]


def test_the_same_seed_gives_the_same_run_and_another_seed_does_not(tmp_path):
    runs = [train(small(tmp_path / str(i), seed=seed), DIGITS) for i, seed in enumerate((1, 1, 2))]
    assert results(runs[0]) == results(runs[1]) != results(runs[2])


def test_two_threads_are_as_repeatable_as_one(tmp_path):
    torch.set_num_threads(2)
    runs = [train(small(tmp_path / str(i), model="sa-learned-content"), DIGITS) for i in range(2)]
    assert results(runs[0]) == results(runs[1])


def test_other_parameters_are_refused(tmp_path):
    parameters = small(tmp_path)
    train(parameters, DIGITS)
    with pytest.raises(
        ValueError,
        match=r"from a run with other parameters: epochs = 2 \(requested: 3\). Set other folders",
    ):
        train(small(tmp_path, epochs=3), DIGITS)
    (parameters.record_folder / "run.json").unlink()
    with pytest.raises(
        ValueError,
        match=r"safetensors is from a run with other parameters: hidden = 8 \(requested: 16\)",
    ):
        train(small(tmp_path, hidden=16), DIGITS)
    replaced = train(small(tmp_path, hidden=16, resume=False), DIGITS)
    assert replaced.record.info.parameters["hidden"] == 16


def test_a_refused_run_leaves_the_checkpoints(tmp_path):
    folder = train(small(tmp_path), DIGITS).record.folder
    kept = sorted(Checkpoints(small(tmp_path).checkpoint_folder).folder.iterdir())
    with pytest.raises(ValueError, match="train_images"):
        train(small(tmp_path, resume=False, train_images=99_999), DIGITS)
    assert kept and sorted(kept[0].parent.iterdir()) == kept and folder.exists()


@pytest.mark.parametrize("words", [["stray"], ["-seed", "3"], ["--seed", "3", "4"]])
def test_a_stray_argument_is_refused(words, capsys):
    assert main(["train", *words]) == 2
    assert (
        f"got the argument '{next(w for w in words[::-1] if w != '3')}'" in capsys.readouterr().err
    )


def test_a_parameter_younger_than_a_record_was_at_its_default(tmp_path, capsys):
    parameters = small(tmp_path)
    info = train(parameters, DIGITS).record.info
    older = {name: value for name, value in info.parameters.items() if name != "label_smoothing"}
    path = parameters.record_folder / "run.json"
    path.write_bytes(info.model_copy(update={"parameters": older}).sealed().as_file())
    for checkpoint in parameters.checkpoint_folder.iterdir():
        checkpoint.unlink()
    assert train(parameters, DIGITS).record.info.parameters == older
    assert "is finished: this is its record" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"label_smoothing = 0.0 \(requested: 0.2\)"):
        train(small(tmp_path, label_smoothing=0.2), DIGITS)


def test_smoothed_labels_give_every_class_its_share(tmp_path):
    """The first step's loss: cross-entropy with a target of 1 - s + s/10 at the label, s/10
    elsewhere."""
    values = {"epochs": 1, "batch_size": 330, "augment": False}
    values |= {"dropout": 0.0, "attention_dropout": 0.0}
    plain, smooth = (
        train(small(tmp_path / str(s), label_smoothing=s, **values), DIGITS).metrics[0]
        for s in (0.0, 0.2)
    )
    torch.manual_seed(0)
    model = build_network(small(tmp_path, **values).model_dump()).train()
    images, labels = DIGITS.normalise(DIGITS.train_images[:330]), DIGITS.train_labels[:330]
    log_p = model(images).log_softmax(dim=1).detach()
    right = -log_p.gather(1, labels[:, None]).mean().item()
    assert plain["train_loss"] == pytest.approx(right, rel=1e-5)
    mixed = 0.8 * right - 0.2 * log_p.mean().item()
    assert smooth["train_loss"] == pytest.approx(mixed, rel=1e-5)


def test_a_finished_run_is_shown_not_repeated(tmp_path, capsys):
    parameters = small(tmp_path)
    first = train(parameters, DIGITS)
    again = train(parameters, DIGITS)
    assert "finished at epoch 2 of 2" in capsys.readouterr().out and results(again) == results(
        first
    )
    assert again.record.info == first.record.info, (
        "the record tells where it was trained, not where it was looked at"
    )
    Checkpoints(parameters.checkpoint_folder).clear()
    shown = train(parameters, DIGITS)
    assert "is finished: this is its record" in capsys.readouterr().out
    assert shown.model is None and shown.record.metrics == first.record.metrics


def test_a_damaged_newest_checkpoint_falls_back(tmp_path, capsys):
    whole = train(small(tmp_path / "whole", epochs=4), DIGITS)
    parameters = small(tmp_path / "damaged", epochs=4)
    train(parameters, DIGITS)
    newest = Checkpoints(parameters.checkpoint_folder).paths()[0]
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="is damaged: .*; using the previous checkpoint instead"):
        again = train(parameters, DIGITS)
    assert "resumed at epoch 3 of 4" in capsys.readouterr().out and results(again) == results(whole)


def test_without_an_intact_checkpoint_the_run_starts_again(tmp_path, capsys):
    parameters = small(tmp_path)
    first = train(parameters, DIGITS)
    (first.record.folder / "run.json").unlink()
    newest, oldest = Checkpoints(parameters.checkpoint_folder).paths()
    newest.write_bytes(b"damaged")
    write_tensors(oldest, {"a.b": torch.zeros(1)}, {"parameters": {}})
    with pytest.warns(UserWarning) as warned:
        again = train(parameters, DIGITS)
    messages = [str(warning.message) for warning in warned]
    assert "is damaged" in messages[0] and "using the previous checkpoint instead" in messages[0]
    assert "is not a checkpoint of this version: KeyError('heads')" in messages[1]
    assert messages[1].endswith("; there is no earlier checkpoint")
    assert "resumed" not in capsys.readouterr().out and results(again) == results(first)


def test_a_folder_that_cannot_be_written_is_noticed_before_training(tmp_path, monkeypatch, capsys):
    parameters = small(tmp_path)
    for taken in (parameters.record_folder.parent, parameters.checkpoint_folder.parent):
        taken.write_text("a file")
        with monkeypatch.context() as patch:
            patch.setattr(Learner, "train_step", lambda *_: pytest.fail("trained"))
            assert main(list(map(str, as_words(parameters)))) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and str(taken) in error
        taken.unlink()
    finished = train(parameters, DIGITS)
    monkeypatch.setattr("os.access", lambda *_: False)  # as for a finished run of someone else
    assert results(train(parameters, DIGITS)) == results(finished)
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
    with pytest.raises(
        RuntimeError,
        match=(
            r"the loss is nan in epoch 2, step 4; last good checkpoint:"
            r" .*step-000000007.safetensors;"
        ),
    ):
        train(parameters, DIGITS)
    assert load_run(parameters.record_folder).info.status == "stopped"


def test_a_full_disk_stops_no_run_before_its_end(tmp_path, small_files):
    """No file can grow above 1 KiB: neither checkpoints nor records can be written."""
    parameters = small(tmp_path)
    with pytest.warns(UserWarning) as warned, pytest.raises(OSError, match="File too large"):
        train(parameters, DIGITS)
    messages = [str(warning.message) for warning in warned]
    assert (
        sum(
            "could not be written" in message and "there is no earlier one" in message
            for message in messages
        )
        == 2
    )
    assert any("the partial record" in message for message in messages)
    assert not list(parameters.checkpoint_folder.iterdir())


@pytest.mark.parametrize("checkpoint_every", [0, 1])
def test_damaged_snapshots_are_written_anew(checkpoint_every, tmp_path, monkeypatch):
    parameters = small(tmp_path, checkpoint_every=checkpoint_every)
    first = train(parameters, DIGITS).record
    (first.folder / "attention.safetensors").write_bytes(b"damaged")
    step, steps = Learner.train_step, []
    monkeypatch.setattr(
        Learner, "train_step", lambda self, *batch: steps.append(step(self, *batch))
    )
    with pytest.warns(
        UserWarning, match="attention.safetensors is damaged.*; it will be rewritten"
    ):
        again = train(parameters, DIGITS).record
    assert all(
        torch.equal(first.attention[name], values) for name, values in again.attention.items()
    )
    assert bool(steps) != bool(checkpoint_every), (
        "trained again only where there is nothing to take it from"
    )
    assert load_run(first.folder).attention


def test_pruning_starts_from_the_trained_model(tmp_path):
    parameters = small(
        tmp_path,
        model="sa-generalized-pruned",
        epochs=1,
        max_condition=1.2,
        schedule="constant",
        parent_epochs=2,
    )
    pruned = train(parameters, DIGITS)
    parent = pruned.record.info.parent
    assert (
        parent["run"] == "sa-generalized--digits--seed0"
        and parent["epochs"] == 2
        and parent["max_condition"] == 1.2
    )
    record = load_run(tmp_path / "runs" / "sa-generalized--digits--seed0")
    assert (
        parent["test_accuracy"] == record.info.final_test_accuracy
        and 0 <= parent["test_accuracy_after_pruning"] <= 1
    )
    removed = [len(heads) for heads in parent["removed_heads"]]
    assert 0 < sum(removed) < 18
    for layer, count in enumerate(removed, start=1):
        before, after = (r.attention[f"layer{layer}.centers"] for r in (record, pruned.record))
        kept = [head for head in range(9) if head not in parent["removed_heads"][layer - 1]]
        assert after.shape == (2, 9 - count, 2) and torch.equal(after[0], before[-1][kept])
    assert pruned.record.info.parameter_count == record.info.parameter_count - sum(removed) * (
        8 * 8 + 6
    )
    # another network, or another training: that parent will not do
    for values in ({"hidden": 16}, {"parent_epochs": 1}):
        with pytest.raises(ValueError, match="is from a run with other parameters"):
            other = {
                "model": "sa-generalized-pruned",
                "epochs": 1,
                "parent_epochs": 2,
                "checkpoints": parameters.checkpoints,
            }
            Checkpoints(parameters.checkpoint_folder).clear()
            (parameters.record_folder / "run.json").unlink(missing_ok=True)
            train(small(tmp_path, **other | values), DIGITS)


def test_the_control_of_pruning_starts_from_the_same_model_with_all_heads(tmp_path):
    values = {"epochs": 1, "schedule": "constant", "parent_epochs": 2}
    pruned, control = (
        train(small(tmp_path, model=f"sa-generalized-{end}", **values), DIGITS).record
        for end in ("pruned", "on")
    )
    parent = load_run(tmp_path / "runs" / "sa-generalized--digits--seed0")
    assert control.info.parent == {
        name: pruned.info.parent[name] for name in ("run", "epochs", "test_accuracy")
    }
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
    runs = [
        train(small(tmp_path, model="sa-generalized-pruned", **quick), DIGITS) for _ in range(2)
    ]
    assert results(runs[0]) == results(runs[1])


def test_snapshots_follow_the_training(tmp_path):
    run = train(small(tmp_path, model="sa-quadratic"), DIGITS)
    assert run.record.attention["epochs"].tolist() == [0, 1, 2]
    centers = run.record.attention["layer2.centers"]
    assert centers.shape == (3, 9, 2) and not torch.equal(centers[0], centers[2])
    assert torch.equal(centers[2], run.model.attentions[1].encoding.centers)


def test_content_maps_are_averages_of_the_models_own(tmp_path):
    run = train(small(tmp_path, model="sa-learned-content", attention_dropout=0.0), DIGITS)
    attention, model = run.record.attention, run.model
    images = DIGITS.normalise(DIGITS.test_images[:60])
    queries = query_pixels(8, 8)
    assert torch.equal(attention["queries"], queries) and [4, 4] in queries.tolist()
    for layer, probabilities in enumerate(content_probabilities(model, images)):
        assert torch.allclose(probabilities.sum(dim=(-2, -1)), torch.ones(60, 9, 8, 8), atol=1e-5)
        i, j = queries[5]
        assert (
            attention["mean_maps"][layer, :, 5] - probabilities[:, :, i, j].mean(0)
        ).abs().max() < 1e-3
        assert (
            run.record.content_maps.single["image"].maps()[1, layer, :, 5]
            - probabilities[1, :, i, j]
        ).abs().max() < 1e-3
        # queries that have the key one row down and two columns left
        shifted = probabilities[:, :, :-1, 2:].mean(0)
        keys = torch.stack([shifted[:, i, j, i + 1, j] for i in range(7) for j in range(6)]).mean(0)
        assert (attention["shift_probabilities"][layer, :, 7 + 1, 7 - 2] - keys).abs().max() < 1e-5
    i, j = queries.unbind(1)
    for layer, parts in enumerate(score_parts(model, images[:3])):
        for name, part in zip(("content", "row", "column"), parts, strict=True):
            assert torch.allclose(
                attention[f"image_{name}_scores"][:, layer].float(), part[:, :, i, j], atol=1e-3
            ), name
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
    right, wrong = -math.log(math.e / (math.e + 2)), -math.log(1 / (math.e + 2))
    assert accuracy == 210 / 250 and loss == pytest.approx((210 * right + 40 * wrong) / 250)
    assert model.training


def test_evaluation_keeps_the_mode_of_each_module():
    class Failing(nn.Module):
        def forward(self, x):
            raise RuntimeError("no")

    images, labels = torch.zeros(250, 1, 8, 8, dtype=torch.uint8), torch.zeros(250).long()
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
    modes, compile = [], torch.compile

    def compiled_once(model, mode, **options):
        modes.append(mode)
        return compile(model, mode=mode, **options)

    monkeypatch.setattr(torch, "compile", compiled_once)
    values = {"dropout": 0.0, "attention_dropout": 0.0, "train_images": 100, "epochs": 1}
    plain, compiled = (
        train(small(tmp_path / mode, compile=mode, **values), DIGITS) for mode in ("off", "default")
    )
    assert modes == [compiled.record.info.parameters["compile"]] == ["default"]
    for name in ("train_loss", "test_loss"):
        assert compiled.record.metrics[0][name] == pytest.approx(
            plain.record.metrics[0][name], rel=1e-4
        )


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
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
    assert optimizer.state[conv.weight]["momentum_buffer"].stride() != conv.weight.stride()
    before = optimizer.state[conv.weight]["momentum_buffer"].clone()
    lay_out_as_parameters(optimizer)
    after = optimizer.state[conv.weight]["momentum_buffer"]
    assert after.stride() == conv.weight.stride() and torch.equal(after, before)


def test_a_gpu_that_is_not_there(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(
        ValueError,
        match="device = 'cuda': torch finds no CUDA GPU; expected one, or device = 'cpu'",
    ):
        train(small(tmp_path, device="cuda"), DIGITS)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_each_model_trains_on_cifar10(model, cifar10_root, tmp_path):
    """Two epochs with the paper's recipe, on so many images and so narrow a network that it takes
    seconds."""
    images = {"resnet18": 100, "sa-learned-content": 300}.get(model, 2000)
    given = {
        "model": model,
        "dataset": "cifar10",
        "epochs": 2,
        "train_images": images,
        "test_images": 100,
        "parent_epochs": 1,
    }
    given |= {"num_layers": 1, "hidden": 16, "intermediate": 16} if model != "resnet18" else {}
    places = {
        "runs": str(tmp_path / "runs"),
        "checkpoints": str(tmp_path / "checkpoints"),
        "data_root": str(cifar10_root),
    }
    record = train(RunParameters.check(given | places)).record
    check_record(record, model, epochs=2)
    assert (
        record.info.dataset["fingerprint"] == CIFAR10_FINGERPRINT
        and record.info.parameters["optimizer"] == "sgd"
    )
    assert ("photograph_content_scores" in record.attention) == (model == "sa-learned-content")


# --- processes and the command line ---------------------------------------------------------------


def as_words(parameters):
    words = ["train"]
    for name, value in parameters.model_dump().items():
        words += [f"--{name}", value] if value != "" else []
    return words


@pytest.mark.parametrize("model", ["sa-quadratic", "sa-learned-content"])
def test_two_processes_are_one_with_the_same_batch(model, tmp_path):
    """Batches of 50 and a last one of 29: the shares are uneven. Without dropout, which each
    process draws for itself."""
    values = {
        "model": model,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "train_images": 329,
        "optimizer": "sgd",
    }
    one = train(small(tmp_path / "one", **values), DIGITS).record
    torchrun = (
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "attnconv",
    )
    parameters = small(tmp_path / "two", **values)
    shell = command_line(*as_words(parameters), launcher=torchrun)
    assert shell.returncode == 0, shell.stderr[-3000:]
    two = load_run(parameters.record_folder)
    assert two.info.hardware["processes"] == 2 and two.info.status == "finished"
    for ours, theirs in zip(one.metrics, two.metrics, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
        assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-5)
        assert ours["test_accuracy"] == theirs["test_accuracy"]


def test_two_processes_stop_and_go_on(tmp_path):
    """Stopped in mid-epoch by a signal that arrives twice, as from a scheduler through the
    launcher."""
    torchrun = (
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "attnconv",
    )
    values = {
        "epochs": 3,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "batch_size": 2,
        "checkpoint_every": 100,
    }
    whole = train(small(tmp_path / "whole", **values), DIGITS).record
    parameters = small(tmp_path / "parts", **values)
    program = "from companion.training.learner import Learner\nimport os, signal, sys\n"
    program += "def step(self, *batch, real=Learner.train_step):\n    real(self, *batch)\n"
    program += "    if (self.progress.epoch, self.progress.step) == (1, 60):\n"
    program += (
        "        os.kill(os.getpid(), signal.SIGTERM)\n        os.kill(os.getpid(),"
        " signal.SIGTERM)\n"
    )
    program += (
        "Learner.train_step = step\nfrom companion.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    (tmp_path / "stopped.py").write_text(program)
    stopped = command_line(
        *as_words(parameters), launcher=(*torchrun[:-2], str(tmp_path / "stopped.py"))
    )
    assert (
        stopped.returncode != 0
        and "stopped by SIGTERM in epoch 2, step 100; a checkpoint was written" in stopped.stderr
    )
    assert load_run(parameters.record_folder).info.status == "stopped"
    shell = command_line(*as_words(parameters), launcher=torchrun)
    assert shell.returncode == 0 and "resumed at epoch 1 of 3, step 100" in shell.stdout, (
        shell.stderr[-3000:]
    )
    parts = load_run(parameters.record_folder)
    for ours, theirs in zip(whole.metrics, parts.metrics, strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)
        assert ours["train_accuracy"] == pytest.approx(theirs["train_accuracy"], abs=0.01)


def test_processes_with_folders_of_their_own_are_refused(tmp_path):
    """One finds a checkpoint and the other does not."""
    parameters = small(tmp_path / "0", epochs=2)
    train(small(tmp_path / "0", epochs=2), DIGITS)
    # the last one: it is at the first epoch again
    Checkpoints(parameters.checkpoint_folder).paths()[0].unlink()
    (parameters.record_folder / "run.json").unlink()
    program = "import os, sys\nfrom companion.cli import main\n"
    program += f"folder = '{tmp_path}/' + os.environ['RANK']\n"
    program += (
        "sys.exit(main(sys.argv[1:] + ['--runs', folder, '--checkpoints', folder +"
        " '/checkpoints']))\n"
    )
    (tmp_path / "apart.py").write_text(program)
    words = [str(word) for word in as_words(parameters)]
    words = [w for i, w in enumerate(words) if not {w, words[i - 1]} & {"--runs", "--checkpoints"}]
    torchrun = (
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(tmp_path / "apart.py"),
    )
    shell = command_line(*words, launcher=torchrun)
    assert (
        shell.returncode != 0
        and "the processes found different checkpoints (steps done: [7, 0])" in shell.stderr
    )


def test_a_notebook_launches_two_processes(tmp_path):
    """As from a notebook's cell: `train` forks them. In a process of its own, since a fork copies
    this one's threads."""
    parameters = small(tmp_path, processes=2)
    program = "from companion.runs.parameters import *; from companion.training.loop import *\n"
    program += f"print(train(RunParameters.check({parameters.model_dump()!r})))"
    shell = command_line("-c", program, launcher=())
    assert shell.returncode == 0, shell.stderr[-3000:]
    assert load_run(parameters.record_folder).info.hardware["processes"] == 2


def test_the_command_line_trains_stops_and_goes_on(tmp_path):
    parameters = small(tmp_path, epochs=300, checkpoint_every=100)
    shell = subprocess.Popen(
        [sys.executable, "-m", "attnconv", *map(str, as_words(parameters))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # not load_run, which may meet the moment between the new metrics.csv and its run.json
    table = parameters.record_folder / "metrics.csv"
    while not table.exists() or len(table.read_text().splitlines()) < 2:
        assert shell.poll() is None, shell.communicate()
        time.sleep(0.05)
    shell.terminate()
    _, errors = shell.communicate(timeout=60)
    assert (
        shell.returncode == 128 + signal.SIGTERM
        and "stopped by SIGTERM in epoch" in errors
        and "Traceback" not in errors
    )
    assert "training:" not in errors, "no progress bar where there is no terminal"
    done = load_run(parameters.record_folder).info.epochs_done
    left = Checkpoints(parameters.checkpoint_folder).read().progress
    assert left.epoch == done and len(left.metrics) == done


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "--epoch", "3"), "error: unknown parameter epoch = 3. Known parameters: model"),
        (("train", "--epochs=ten"), "error: epochs = 'ten': Input should be a valid integer"),
        (
            ("train", "--model", "resnet"),
            "error: model = 'resnet': expected one of resnet18, sa-quadratic",
        ),
        (("train", "much"), "error: got the argument 'much', expected --name value"),
        (
            ("data", "--dataset", "mnist"),
            "error: unknown dataset 'mnist', expected digits or cifar10",
        ),
        (("runs", "--all"), "error: unknown argument --all"),
    ],
)
def test_the_command_line_refuses_by_name(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_command_line_lists_records(tmp_path, capsys):
    assert (
        main(("runs", "--runs", str(tmp_path))) == 0
        and capsys.readouterr().out == "no run records\n"
    )
    record = train(small(tmp_path, epochs=1), DIGITS).record
    assert main(("runs", "--runs", str(tmp_path / "runs"))) == 0
    assert f"| 1 of 1 | {record.info.final_test_accuracy:.4f} (" in capsys.readouterr().out
    (record.folder / "run.json").write_text("{}")
    assert main(("runs", "--runs", str(tmp_path / "runs"))) == 1
    assert "run.json is damaged: status Field required" in capsys.readouterr().err
