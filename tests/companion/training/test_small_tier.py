"""The small tier: its recipe, its runs and the weights that they leave."""

import math
import shutil
from importlib.util import find_spec

import pytest
import torch
from helpers.runs import check_record, command_line, results, stop_after, two_steps, untimed

from attnconv import build_model
from companion.accuracy import evaluate
from companion.build import build_network
from companion.data import Batches, load_dataset
from companion.runs.parameters import RunParameters
from companion.runs.record import load_run
from companion.runs.select import Records
from companion.runs.weights import WEIGHTS_FILE, load_model, named_weights, set_weights
from companion.specs import ARMS, FURTHER_VITS, LITE, MODELS, SPECS, VITS
from companion.store import REPOSITORY, DamagedFile
from companion.training.loop import train
from companion.training.machine import Interrupted

pytestmark = pytest.mark.slow

needs_timm = pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed")
LARGEST_WEIGHTS = 1_500_000  # bytes
SA = sorted(set(MODELS) - {"resnet18"})


def small(**values):
    return RunParameters.check({"dataset": "cifar10", "tier": "small"} | values)


# --- the recipe -----------------------------------------------------------------------------------


def test_one_recipe_for_all_attention_models():
    recipes = [small(model=model).identity() for model in SA if model != "sa-generalized-pruned"]
    for other in recipes[1:]:
        assert {name for name in other if other[name] != recipes[0][name]} == {"model"}
    of_the_claims = {"num_layers": 6, "center_std": 2.0, "batch_size": 100}
    of_the_claims |= {"augment": True, "alpha_form": "square"}
    assert of_the_claims.items() <= recipes[0].items()
    parent = small(model="sa-generalized-pruned", seed=4).parent()
    assert parent == small(model="sa-generalized", seed=4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"hidden": 64},
            "hidden = 64: the tier small has hidden = 60; omit it, or set override to",
        ),
        ({"epochs": 3}, r"epochs = 3: the tier small has epochs = "),
        ({"weight_decay": 0.1}, r"weight_decay = 0.1: the tier small has weight_decay = 0.0001"),
        ({"model": "resnet18", "width": 64}, r"width = 64: the tier small has width = 10"),
        ({"dataset": "digits"}, r"tier = 'small': expected quick or brief for digits"),
        ({"tier": ["small"]}, r"tier = \['small'\]: Input should be a valid string"),
        (
            {"tier": "tiny"},
            r"tier = 'tiny': expected one of quick, brief, paper, small, small-long,",
        ),
        ({"tier": "quick"}, r"tier = 'quick': expected paper or small or small-long or small-free"),
        ({"model": "freed-0"}, r"model = 'freed-0', tier = 'small': expected tier = 'small-free'"),
    ],
)
def test_what_is_the_tiers_is_refused_by_name(values, message):
    with pytest.raises(ValueError, match=message):
        small(**values)


def test_what_is_free_or_overridden_is_accepted():
    assert small(hidden=64, override=True).hidden == 64
    free = {"seed": 3, "train_images": 500, "device": "cpu", "micro_batch": 7}
    assert small(hidden=60, **free).hidden == 60, "the tier's own value"


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
    def size(model, tier):
        network = build_network(small(model=model, tier=tier).model_dump())
        return sum(parameter.numel() for parameter in network.parameters())

    for tier in ("small-third", "small-half", "small", "small-double", "small-quadruple"):
        assert size("sa-quadratic", tier) == pytest.approx(size("resnet18", tier), rel=0.06)


def test_a_run_of_each_tier_has_a_name_of_its_own():
    for tier, end in {"paper": "", "small": "-small", "small-long": "-small-long"}.items():
        assert small(tier=tier).name == f"sa-quadratic--cifar10{end}--seed0"
    assert RunParameters().name == "sa-quadratic--digits--seed0" and RunParameters().tier == "quick"


def test_weights_of_every_model_fit():
    """Float16, as they are written; the largest is the model with content."""
    tiers = dict.fromkeys(ARMS, "small-free") | dict.fromkeys(VITS | FURTHER_VITS, "vit-10k")
    for model in SPECS.keys() - LITE.keys():  # whose weights no tier keeps
        network = build_network(small(model=model, tier=tiers.get(model, "small")).model_dump())
        size = 2 * sum(value.numel() for value in named_weights(network).values())
        assert size < LARGEST_WEIGHTS - 20_000
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_held_out_images_take_the_place_of_the_test_images(noise):
    held = noise.hold_out(10)
    assert len(held.train_labels) == 30 and torch.equal(held.test_images, noise.train_images[30:])
    assert torch.equal(torch.cat([held.train_labels, held.test_labels]), noise.train_labels)
    assert noise.hold_out(0) is noise
    with pytest.raises(ValueError, match="held_out = 40: expected less than the 40 training"):
        noise.hold_out(40)


