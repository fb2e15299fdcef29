"""A leading `~` in a path that a user gives is the home folder."""

import shutil
from pathlib import Path

import pytest
import torch
from helpers import ROOT

from attnconv import inspect_attention, load_dataset, load_model
from companion.cli import main
from companion.explorer.document import save_html
from companion.runs.parameters import Folders, ResultsParameters, RunParameters
from companion.runs.record import find_runs, load_run
from companion.runs.select import Records
from companion.store import user_path

RUN = "cnn--cifar10-small--seed0"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "home").mkdir()
    yield tmp_path / "home"
    assert not Path("~").exists(), "a folder of this name was created"


def test_only_a_leading_tilde_is_the_home_folder(home):
    assert user_path("~") == home and user_path(Path("~/a")) == home / "a"
    for path in ("a/~", "/~", "x~", "~no-such-user/a", "."):
        assert user_path(path) == Path(path)


def test_every_parameter_that_names_a_folder(home):
    for name in Folders.names():
        for parameters in (RunParameters.check, RunParameters.from_texts):
            assert getattr(parameters({name: "~/a"}), name) == str(home / "a")
            assert getattr(parameters({name: ""}), name) == ""
    names = {"runs": "~/runs"}
    found = ResultsParameters.from_notebook(names, {})
    assert found.runs == str(home / "runs")
    parameters = RunParameters.check({"runs": "~/runs", "checkpoints": "~/checkpoints"})
    assert parameters.record_folder.parent == home / "runs"
    assert parameters.checkpoint_folder.parent == home / "checkpoints"


def test_trained_models_and_records(home, capsys):
    shutil.copytree(ROOT / "data" / "runs" / RUN, home / "runs" / RUN)
    assert load_model("cnn", runs="~/runs").record.folder == home / "runs" / RUN
    assert load_run(f"~/runs/{RUN}").folder == home / "runs" / RUN
    assert [record.name for record in find_runs("~/runs")[0]] == [RUN]
    assert [record.name for record in Records.read("~/runs").found] == [RUN]
    assert main(["runs", "--runs=~/runs"]) == 0 and "cnn" in capsys.readouterr().out
    assert main(["runs", "--runs=~/none"]) == 2
    assert f"there is no folder {home}/none" in capsys.readouterr().err


def test_training_writes_below_the_home_folder(home):
    folders = ["--runs=~/runs", "--checkpoints=~/checkpoints", "--data_root=~/data"]
    few = "--epochs 1 --train_images 20 --test_images 10 --checkpoint_every 1 --device cpu"
    assert main(["train", *few.split(), *folders]) == 0
    assert sorted(path.name for path in home.iterdir()) == ["checkpoints", "runs"]


def test_the_data_folder(home, monkeypatch):
    asked = []
    monkeypatch.setattr("companion.data.load.read_cifar10", asked.append)
    load_dataset("cifar10", "~/data")
    monkeypatch.setenv("ATTNCONV_DATA", "~/other")
    load_dataset("cifar10")
    assert asked == [home / "data", home / "other"]


def test_the_report_of_an_inspection(home):
    maps = torch.randn(1, 2, 3, 3, 9).softmax(dim=-1).unflatten(-1, (3, 3))
    assert save_html(inspect_attention([maps]), "~/a.html") == home / "a.html"
    assert (home / "a.html").exists()
