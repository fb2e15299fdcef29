"""The small tier: its recipe, its runs and the weights that they leave."""

import math
import shutil

import pytest
import torch
from helpers.runs import check_record, command_line, results, stop_after, untimed

from attnconv import build_model
from companion.accuracy import evaluate
from companion.build import build_network
from companion.data import Batches, Dataset, load_dataset
from companion.data.cifar10 import CIFAR10_CLASSES
from companion.runs.parameters import RunParameters
from companion.runs.record import load_run
from companion.runs.select import Records
from companion.runs.weights import WEIGHTS_FILE, load_model, named_weights, set_weights
from companion.specs import ARMS, FACTORIAL, MODELS, SPECS, VITS
from companion.store import REPOSITORY, DamagedFile
from companion.training.loop import train
from companion.training.machine import Interrupted

pytestmark = pytest.mark.slow

LARGEST_WEIGHTS = 1_500_000  # bytes
SA = sorted(set(MODELS) - {"resnet18"})


def small(**values):
    return RunParameters.check({"dataset": "cifar10", "tier": "small"} | values)


@pytest.fixture(scope="module")
def noise():
    """Images of CIFAR-10's shape with its name: 200 to train on, 60 to test."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (260, 32, 32, 3), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (260,), generator=generator)
    normalisation = {"classes": CIFAR10_CLASSES, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return Dataset(
        "cifar10", images[:200], labels[:200], images[200:], labels[200:], **normalisation
    )


def places(folder):
    return {
        "runs": str(folder / "runs"),
        "checkpoints": str(folder / "checkpoints"),
        "device": "cpu",
    }


def two_steps(folder, **values):
    """The tier's own recipe and networks, for one epoch of two batches."""
    brief = {"epochs": 1, "batch_size": 100, "parent_epochs": 1, "override": True}
    return small(**brief, **places(folder), **values)


# --- the recipe -----------------------------------------------------------------------------------


def test_one_recipe_for_all_attention_models():
    recipes = [small(model=model).identity() for model in SA if model != "sa-generalized-pruned"]
    for other in recipes[1:]:
        assert {name for name in other if other[name] != recipes[0][name]} == {"model"}
    of_the_claims = {
        "num_layers": 6,
        "center_std": 2.0,
        "batch_size": 100,
        "augment": True,
        "alpha_form": "square",
    }
    assert of_the_claims.items() <= recipes[0].items()
    parent = small(model="sa-generalized-pruned", seed=4).parent()
    assert parent == small(model="sa-generalized", seed=4)


def test_what_is_the_tiers_is_refused_by_name_unless_overridden():
    for values, message in [
        (
            {"hidden": 64},
            r"hidden = 64: the tier small has hidden = 60; omit it, or set override to True",
        ),
        ({"epochs": 3}, r"epochs = 3: the tier small has epochs = "),
        ({"weight_decay": 0.1}, r"weight_decay = 0.1: the tier small has weight_decay = 0.0001"),
        ({"model": "resnet18", "width": 64}, r"width = 64: the tier small has width = 10"),
        ({"dataset": "digits"}, r"tier = 'small': expected quick or brief for digits"),
        ({"tier": ["small"]}, r"tier = \['small'\]: Input should be a valid string"),
        (
            {"tier": "tiny"},
            r"tier = 'tiny': expected one of quick, brief, paper, small, small-long, small-free, ",
        ),
        (
            {"tier": "quick"},
            r"tier = 'quick': expected paper or small or small-long or small-free or ",
        ),
        ({"model": "freed-0"}, r"model = 'freed-0', tier = 'small': expected tier = 'small-free'"),
    ]:
        with pytest.raises(ValueError, match=message):
            small(**values)
    assert small(hidden=64, override=True).hidden == 64
    assert small(hidden=60, seed=3, train_images=500, device="cpu", micro_batch=7).hidden == 60, (
        "the tier's own, and what is free"
    )


RATES = {"third": 2.0, "half": 2 ** (math.log(0.5) / math.log(0.3))}  # the pilots' outcome


@pytest.mark.parametrize("model", ["sa-quadratic", "resnet18"])
def test_a_scaled_variant_changes_one_thing_of_the_small_tiers_recipe(model):
    usual = small(model=model).identity()

    def changed(tier):
        other = small(model=model, tier=tier).identity()
        return {name: other[name] for name in other if other[name] != usual[name]}

    assert changed("small-long") == {"tier": "small-long", "epochs": 60}
    for tier, factor in [("third", 0.3), ("half", 0.5), ("double", 2), ("quadruple", 4)]:
        widths = {name: factor * usual[name] for name in ("hidden", "intermediate", "width")}
        rate = changed(f"small-{tier}").get("learning_rate", usual["learning_rate"])
        assert rate == pytest.approx(usual["learning_rate"] * RATES.get(tier, 1.0), rel=1e-3)
        found = changed(f"small-{tier}") | {"learning_rate": rate}
        assert found == {"tier": f"small-{tier}", "learning_rate": rate} | widths
    assert changed("small-double-long").keys() == changed("small-double").keys() | {"epochs"}
    with pytest.raises(ValueError, match="expected sa-quadratic or resnet18 in this tier"):
        small(model="cnn", tier="small-half")


