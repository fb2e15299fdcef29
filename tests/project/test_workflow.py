"""The sweep over models and seeds, where Snakemake is installed."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.pages import text_of
from helpers.runs import check_record
from helpers.sweep import plan, snakemake

sys.path.insert(0, str(ROOT / "tools"))
from sweep import Sweep

from companion.runs.parameters import RunParameters
from companion.runs.record import find_runs
from companion.runs.select import Records
from companion.specs import ARMS, MODELS, SPECS
from companion.tiers import TIERS, tiers_of

needs_snakemake = pytest.mark.skipif(
    importlib.util.find_spec("snakemake") is None, reason='the extra "workflow" is not installed'
)


def planned_by(run):
    assert run.returncode == 0, run.stderr
    return re.findall(r"wildcards: run=([a-z0-9.-]+)", run.stdout)


@pytest.mark.parametrize("tier", TIERS)
def test_the_planned_folder_is_the_one_that_training_writes(tier):
    sweep = Sweep({"tier": tier, "seeds": [0, 3], "results": "out"})
    models = TIERS[tier].models or MODELS
    assert len(sweep.runs) == 2 * len(models)
    for name in sweep.runs:
        words = {key: str(value) for key, value in sweep.parameters(name).items()}
        trained = RunParameters.from_texts(words)
        assert trained.name == name and trained.tier == tier and trained.model in models
        assert Path(sweep.record(name)).parent == trained.record_folder
        assert trained.checkpoint_folder == Path("out/cache/checkpoints", name)
        if parent := sweep.parent(name):
            start = trained.model_copy(update={"model": SPECS[trained.model].parent})
            assert Path(sweep.record(parent)).parent == start.record_folder


def test_the_default_tier_of_a_data_set_is_planned():
    for dataset in ("digits", "cifar10"):
        default = Sweep({"dataset": dataset})
        named = Sweep({"tier": tiers_of(dataset)[0]})
        assert default.runs == named.runs and default.report == named.report


def test_the_names_of_committed_records_are_planned():
    found = Records.read().found
    assert {"small", "small-free", "vit-10k"} <= {record.tier for record in found}
    for record in found:
        given = record.info.parameters
        asked = {"tier": record.tier, "models": [given["model"]], "seeds": [given["seed"]]}
        assert list(Sweep(asked).runs) == [record.name]


@pytest.mark.slow
@needs_snakemake
def test_the_command_of_chapter_18_repeats_the_runs_of_a_start(tmp_path):
    page = text_of("notebooks/18-rotary-starts.ipynb")
    (command,) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    words = shlex.split(command.replace("\\\n", ""))
    run = snakemake(tmp_path, "--dry-run", *words[words.index("--config") :])
    assert set(planned_by(run)) == {
        f"vit-rotary-convolution--cifar10-vit-10k--seed{seed}" for seed in range(3)
    }


def test_checkpoints_and_gpus_follow_the_recipe():
    every = {}
    gpu = {}
    for tier in TIERS:
        sweep = Sweep({"tier": tier})
        name = next(iter(sweep.runs))
        every[tier] = sweep.parameters(name)["checkpoint_every"]
        gpu[tier] = sweep.needs_gpu(name)
    assert every["quick"] == 10  # digits: once, in the end
    assert all(every[tier] == (10 if gpu[tier] else 1) for tier in tiers_of("cifar10"))
    assert [tier for tier in TIERS if gpu[tier]] == ["paper", "vit-lite"]
    changed = Sweep({"tier": "small", "checkpoint_every": 5})
    assert changed.parameters(next(iter(changed.runs)))["checkpoint_every"] == 5


def test_a_model_waits_for_its_parent_only_if_the_parent_is_to_be_trained_too():
    both = Sweep({"tier": "small", "models": ["sa-generalized", "sa-generalized-pruned"]})
    [parent, pruned] = both.runs
    assert both.parent(pruned) == parent and both.parent(parent) is None
    alone = Sweep({"tier": "small", "models": ["sa-generalized-pruned"]})
    assert alone.parent(pruned) is None


def test_a_model_that_a_tier_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"expected vit-default or .* in this tier"):
        Sweep({"tier": "vit-10k", "models": ["cnn"]})


@pytest.mark.slow
@needs_snakemake
def test_snakemake_plans_the_runs_of_a_sweep(tmp_path):
    run = plan(tmp_path, "--dry-run", "--config", "tier=vit-10k", "seeds=[1]")
    expected = Sweep({"tier": "vit-10k", "seeds": [1]}).runs
    assert sorted(planned_by(run)) == sorted(expected)
    assert "data/runs/vit-default--cifar10-vit-10k--seed1/attention.safetensors" in run.stdout


@pytest.mark.slow
@needs_snakemake
def test_the_dry_run_plans_every_model(tmp_path):
    run = plan(tmp_path, "--dry-run")
    planned = set(planned_by(run))
    assert planned == {f"{model}--cifar10--seed0" for model in MODELS}
    assert re.search(r"train +7", run.stdout)
    assert len(re.findall(r"resources: .*\bgpu=1\b", run.stdout)) == 7
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
@needs_snakemake
def test_an_arm_of_chapter_15_asks_for_the_cnn_that_it_starts_from(tmp_path):
    run = plan(tmp_path, "--dry-run", "--config", "tier=small-free", "seeds=[1]")
    planned = planned_by(run)
    assert set(planned) == {f"{model}--cifar10-small-free--seed1" for model in ("cnn", *ARMS)}
    assert planned[0] == "cnn--cifar10-small-free--seed1"
    assert "data/runs/freed-25--cifar10-small-free--seed1/attention.safetensors" in run.stdout


@pytest.mark.slow
@needs_snakemake
def test_the_picture_of_the_graph_is_current(tmp_path):
    run = plan(tmp_path, "--rulegraph", "dot")
    rules = set(re.findall(r'label *= *"(\w+)"', run.stdout))
    edges = len(re.findall(r"\d+ *-> *\d+", run.stdout))
    picture = (ROOT / "tools" / "graph.svg").read_text()
    assert (
        rules
        == set(re.findall(r"<text [^>]*>(\w+)</text>", picture))
        == {"data", "train", "report", "all"}
    )
    assert edges == picture.count('class="edge"')


@pytest.mark.slow
@needs_snakemake
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


@pytest.mark.slow
@needs_snakemake
def test_a_tier_for_some_models_plans_only_these(tmp_path):
    run = plan(tmp_path, "--dry-run", "--config", "tier=small-half")
    names = [f"{model}--cifar10-small-half--seed0" for model in ("resnet18", "sa-quadratic")]
    assert sorted(planned_by(run)) == names
