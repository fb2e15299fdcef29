"""Records as the pages see them: which count, what stands where there is none, and the command that
repeats a run."""

import re
import shutil

import pytest
from helpers.synthetic import CIFAR10, write_record

from attnconv import figures
from companion import cli as command_line
from companion.display import Note, figure_or_note, tier_note
from companion.runs.parameters import RunParameters
from companion.runs.record import load_run
from companion.runs.select import Records, command_of, other_than_the_recipe
from companion.specs import MODELS
from companion.training import quick


@pytest.fixture
def folder(paper_records, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(paper_records, tmp_path / "runs")


def test_records_are_found_by_model_and_seed(folder):
    write_record(folder, "resnet18", seed=10)
    write_record(folder, "resnet18", seed=9)
    records = Records.read(folder)
    assert [record.name for record in records.of("sa-learned", "resnet18")] == [
        "sa-learned--cifar10--seed0",
        *(f"resnet18--cifar10--seed{seed}" for seed in (0, 9, 10)),
    ]
    assert not any(records.state(model) for model in MODELS)


def test_what_is_not_a_finished_run_of_the_recipe_on_all_of_cifar10_is_not_shown(tmp_path):
    write_record(tmp_path, "sa-quadratic", status="stopped", attention={})
    write_record(tmp_path, "sa-generalized", dataset=CIFAR10 | {"train_images": 2000})
    write_record(tmp_path, "sa-learned", dataset=CIFAR10 | {"fingerprint": "0" * 64})
    parameters = write_record(tmp_path, "sa-learned-content").info.parameters
    other = {"hidden": 64, "optimizer": "adamw"}
    write_record(tmp_path, "sa-learned-content", parameters=parameters | other)
    records = Records.read(tmp_path)
    assert not records.of(*MODELS)
    assert records.state("sa-quadratic") == "unfinished: 3 of 3 epochs"
    assert records.state("resnet18") == "not run"
    text = "left out: 2,000 + 10,000 images, not the whole of CIFAR-10"
    assert records.state("sa-generalized") == text
    assert records.state("sa-learned").startswith("left out: ")
    text = "left out: another recipe, optimizer = adamw, hidden = 64"
    assert records.state("sa-learned-content") == text
    assert text in repr(figure_or_note(records, figures.figure_6, "sa-learned-content"))


def test_a_shorter_schedule_and_another_seed_are_of_the_recipe(tmp_path):
    write_record(tmp_path, "resnet18", seed=5)
    records = Records.read(tmp_path)
    other = {"seed": 5, "epochs": 3, "precision": "bfloat16"}
    assert other_than_the_recipe(records.of("resnet18")[0]) == other


def test_tiers_are_kept_apart(tmp_path):
    for model, tier in (
        *(("sa-quadratic", tier) for tier in ("paper", "small", "small-long")),
        ("sa-learned", "small"),
    ):
        write_record(tmp_path, model, tier=tier)
    records = Records.read(tmp_path)
    for tier, models in {
        "paper": ["sa-quadratic--cifar10"],
        "small": ["sa-quadratic--cifar10-small", "sa-learned--cifar10-small"],
        "small-long": ["sa-quadratic--cifar10-small-long"],
    }.items():
        found = [record.name for record in records.at(tier).of(*MODELS)]
        assert found == [f"{model}--seed0" for model in models]
    assert records.state("sa-learned") == "not run" and not records.at("small").state("sa-learned")
    assert records.choose_tier("auto", "sa-quadratic").tier == "paper"
    assert records.choose_tier("small", "sa-quadratic").tier == "small"
    assert records.choose_tier("auto", "sa-quadratic", "sa-learned").tier == "small"
    chosen = records.choose_tier("auto", "sa-learned", "resnet18")
    note = repr(tier_note(chosen, "sa-quadratic", "sa-learned", "resnet18"))
    text = "Figures and tables show the small tier; resnet18 on digits (Small tier: not run)."
    assert note.startswith(text)
    assert repr(tier_note(records, "resnet18")).startswith(
        "Figures and tables show the quick tier; resnet18 on digits (Paper tier"
    )
    assert "not been run for sa-learned, resnet18." in note
    assert note.endswith("--model sa-learned --dataset cifar10")
    assert repr(tier_note(records, "sa-quadratic")) == "Figures and tables show the paper tier."


def test_the_run_of_a_model_is_its_first_or_else_one_on_digits(tmp_path, monkeypatch):
    for seed in (2, 1):
        write_record(tmp_path, "sa-quadratic", seed=seed)
    monkeypatch.setattr(quick, "quick_run", lambda model, seed: f"{model} on digits, seed {seed}")
    records = Records.read(tmp_path)
    assert quick.best_run(records, "sa-quadratic").name == "sa-quadratic--cifar10--seed1"
    assert quick.best_run(records, "sa-learned", 3) == "sa-learned on digits, seed 3"


def test_a_small_run_of_another_recipe_is_left_out_by_name(tmp_path):
    parameters = write_record(tmp_path, "sa-quadratic", tier="small").info.parameters
    changed = parameters | {"epochs": 3, "override": True}
    write_record(tmp_path, "sa-quadratic", tier="small", parameters=changed)
    records = Records.read(tmp_path, "small")
    assert not records.of("sa-quadratic")
    assert records.state("sa-quadratic") == "left out: another recipe, epochs = 3"
    command = command_of(load_run(tmp_path / "sa-quadratic--cifar10-small--seed0"))
    assert "--tier small --override True" in command and "--epochs 3" in command


@pytest.mark.parametrize("file", ["run.json", "metrics.csv", "attention.safetensors"])
@pytest.mark.parametrize("damage", ["deleted", "truncated", "changed"])
def test_a_damaged_record_is_named_and_not_drawn(folder, file, damage):
    path = folder / "sa-quadratic--cifar10--seed0" / file
    content = path.read_bytes()
    if damage == "deleted":
        path.unlink()
    else:
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.write_bytes(content[:middle] if damage == "truncated" else changed)
    records = Records.read(folder)
    state = records.state("sa-quadratic")
    assert state.startswith("damaged: ") and str(folder) not in state
    note = figure_or_note(records, figures.figure_4, "sa-quadratic")
    assert isinstance(note, Note)
    assert "damaged" in repr(note) and "sa-quadratic--cifar10--seed0" in repr(note)
    assert records.of("sa-learned"), "the others are still there"


def test_a_record_that_is_damaged_after_it_was_read_is_drawn_as_it_was(folder):
    """Reading verifies everything that is drawn; reading again finds the damage."""
    records = Records.read(folder)
    (folder / "sa-quadratic--cifar10--seed0" / "attention.safetensors").write_bytes(b"no")
    drawn = figure_or_note(records, lambda record: record.history, "sa-quadratic")
    assert drawn.epochs.tolist() == [0, 1, 3]
    note = figure_or_note(Records.read(folder), figures.figure_4, "sa-quadratic")
    assert isinstance(note, Note) and "is damaged" in repr(note)


def test_a_note_is_html_that_can_be_copied_from():
    note = figure_or_note(Records([], {}), figures.figure_4, "sa-quadratic")
    assert repr(note) == (
        "Paper tier, sa-quadratic on CIFAR-10: not run. This command creates the record on a GPU:"
        " .venv/bin/python -m attnconv train --model sa-quadratic --dataset cifar10"
    )
    assert "<pre>.venv/bin/python -m attnconv train" in re.sub("</?span>", "", note._repr_html_())
    assert "&lt;b&gt;" in Note.of("<b>")._repr_html_()


@pytest.mark.parametrize("tier", ["paper", "small"])
@pytest.mark.parametrize("model", sorted(MODELS))
def test_the_command_repeats_the_run(model, tier, tmp_path, monkeypatch):
    record = write_record(tmp_path, model, seed=3, tier=tier)
    command = command_of(record)
    assert "--seed 3" in command
    assert "--learning_rate" not in command and "--override" not in command
    assert ("--epochs 3" if tier == "paper" else "--tier small") in command
    given = {}

    def remember(texts):
        given.update(texts)
        raise ValueError("enough")

    monkeypatch.setattr(RunParameters, "from_texts", remember)
    assert command_line.main(command.split()[3:]) == 2
    monkeypatch.undo()
    repeated = RunParameters.from_texts(given).identity()
    assert repeated == RunParameters.check(record.info.parameters).identity()


def digits_command(folder, hardware, **values):
    """Return the command of a run on digits that had this hardware."""
    given = RunParameters.check({"model": "sa-learned", "device": "cpu"} | values).model_dump()
    hardware = {"device": "a CPU", "processes": 1} | hardware
    return command_of(write_record(folder, "sa-learned", parameters=given, hardware=hardware))


def test_the_command_of_a_quick_run_has_its_threads_and_a_folder_of_its_own(tmp_path):
    assert digits_command(tmp_path, {"threads": 1}, epochs=2) == (
        "OMP_NUM_THREADS=1 .venv/bin/python -m attnconv train --model sa-learned --dataset digits"
        " --epochs 2 --runs repeated"
    )


@pytest.mark.parametrize("others", ["", ":libjemalloc.so.2"])
def test_the_command_names_the_libraries_that_were_preloaded(others, tmp_path):
    preloaded = f"mkl-on-amd.so{others}"
    found = digits_command(tmp_path, {"threads": 2, "preloaded": preloaded})
    expected = f"OMP_NUM_THREADS=2 LD_PRELOAD=data/cache/{preloaded} .venv/bin/python"
    assert found.startswith(expected)
