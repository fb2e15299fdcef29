"""Buttons to the repository, Binder and Colab: from one setting, and none without it."""

import json
import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
import yaml
from helpers import ROOT
from sphinx.errors import ConfigError

sys.path.insert(0, str(ROOT / "book" / "ext"))
sys.path.insert(0, str(ROOT / "tools"))
import chaptertimes
import colab
from hosting import ADDRESS, MEASURED, theme_options

EXTENSIONS = ["myst_nb", "sphinx_book_theme", "hosting"]
PEAKS = {
    name: found["peak_mib"] for name, found in json.loads(MEASURED.read_text())["chapters"].items()
}
SMALL, LARGE = min(PEAKS, key=PEAKS.get), max(PEAKS, key=PEAKS.get)
REPOSITORY = "https://github.com/owner/name"


def build(tmp_path, repository):
    """Build a page and two chapters, one that needs little memory and one that needs more than
    Binder has, with the book's theme; return their HTML."""
    notebook = (
        '{"cells": [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Chapter"}],'
        ' "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},'
        ' "nbformat": 4, "nbformat_minor": 5}'
    )
    (tmp_path / "index.md").write_text(f"# Page\n\n```{{toctree}}\n{SMALL}\n{LARGE}\n```\n")
    for name in (SMALL, LARGE):
        (tmp_path / f"{name}.ipynb").write_text(notebook)
    settings = {"extensions": EXTENSIONS, "html_theme": "sphinx_book_theme"}
    lines = [f"import sys; sys.path.insert(0, {str(ROOT / 'book' / 'ext')!r})"]
    lines += [f"{name} = {value!r}" for name, value in settings.items()]
    (tmp_path / "conf.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(tmp_path), str(tmp_path / "html")]
    environment = {"PATH": "/usr/bin:/bin"} | repository
    subprocess.run(command, check=True, env=environment, timeout=300)
    return [(tmp_path / "html" / f"{name}.html").read_text() for name in ("index", SMALL, LARGE)]


def hosts(html):
    """The addresses that links lead to, and those that the page itself would request.

    The page's own address, its canonical link, is not requested.
    """
    links = set(re.findall(r'<a\b[^>]*\bhref="https?://([^/"]+)', html))
    requested = set(
        re.findall(
            r'<(?:script|link(?! rel="canonical")|img)\b[^>]*\b(?:src|href)="https?://([^/"]+)',
            html,
        )
    )
    return links - {"sphinx-doc.org", "www.sphinx-doc.org"}, requested


def test_with_the_setting_pages_link_to_the_repository(tmp_path):
    page, small, large = build(tmp_path, {ADDRESS: REPOSITORY})
    assert hosts(page) == ({"github.com"}, set())
    colab_alone = {"github.com", "colab.research.google.com"}
    assert hosts(small) == (colab_alone | {"mybinder.org"}, set())
    assert hosts(large) == (colab_alone, set())
    assert f"/owner/name/edit/main/{SMALL}.ipynb" in small
    assert f"/github/owner/name/blob/colab/{SMALL}.ipynb" in small
    assert f"mybinder.org/v2/gh/owner/name/main?urlpath=tree/{SMALL}.ipynb" in small


def test_without_it_no_page_links_to_another_host(tmp_path):
    assert [hosts(html) for html in build(tmp_path, {})] == [(set(), set())] * 3


@pytest.mark.parametrize("address", ["github.com/owner/name", "https://github.com/owner", "x"])
def test_other_addresses_are_refused(address):
    with pytest.raises(ConfigError, match=r"expected https://github\.com/OWNER/NAME"):
        theme_options(address, "main")


WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
JOBS = {f"{name}.{job}": about for name, w in WORKFLOWS.items() for job, about in w["jobs"].items()}


@pytest.mark.skipif(not shutil.which("actionlint"), reason="actionlint is not on the PATH")
def test_the_workflows_pass_actionlint():
    paths = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    run = subprocess.run(["actionlint", *paths], capture_output=True, text=True)
    assert paths and run.returncode == 0, run.stdout


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_starts_only_for_commits_that_cannot_write(name):
    """Other triggers hand a token with write permissions to a commit from anywhere."""
    workflow = WORKFLOWS[name]
    assert set(workflow[True]) <= {"push", "pull_request", "schedule"}  # YAML reads "on" as True
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("name", JOBS)
def test_only_what_the_tests_have_passed_is_published(name):
    job, workflow = JOBS[name], WORKFLOWS[name.partition(".")[0]]
    for step in job["steps"]:
        if "uses" in step:  # a tag can move to other code, a commit cannot
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False and "ref" not in step["with"]
        assert "${{" not in step.get("run", ""), "pass it through env, where it cannot be code"
    if "write" in job.get("permissions", {}).values():
        above = [job]
        while "needs" in above[-1]:
            above.append(workflow["jobs"][above[-1]["needs"]])
        assert above[-1] is workflow["jobs"]["test"]
        condition = "github.event_name == 'push' && github.ref == 'refs/heads/main'"
        assert condition in [each.get("if") for each in above]


def test_the_workflow_gives_the_setting():
    commands = [step.get("run", "") for job in JOBS.values() for step in job["steps"]]
    address = '"$GITHUB_SERVER_URL/$GITHUB_REPOSITORY"'
    assert f"make book {ADDRESS}={address}" in commands
    [colab] = [command for command in commands if "colab" in command]
    assert f"tools/colab.py {address}" in colab
    assert colab.rstrip().endswith(":refs/heads/colab")


def test_every_chapter_was_measured():
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == PEAKS.keys()
    assert PEAKS[SMALL] < 1024 < PEAKS[LARGE]


def test_a_chapter_says_how_much_memory_it_needs(monkeypatch):
    monkeypatch.delenv(ADDRESS, raising=False)
    said = chaptertimes.memory(f"notebooks/{LARGE}")
    assert said == f"; needs up to {PEAKS[LARGE] / 1024:.2f} GB of memory"
    monkeypatch.setenv(ADDRESS, REPOSITORY)
    assert "Binder is not offered here" in chaptertimes.memory(f"notebooks/{LARGE}")
    assert "Binder" not in chaptertimes.memory(f"notebooks/{SMALL}")


@pytest.fixture
def first_cell(tmp_path):
    """The first cell of a chapter that was prepared for Colab."""
    path = shutil.copy(ROOT / "notebooks" / f"{SMALL}.ipynb", tmp_path)
    before = nbformat.read(path, 4).cells
    for _ in range(2):  # doing it again changes nothing
        colab.add_cell(path, REPOSITORY, "main")
    first, *others = nbformat.read(path, 4).cells
    assert others == before and "remove-cell" in first.metadata.tags
    return first.source


def test_the_first_cell_does_nothing_where_the_package_is(first_cell, monkeypatch):
    monkeypatch.setattr(subprocess, "run", None)
    exec(first_cell, {})


def test_the_first_cell_fetches_and_installs_the_package(first_cell, monkeypatch):
    commands, before = [], list(sys.path)
    monkeypatch.setattr(subprocess, "run", lambda words, check: commands.append(" ".join(words)))
    monkeypatch.setattr(os, "chdir", commands.append)
    monkeypatch.setattr(sys, "path", [*before])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(first_cell, {})
    fetch, install, folder = commands
    assert fetch == f"git clone --quiet --depth 1 --branch main {REPOSITORY} attnconv"
    assert install.endswith("-m pip install --quiet --editable attnconv[book]")
    assert folder == "attnconv/notebooks"
    assert [each for each in sys.path if each not in before] == [os.path.abspath("attnconv/src")]


def test_binder_installs_the_locked_versions_for_cpus(tmp_path):
    """With stand-ins for mamba and python that write down what they are asked."""
    for name in ("mamba", "python"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    script, path = ROOT / ".binder" / "postBuild", f"{tmp_path}:/usr/bin:/bin"
    run = subprocess.run([script], env={"PATH": path}, cwd=ROOT, capture_output=True, text=True)
    mamba, pip = run.stdout.splitlines()
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    locked = dict(line.split("==") for line in lines if not line.startswith("#"))
    packages = f"pytorch-cpu=={locked['torch']} torchvision=={locked['torchvision']}"
    assert mamba == f"mamba install --yes --quiet --channel conda-forge {packages}"
    assert pip.endswith("--constraint constraints.txt --editable .[book,lab]")
    environment = yaml.safe_load((ROOT / ".binder" / "environment.yml").read_text())
    assert environment["dependencies"] == ["python=3.12", "pip"]
