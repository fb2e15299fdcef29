"""The sweep on a real Slurm cluster, of one node that is started for the test."""

import re
import subprocess

import pytest
from helpers import slurm
from helpers.runs import check_record
from helpers.sweep import snakemake

from companion.runs.record import find_runs

pytestmark = pytest.mark.slow


@pytest.mark.skipif(bool(slurm.why_not()), reason=slurm.why_not())
def test_two_seeds_are_queued_run_and_reported(tmp_path):
    (tmp_path / "slurm").mkdir()
    quick = ("dataset=digits", "epochs=2", "train_images=100", "hidden=8")
    words = ("--config", "models=[sa-quadratic]", "seeds=[0,1]", *quick)
    words = (*words, "--default-resources", "runtime=10", "mem_mb=500", "--latency-wait", "5")
    words = (*words, "--slurm-init-seconds-before-status-checks", "3")
    with slurm.cluster(tmp_path / "slurm") as environment:
        run = snakemake(tmp_path, *words, profile="slurm", environment=environment)
        listing = ["squeue", "--noheader", "--states=all", "--format=%T %k"]
        jobs = subprocess.run(listing, env=environment, capture_output=True, text=True, check=True)
    assert run.returncode == 0, run.stderr[-5000:]
    states, comments = zip(*(line.split(" ", 1) for line in jobs.stdout.splitlines()), strict=True)
    assert set(states) == {"COMPLETED"}, jobs.stdout
    asked = [re.search("rule_(train|data|report)", comment)[1] for comment in comments]
    assert sorted(asked) == ["data", "report", "train", "train"]
    records, problems = find_runs(tmp_path / "data" / "runs")
    assert len(records) == 2 and not problems
    for record in records:
        check_record(record, "sa-quadratic", epochs=2)
    report = (tmp_path / "data" / "cache" / "report-digits.md").read_text()
    assert all(f"sa-quadratic--digits--seed{seed} | 2 of 2 |" in report for seed in (0, 1))
