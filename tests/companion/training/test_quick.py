"""The quick tier's runs are made once, and again when the code changes."""

import os
import shutil
from dataclasses import replace

import pytest
import torch
from helpers import ROOT
from helpers.runs import untimed

from companion.runs.record import load_run
from companion.specs import SPECS
from companion.tiers import TIERS
from companion.training import quick
from companion.training.quick import DIGEST

pytestmark = pytest.mark.slow


@pytest.fixture
def fast(tmp_path, monkeypatch):
    """Runs of a second, in a folder of their own."""
    monkeypatch.setattr(quick, "REPOSITORY", tmp_path)
    short = {"epochs": 1, "train_images": 60, "test_images": 20, "num_layers": 1}
    tier = replace(TIERS["brief"], recipe=TIERS["brief"].recipe | short)
    monkeypatch.setitem(TIERS, "brief", tier)
    recipes = {"sa-generalized": {"checkpoint_every": 1}}
    recipes["sa-generalized-pruned"] = {"parent_epochs": 1}
    for model, recipe in recipes.items():
        monkeypatch.setitem(SPECS, model, replace(SPECS[model], recipes={"brief": recipe}))
    return tmp_path / "data" / "cache"


def test_a_run_is_made_once_and_again_by_other_code(fast, monkeypatch, capsys):
    first = quick.quick_run("sa-quadratic")
    written = (first.folder / "run.json").stat().st_mtime_ns
    again = quick.quick_run("sa-quadratic")
    assert again.metrics == first.metrics and again.info == first.info
    assert (again.folder / "run.json").stat().st_mtime_ns == written, "not trained a second time"
    assert untimed(quick.quick_run("sa-quadratic", seed=1)) != untimed(first)
    assert capsys.readouterr().out == "", "what a run says names folders of this machine"
    (first.folder / "attention.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="attention.safetensors is damaged"):
        assert quick.quick_run("sa-quadratic").attention, "made anew"
    assert (first.folder / "run.json").stat().st_mtime_ns > written
    monkeypatch.setattr(quick, "DIGEST", "other")
    other = quick.quick_run("sa-quadratic")
    assert other.folder != first.folder and untimed(other) == untimed(first)
    old = fast / f"quick-{DIGEST}"
    assert old.exists(), "another build may be using it"
    os.utime(old, (0, 0))
    quick.quick_run("sa-quadratic")
    kept = [path.name for path in fast.iterdir()]
    assert kept == ["quick-other"], "what other code made on another day is removed"


def test_the_digest_follows_the_code_that_computes(tmp_path):
    source = tmp_path / "src"
    for package in ("attnconv", "companion"):
        shutil.copytree(ROOT / "src" / package, source / package)
    assert quick.digest(source) == DIGEST

    def changed(file):
        content = (source / file).read_bytes()
        (source / file).write_bytes(content + b"#")
        after = quick.digest(source)
        (source / file).write_bytes(content)
        return after != DIGEST

    shown = ("figures/style.py", "claims/results.py", "explorer/payload.py", "cli.py")
    for file in (*shown, "studies/starts/figures.py"):
        assert not changed(f"companion/{file}"), file
    assert changed("attnconv/layers/attention.py")
    for file in ("training/loop.py", "store.py", "specs.py", "studies/freed/network.py"):
        assert changed(f"companion/{file}"), file


def test_the_pruned_run_starts_from_the_quick_generalised_one(fast):
    pruned = quick.quick_run("sa-generalized-pruned")
    parent = quick.quick_run("sa-generalized")
    assert pruned.parent["test_accuracy"] == parent.accuracy
    assert load_run(parent.folder).info.epochs_done == 1


def test_the_model_of_a_run_is_kept_where_its_recipe_says_so(fast):
    model = quick.quick_model("sa-generalized")
    trained = quick.quick_run("sa-generalized").attention["layer1.centers"][-1]
    assert torch.equal(model.attentions[0].encoding.centers, trained) and not model.training
    with pytest.raises(ValueError, match="weights of sa-quadratic's quick run are not kept"):
        quick.quick_model("sa-quadratic")


def test_two_at_a_time_are_the_same_runs(tmp_path, monkeypatch):
    """In other processes, which know nothing of this one's changes: the real recipe, of the
    shortest run."""
    records = quick.quick_runs(["sa-quadratic", "sa-learned"])
    assert [record.info.parameters["model"] for record in records] == ["sa-quadratic", "sa-learned"]
    assert records[0].metrics == quick.quick_run("sa-quadratic").metrics
