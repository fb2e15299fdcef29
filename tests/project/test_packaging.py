"""One set of packages, locked in one place."""

import json
import re
import tomllib
from importlib import metadata

import yaml
from helpers import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import attnconv

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
EVERY = map(Requirement, sum(EXTRAS.values(), PROJECT["dependencies"]))
DIRECT = [requirement for requirement in EVERY if requirement.name != "attnconv"]
LINES = [
    line
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
LOCKED = {
    canonicalize_name(requirement.name): requirement for requirement in map(Requirement, LINES)
}


def locked_version(name):
    (specifier,) = LOCKED[canonicalize_name(name)].specifier
    assert specifier.operator == "=="
    return specifier.version


def test_every_direct_dependency_is_locked_within_its_range():
    for requirement in DIRECT:
        assert requirement.specifier.contains(locked_version(requirement.name)), requirement


def test_the_conda_environment_installs_the_same_set():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    extras = ",".join(sorted(EXTRAS))
    assert pip == ["--constraint constraints.txt", f"--editable .[{extras}]"]
    assert (
        f"--constraint constraints.txt --editable '.[{extras}]'" in (ROOT / "Makefile").read_text()
    )


def test_what_is_installed_is_what_is_locked():
    pending = [Requirement(f"attnconv[{','.join(EXTRAS)}]")]
    seen = set()
    while pending:
        requirement = pending.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if key in seen or (requirement.marker and not requirement.marker.evaluate()):
            continue
        seen.add(key)
        distribution = metadata.distribution(requirement.name)
        if key[0] != "attnconv":
            assert distribution.version == locked_version(requirement.name), requirement
        for needed in map(Requirement, distribution.requires or []):
            wanted = not needed.marker or any(
                needed.marker.evaluate({"extra": extra}) for extra in {"", *requirement.extras}
            )
            if wanted:
                needed.marker = None
                pending.append(needed)


def test_jupyter_book_stays_below_2():
    (requirement,) = [requirement for requirement in DIRECT if requirement.name == "jupyter-book"]
    assert str(requirement.specifier) == "<2,>=1.0.4.post1"


def test_public_names():
    assert all(getattr(attnconv, name).__doc__ for name in attnconv.__all__)


def test_the_containers_run_the_commands_of_the_readme():
    readme, docker = ((ROOT / name).read_text() for name in ("README.md", "Dockerfile"))
    steps = [line.split(maxsplit=1) for line in docker.splitlines() if line[:1].isupper()]
    commands = [json.loads(rest) for word, rest in steps if word == "CMD"]
    commands += [rest.split() for word, rest in steps if word == "RUN" and rest[:4] == "make"]
    assert sorted(commands) == [["make", "book"], ["make", "serve", "BIND=0.0.0.0"]]
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make book"
    assert "\nmake book " in readme and "`make serve`" in readme
    [image] = [rest for word, rest in steps if word == "FROM"]
    versions = {re.search(r"\d+\.\d+", name)[0] for name in (image, container["image"])}
    assert versions <= {"3.11", "3.12"} and "Python 3.11 or 3.12" in readme