def test_a_narrower_resnet_has_the_shape_of_the_wide_one():
    wide = build_model("resnet18").state_dict()
    narrow = build_model("resnet18", width=10).state_dict()
    assert wide.keys() == narrow.keys()
    for name, value in wide.items():
        expected = [10 * size // 64 if size not in (1, 3, 10) else size for size in value.shape]
        assert list(narrow[name].shape) == expected, name


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", sorted(SPECS.keys() - (ARMS | VITS | FURTHER_VITS | LITE).keys()))
def test_two_steps_of_each_model_leave_a_record_and_weights(model, noise, tmp_path):
    run = train(two_steps(tmp_path, model), noise)
    check_record(run.record, model, epochs=1)
    assert run.record.tier == "small"
    assert not Records.read(tmp_path / "runs", "small").of(model), "not the whole of CIFAR-10"
    assert (run.record.folder / WEIGHTS_FILE).stat().st_size < LARGEST_WEIGHTS
    again = load_model(model, runs=tmp_path / "runs")
    assert not again.training and again.record.info.parameters == run.record.info.parameters
    images = noise.normalise(noise.test_images)
    with torch.no_grad():
        assert (again(images) - run.model(images)).abs().max() < 2e-2, "but for half precision"
    assert again.check["first_test_images"] == 20 and 0 <= again.check["accuracy"] <= 1


@pytest.mark.parametrize(
    ("model", "tier"),
    [
        ("cnn", "small"),
        ("sa-learned-content", "small"),
        pytest.param("vit-convolution", "vit-10k", marks=needs_timm),
    ],
)
def test_a_stopped_run_on_colour_images_goes_on_bit_for_bit(
    model, tier, noise, tmp_path, monkeypatch
):
    whole = train(two_steps(tmp_path / "whole", model, tier), noise)
    stop_after(monkeypatch, 0)
    parameters = two_steps(tmp_path / "parts", model, tier)
    text = "stopped by SIGTERM in epoch 1, step 1; a checkpoint was written"
    with pytest.raises(Interrupted, match=text):
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
    assert not list(parameters.checkpoint_folder.iterdir())
    assert not (parameters.record_folder / "run.json").exists()


@pytest.mark.parametrize("model", ["sa-quadratic", "sa-generalized", "sa-learned-content"])
def test_micro_batches_are_the_batch_up_to_rounding(model, noise, tmp_path, monkeypatch):
    sizes = count_images(monkeypatch)
    runs = []
    for size in (20, 10, 7):
        sizes.clear()
        values = {"micro_batch": size, "num_layers": 2}
        runs.append(train(two_steps(tmp_path / str(size), model, **values), noise))
        assert max(sizes) == size
    for run in runs[1:]:
        for ours, theirs in zip(run.metrics, runs[0].metrics, strict=True):
            assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
            assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-4)


def test_a_whole_batch_is_kept_where_its_images_share_something(noise, tmp_path, monkeypatch):
    # in bytes, for a few images
    monkeypatch.setattr("companion.training.learner.LARGEST_BLOCK", 2**20)
    sizes = count_images(monkeypatch)
    for number, values in enumerate(({}, {"model": "resnet18"}, {"attention_dropout": 0.1})):
        sizes.clear()
        train(two_steps(tmp_path / str(number), **values), noise)
        assert max(sizes) == 20 if values else max(sizes) < 10


def count_images(monkeypatch):
    """Return a list to which each training step appends the sizes of its parts."""
    sizes = []
    windows = Batches.windows

    def counted(batches, index, *others):
        if len(batches) == 40:  # the training images
            sizes.append(len(index))
        return windows(batches, index, *others)

    monkeypatch.setattr(Batches, "windows", counted)
    return sizes


# --- weights --------------------------------------------------------------------------------------


def test_weights_that_are_not_there_or_damaged(noise, tmp_path):
    runs = tmp_path / "runs"
    text = r"there is no run record in .*sa-quadratic--cifar10-small--seed0"
    with pytest.raises(FileNotFoundError, match=text):
        load_model("sa-quadratic", runs=runs)
    with pytest.raises(ValueError, match="model = 'sa': expected one of resnet18"):
        load_model("sa")
    record = train(two_steps(tmp_path, seed=1), noise).record
    text = "the weights of sa-quadratic--cifar10-small--seed1 are not stored"
    with pytest.raises(FileNotFoundError, match=text):
        load_model("sa-quadratic", seed=1, runs=runs)
    other = train(two_steps(tmp_path, "resnet18"), noise).record
    shutil.copy(other.folder / WEIGHTS_FILE, record.folder / WEIGHTS_FILE)
    text = "cannot be used: got the weights of another model; .*; restore it from git"
    with pytest.raises(DamagedFile, match=text):
        load_model("sa-quadratic", seed=1, runs=runs)
    content = (other.folder / WEIGHTS_FILE).read_bytes()
    (other.folder / WEIGHTS_FILE).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedFile, match="is damaged"):
        load_model("resnet18", runs=runs)


def test_weights_of_another_shape_are_refused():
    narrow, wide = (torch.nn.Linear(size, 3) for size in (1, 4))
    with pytest.raises(ValueError, match=r"(?s)another model: .*size mismatch for weight"):
        set_weights(wide, narrow.state_dict())


# --- CIFAR-10 -------------------------------------------------------------------------------------


def test_the_same_command_repeats_a_run_bit_for_bit(cifar10_root, tmp_path):
    words = (
        "--model sa-quadratic --dataset cifar10 --tier small --override True --epochs 2 --device"
        f" cpu --train_images 40 --test_images 20 --data_root {cifar10_root}"
    )
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder in (first, second):
        folders = ("--runs", folder, "--checkpoints", folder)
        shell = command_line("train", *words.split(), *folders)
        assert shell.returncode == 0, shell.stderr[-3000:]
    one, other = (load_run(each / "sa-quadratic--cifar10-small--seed0") for each in (first, second))
    assert untimed(one) == untimed(other)
    for name in ("attention.safetensors", WEIGHTS_FILE):
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()


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
    # half precision may change an answer or two; 0.05 is four standard errors
    assert abs(accuracy - model.check["accuracy"]) <= 0.003
    assert abs(accuracy - model.record.accuracy) <= 0.05
