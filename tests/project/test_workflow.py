"""The sweep over models and seeds, where Snakemake is installed."""

import re

import pytest
from helpers import ROOT
from helpers.runs import check_record
from helpers.workflow import snakemake

from companion.runs.record import find_runs
from companion.specs import ARMS, MODELS

pytestmark = pytest.mark.slow

pytest.importorskip("snakemake", reason='the extra "workflow" is not installed')


def test_the_dry_run_plans_every_model(tmp_path):
    run = snakemake(tmp_path, "--dry-run")
    assert run.returncode == 0, run.stderr
    planned = set(re.findall(r"wildcards: model=([a-z0-9-]+), seed=0", run.stdout))
    assert planned == set(MODELS) and re.search(r"train +7", run.stdout)
    assert len(re.findall(r"resources: .*\bgpu=1\b", run.stdout)) == 7
    assert not (tmp_path / "data").exists()


def test_an_arm_of_chapter_15_asks_for_the_cnn_that_it_starts_from(tmp_path):
    run = snakemake(tmp_path, "--dry-run", "--config", "tier=small-free", "seeds=[1]")
    assert run.returncode == 0, run.stderr
    planned = re.findall(r"wildcards: model=([a-z0-9-]+), seed=1", run.stdout)
    assert set(planned) == {"cnn", *ARMS} and planned[0] == "cnn"
    assert "data/runs/freed-25--cifar10-small-free--seed1/attention.safetensors" in run.stdout


def test_the_picture_of_the_graph_is_current(tmp_path):
    run = snakemake(tmp_path, "--rulegraph", "dot")
    rules = set(re.findall(r'label *= *"(\w+)"', run.stdout))
    edges = len(re.findall(r"\d+ *-> *\d+", run.stdout))
    picture = (ROOT / "workflow" / "graph.svg").read_text()
    assert (
        rules
        == set(re.findall(r"<text [^>]*>(\w+)</text>", picture))
        == {"data", "train", "report", "all"}
    )
    assert edges == picture.count('class="edge"')


def test_it_trains_reports_and_keeps_the_notebook_of_a_failed_run(tmp_path):
    quick = ("dataset=digits", "epochs=1", "train_images=100", "hidden=8")
    run = snakemake(tmp_path, "--config", "models=[sa-quadratic]", "seeds=[0,1]", *quick)
    assert run.returncode == 0, run.stderr[-3000:]
    records, problems = find_runs(tmp_path / "data" / "runs")
    assert len(records) == 2 and not problems
    for record in records:
        check_record(record, "sa-quadratic", epochs=1)
    report = (tmp_path / "data" / "cache" / "report-digits.md").read_text()
    assert (
        "sa-quadratic--digits--seed0 | 1 of 1 |" in report
        and "sa-quadratic--digits--seed1 | 1 of 1 |" in report
    )
    again = snakemake(tmp_path, "--config", "models=[sa-quadratic]", "seeds=[0,1]", *quick)
    assert "Nothing to be done" in again.stderr + again.stdout
    failed = snakemake(tmp_path, "--config", "models=[sa-learned]", *quick, "batch_size=0")
    assert failed.returncode != 0
    notebook = tmp_path / "data" / "cache" / "notebooks" / "sa-learned--digits--seed0.ipynb"
    assert "batch_size = 0: Input should be greater than or equal to 1" in notebook.read_text()
    assert len(find_runs(tmp_path / "data" / "runs")[0]) == 2


def test_a_tier_for_some_models_plans_only_these(tmp_path):
    run = snakemake(tmp_path, "--dry-run", "--config", "tier=small-half")
    assert run.returncode == 0, run.stderr
    planned = re.findall(r"wildcards: model=([a-z0-9-]+), seed=0", run.stdout)
    assert sorted(planned) == ["resnet18", "sa-quadratic"]