def test_both_models_have_about_the_same_size_at_each_width():
    for tier in ("small-third", "small-half", "small", "small-double", "small-quadruple"):
        ours, theirs = (
            sum(
                p.numel()
                for p in build_network(small(model=m, tier=tier).model_dump()).parameters()
            )
            for m in ("sa-quadratic", "resnet18")
        )
        assert ours == pytest.approx(theirs, rel=0.06)


def test_a_run_of_each_tier_has_a_name_of_its_own():
    names = [
        RunParameters.check({"dataset": "cifar10", "tier": tier}).name
        for tier in ("paper", "small", "small-long")
    ]
    assert names == [
        f"sa-quadratic--cifar10{tier}--seed0" for tier in ("", "-small", "-small-long")
    ]
    assert RunParameters().name == "sa-quadratic--digits--seed0" and RunParameters().tier == "quick"


def test_weights_of_every_model_fit():
    """Float16, as they are written; the largest is the model with content."""
    tiers = dict.fromkeys(ARMS, "small-free") | dict.fromkeys(VITS | FACTORIAL, "vit-10k")
    for model in SPECS:
        parameters = small(model=model, tier=tiers.get(model, "small"))
        network = build_network(parameters.model_dump())
        assert (
            2 * sum(value.numel() for value in named_weights(network).values())
            < LARGEST_WEIGHTS - 20_000
        )
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_held_out_images_take_the_place_of_the_test_images(noise):
    held = noise.hold_out(50)
    assert len(held.train_labels) == 150 and torch.equal(held.test_images, noise.train_images[150:])
    assert torch.equal(torch.cat([held.train_labels, held.test_labels]), noise.train_labels)
    assert noise.hold_out(0) is noise
    with pytest.raises(
        ValueError, match="held_out = 200: expected less than the 200 training images"
    ):
        noise.hold_out(200)


def test_a_narrower_resnet_has_the_shape_of_the_wide_one():
    wide, narrow = build_model("resnet18"), build_model("resnet18", width=10)
    shapes = [
        {name: value.shape for name, value in model.state_dict().items()}
        for model in (wide, narrow)
    ]
    assert shapes[0].keys() == shapes[1].keys()
    for name, shape in shapes[0].items():
        expected = [10 * size // 64 if size not in (1, 3, 10) else size for size in shape]
        assert list(shapes[1][name]) == expected, name


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", sorted(SPECS.keys() - (ARMS | VITS | FACTORIAL).keys()))
def test_two_steps_of_each_model_leave_a_record_and_weights(model, noise, tmp_path):
    run = train(two_steps(tmp_path, model=model), noise)
    check_record(run.record, model, epochs=1)
    assert run.record.tier == "small" and not Records.read(tmp_path / "runs", "small").of(model), (
        "not the whole of CIFAR-10"
    )
    assert (run.record.folder / WEIGHTS_FILE).stat().st_size < LARGEST_WEIGHTS
    again = load_model(model, runs=tmp_path / "runs")
    assert not again.training and again.record.info.parameters == run.record.info.parameters
    images = noise.normalise(noise.test_images)
    with torch.no_grad():
        assert (again(images) - run.model(images)).abs().max() < 2e-2, (
            "equal but for half precision"
        )
    assert again.check["first_test_images"] == 60 and 0 <= again.check["accuracy"] <= 1


@pytest.mark.parametrize("model", ["resnet18", "cnn", "sa-quadratic", "sa-learned-content"])
def test_a_stopped_run_goes_on_bit_for_bit(model, noise, tmp_path, monkeypatch):
    whole = train(two_steps(tmp_path / "whole", model=model), noise)
    stop_after(monkeypatch, 0)
    parameters = two_steps(tmp_path / "parts", model=model)
    with pytest.raises(
        Interrupted, match="stopped by SIGTERM in epoch 1, step 1; a checkpoint was written"
    ):
        train(parameters, noise)
    assert not (parameters.record_folder / WEIGHTS_FILE).exists()
    assert results(train(parameters, noise)) == results(whole)


def test_a_full_disk_leaves_no_record_that_looks_whole(noise, tmp_path, small_files):
    parameters = two_steps(tmp_path)
    with (
        pytest.warns(UserWarning, match="could not be written"),
        pytest.raises(OSError, match="File too large"),
    ):
        train(parameters, noise)
    assert (
        not list(parameters.checkpoint_folder.iterdir())
        and not (parameters.record_folder / "run.json").exists()
    )


@pytest.mark.parametrize("model", ["sa-quadratic", "sa-generalized", "sa-learned-content"])
def test_micro_batches_are_the_batch_up_to_rounding(model, noise, tmp_path, monkeypatch):
    sizes = count_images(monkeypatch)
    runs = []
    for size in (100, 50, 33):
        sizes.clear()
        runs.append(train(two_steps(tmp_path / str(size), model=model, micro_batch=size), noise))
        assert max(sizes) == size
    for run in runs[1:]:
        for ours, theirs in zip(run.metrics, runs[0].metrics, strict=True):
            assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
            assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-4)


