"""Tests of the files that archives and checkers read: codecheck.yml, ro-crate-metadata.json and
CITATION.cff."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml
from helpers import ROOT
from jsonschema import Draft7Validator
from rocrate.rocrate import ROCrate

sys.path.insert(0, str(ROOT / "tools"))
import metadata

from companion.claims import registry as check
from companion.runs.select import Records

# The schema of the Citation File Format 1.2.0 (https://citation-file-format.github.io, CC BY 4.0).
SCHEMA = ROOT / "tests" / "project" / "schemas" / "citation-file-format-1.2.0.json"
ADDRESS = "https://github.com/owner/name"


@pytest.fixture(scope="module")
def records():
    return Records.read().found


@pytest.fixture(scope="module")
def described(records, tmp_path_factory):
    """A folder with the RO-Crate's metadata and everything in the repository that it lists."""
    folder = tmp_path_factory.mktemp("crate")
    for name in ("data", "notebooks", "proofs", "src", "codecheck.yml"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "ro-crate-metadata.json").write_text(metadata.crate_text(records))
    return folder


@pytest.fixture(scope="module")
def graph(described):
    entities = json.loads((described / "ro-crate-metadata.json").read_text())["@graph"]
    assert len({each["@id"] for each in entities}) == len(entities)
    return {each["@id"]: each for each in entities}


def test_the_committed_file_is_the_generated_one(monkeypatch, tmp_path):
    monkeypatch.delenv("ATTNCONV_REPOSITORY", raising=False)
    metadata.main(tmp_path)
    written, committed = tmp_path / "codecheck.yml", ROOT / "codecheck.yml"
    assert committed.read_text() == written.read_text(), "out of date: run `make readme`"


def test_codecheck_has_what_its_specification_requires():
    text = (ROOT / "codecheck.yml").read_text("utf-8")
    assert text.startswith("%YAML 1.1\n---\n")
    content = yaml.safe_load(text)
    assert content["version"] == "https://codecheck.org.uk/spec/config/1.0/"
    paper = content["paper"]
    assert paper["title"] and paper["authors"][0]["name"] == "Jean-Baptiste Cordonnier"
    assert paper["reference"].startswith("https://")
    assert not {"codechecker", "report", "certificate", "check_time"} & content.keys()
    files = [each["file"] for each in content["manifest"]]
    assert len(set(files)) == len(files) and all((ROOT / file).is_file() for file in files)
    assert {"data/claims.json", "README.md"} <= {*files}
    assert all("; repeat: " in each["comment"] for each in content["manifest"])


def test_the_crate_gives_each_accuracy_as_the_record_has_it(graph):
    runs = [key for key in graph if key.startswith("data/runs/") and key.endswith("/")]
    assert runs
    for key in runs:
        last = (ROOT / key / "metrics.csv").read_text().splitlines()[-1].split(",")
        assert f" {float(last[5]):.4f} after {last[0]} epochs; " in graph[key]["description"]


def test_codecheck_names_the_repository_if_it_is_known(monkeypatch):
    monkeypatch.setenv("ATTNCONV_REPOSITORY", ADDRESS)
    assert metadata.codecheck()["repository"] == ADDRESS


def test_the_crate_is_read_back_and_all_its_files_exist(described):
    crate = ROCrate(described)
    assert crate.name == metadata.read_citation()["title"]
    for each in crate.data_entities:
        assert (ROOT / each.id).exists(), each.id
    assert crate.root_dataset["citation"]["author"][1]["name"] == "Andreas Loukas"
    assert {"name", "description", "datePublished"} <= crate.root_dataset.properties().keys()


def test_each_file_of_the_crate_has_a_name_a_format_and_its_size(graph):
    files = [entity for entity in graph.values() if entity["@type"] == "File"]
    for entity in files:
        assert entity["name"] and "/" in entity["encodingFormat"], entity["@id"]
        assert int(entity["contentSize"]) == (ROOT / entity["@id"]).stat().st_size
    assert len(files) > 100
    about = [
        entity for entity in graph.values() if entity["@type"] in ("Dataset", "Collection", "Claim")
    ]
    assert all(entity["description"] for entity in about)


def test_the_crate_has_the_claims_runs_and_notebooks_of_the_repository(graph):
    claims = json.loads((ROOT / "data" / "claims.json").read_text())
    of_kind = [each for each in graph.values() if each["@type"] == "Claim"]
    assert {each["name"] for each in of_kind} == {claim["name"] for claim in claims}
    notebooks = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks < graph.keys()
    weights = {str(path.relative_to(ROOT)) for path in (ROOT / "data/runs").glob("*/weights.*")}
    assert weights < graph.keys()
    tiers = [each["hasPart"] for key, each in graph.items() if key.startswith("#tier-")]
    runs = [part["@id"] for parts in tiers for part in parts]
    assert len(set(runs)) == len(runs)
    assert set(runs) == {key for key in graph if key.startswith("data/runs/") and key[-1] == "/"}


def test_a_licence_is_named_only_where_the_owner_has_chosen_one(records, graph, monkeypatch):
    citation = metadata.read_citation()
    assert ("license" in graph["./"]) == ("license" in citation)
    monkeypatch.setattr(metadata, "read_citation", lambda: citation | {"license": "MIT"})
    assert metadata.crate(records).root_dataset["license"].id == "https://spdx.org/licenses/MIT"


def test_a_claim_without_a_recorded_verdict_is_not_hidden(records, monkeypatch):
    monkeypatch.setattr(check, "read_recorded", dict)
    with pytest.raises(KeyError):
        metadata.crate(records)


def test_the_citation_file_follows_the_schema():
    validator = Draft7Validator(json.loads(SCHEMA.read_text()))
    citation = yaml.load((ROOT / "CITATION.cff").read_text(), yaml.BaseLoader)
    citation["references"][0]["year"] = int(citation["references"][0]["year"])
    assert list(validator.iter_errors(citation)) == []
    assert list(validator.iter_errors({**citation, "authors": []}))


@pytest.mark.skipif(not shutil.which("cffconvert"), reason="cffconvert is not on the PATH")
def test_cffconvert_accepts_the_citation_file():
    """Not in the environment, since it requires a jsonschema older than version 4."""
    command = ["cffconvert", "--validate", "--infile", str(ROOT / "CITATION.cff")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_version_is_the_same_everywhere():
    assert (
        f'version = "{metadata.read_citation()["version"]}"\n'
        in (ROOT / "pyproject.toml").read_text()
    )