def test_a_whole_batch_is_kept_where_its_images_share_something(noise, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "companion.training.learner.LARGEST_BLOCK", 2**20
    )  # bytes, for a few images
    sizes = count_images(monkeypatch)
    for number, values in enumerate(({}, {"model": "resnet18"}, {"attention_dropout": 0.1})):
        sizes.clear()
        train(two_steps(tmp_path / str(number), **values), noise)
        assert max(sizes) == 100 if values else max(sizes) < 10


def count_images(monkeypatch):
    """Return a list to which each training step appends the sizes of its parts."""
    sizes, windows = [], Batches.windows

    def counted(batches, index, *others):
        if len(batches) == 200:  # the training images
            sizes.append(len(index))
        return windows(batches, index, *others)

    monkeypatch.setattr(Batches, "windows", counted)
    return sizes


# --- weights --------------------------------------------------------------------------------------


def test_weights_that_are_not_there_or_damaged(noise, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"there is no run record in .*sa-quadratic--cifar10-small--seed0"
    ):
        load_model("sa-quadratic", runs=tmp_path)
    with pytest.raises(ValueError, match="model = 'sa': expected one of resnet18"):
        load_model("sa")
    record = train(two_steps(tmp_path, seed=1), noise).record
    with pytest.raises(
        FileNotFoundError, match="the weights of sa-quadratic--cifar10-small--seed1 are not stored"
    ):
        load_model("sa-quadratic", seed=1, runs=tmp_path / "runs")
    other = train(two_steps(tmp_path, model="resnet18"), noise).record
    shutil.copy(other.folder / WEIGHTS_FILE, record.folder / WEIGHTS_FILE)
    with pytest.raises(
        DamagedFile,
        match=r"cannot be used: got the weights of another model: .*; restore it from git",
    ):
        load_model("sa-quadratic", seed=1, runs=tmp_path / "runs")
    content = (other.folder / WEIGHTS_FILE).read_bytes()
    (other.folder / WEIGHTS_FILE).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedFile, match="is damaged"):
        load_model("resnet18", runs=tmp_path / "runs")


def test_weights_of_another_shape_are_refused():
    narrow, wide = (torch.nn.Linear(size, 3) for size in (1, 4))
    with pytest.raises(ValueError, match=r"another model: weight \(3, 1\) \(expected \(3, 4\)\)"):
        set_weights(wide, narrow.state_dict())


# --- CIFAR-10 -------------------------------------------------------------------------------------


def test_the_same_command_repeats_a_run_bit_for_bit(cifar10_root, tmp_path):
    words = (
        "--model sa-quadratic --dataset cifar10 --tier small --override True --epochs 2"
        " --train_images 500 --test_images 100"
    )
    records = []
    for name in ("first", "second"):
        folders = [
            "--runs",
            tmp_path / name,
            "--checkpoints",
            tmp_path / name,
            "--data_root",
            cifar10_root,
            "--device",
            "cpu",
        ]
        shell = command_line("train", *words.split(), *folders)
        assert shell.returncode == 0, shell.stderr[-3000:]
        records.append(load_run(tmp_path / name / "sa-quadratic--cifar10-small--seed0"))
    assert untimed(records[0]) == untimed(records[1])
    for name, value in records[0].attention.items():
        assert torch.equal(value, records[1].attention[name])
    assert (records[0].folder / WEIGHTS_FILE).read_bytes() == (
        records[1].folder / WEIGHTS_FILE
    ).read_bytes()


KEPT = sorted(path.parent.name for path in (REPOSITORY / "data" / "runs").glob(f"*/{WEIGHTS_FILE}"))


@pytest.mark.parametrize(
    "name",
    KEPT or [pytest.param("", marks=pytest.mark.skip(reason="no weights are committed yet"))],
)
def test_committed_weights_find_the_recorded_accuracy(name, cifar10_root):
    model_name, data, _ = name.split("--")
    model = load_model(model_name, tier=data.removeprefix("cifar10-"))
    assert (model.record.folder / WEIGHTS_FILE).stat().st_size <= LARGEST_WEIGHTS
    first = load_dataset("cifar10", cifar10_root).subset(None, 1000)
    _, accuracy = evaluate(model, Batches(first, first.test_images, first.test_labels))
    assert model.check["first_test_images"] == 1000
    assert abs(accuracy - model.check["accuracy"]) <= 0.003, (
        "half precision may change an answer or two"
    )
    assert abs(accuracy - model.record.info.final_test_accuracy) <= 0.05, (
        "a tenth of the test images: four standard errors"
    )
