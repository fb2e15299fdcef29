"""Describe the repository for archives: codecheck.yml and ro-crate-metadata.json.

Both are derived from CITATION.cff, the claims and their recorded verdicts, and the run records, so
the same content gives the same files. `make readme` writes codecheck.yml, which is part of the
repository, with `python tools/metadata.py`; `make release` writes the RO-Crate. A licence is named
only if CITATION.cff has one. The repository's address is that in ATTNCONV_REPOSITORY, if this is
set.
"""

import json
import os
from pathlib import Path

import nbformat
import yaml
from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from companion.claims import registry as check
from companion.data import CIFAR10_FINGERPRINT
from companion.runs.select import command_of
from companion.specs import SPECS
from companion.store import REPOSITORY, write_file
from companion.tiers import TIERS

CODECHECK = "https://codecheck.org.uk/spec/config/1.0/"
CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar.html"
SUMMARY = (
    "Nobody outside the project has checked this yet. `make env` installs the environment,"
    " `.venv/bin/python -m attnconv check --all` judges all {claims} claims again from the run"
    " records, without training. The page Run records of the book (`make book`) gives the command"
    " that repeats each run."
)
FOLDERS = {
    "src": (
        "Python packages",
        "attnconv, the paper's layers and theory, and the book's laboratory",
    ),
    "proofs": ("Proofs in Coq", "The statements of the theory, checked by machine"),
}
KINDS = {
    ".csv": "text/csv",
    ".json": "application/json",
    ".safetensors": "application/octet-stream",
}
FOR_THE_CHECKER = "# For the checker to add: codechecker, report, check_time, certificate.\n"


def read_citation(folder=REPOSITORY):
    """Return the content of CITATION.cff."""
    return yaml.safe_load((folder / "CITATION.cff").read_text("utf-8"))


def name_of(author):
    """Return the name of a person or an organisation listed in CITATION.cff."""
    return author.get("name") or f"{author['given-names']} {author['family-names']}"


def what_ran(record):
    """Return one sentence on a run: model, tier, seed, accuracy."""
    parameters, info = record.info.parameters, record.info
    return (
        f"{SPECS[parameters['model']].label}, {record.tier} tier, seed {parameters['seed']}:"
        f" test accuracy {record.accuracy:.4f} after {info.epochs_done} epochs"
    )


def files_of(record):
    """Return the files of a record, as paths within the repository."""
    return sorted(f"data/runs/{record.name}/{path.name}" for path in record.folder.iterdir())


# --- CODECHECK ------------------------------------------------------------------------------------


def codecheck():
    """Return the content of codecheck.yml, except for what the checker adds.

    Its manifest lists what a checker creates again: the verdicts of the claims and the table.
    """
    citation, count = read_citation(), len(check.all_claims())
    [paper] = citation["references"]
    manifest = {
        "data/claims.json": f"{count} claims, verdicts; repeat: {check.WRITE}",
        "README.md": "table of test accuracies; repeat: make readme",
        "book/claim.png": "picture in the README; repeat: make readme",
    }
    found = {
        "version": CODECHECK,
        "paper": {
            "title": paper["title"],
            "authors": [{"name": name_of(author)} for author in paper["authors"]],
            "reference": paper["url"],
        },
        "manifest": [{"file": file, "comment": comment} for file, comment in manifest.items()],
        "summary": SUMMARY.format(claims=count),
    }
    if address := os.environ.get("ATTNCONV_REPOSITORY"):
        found["repository"] = address
    return found


def codecheck_text():
    """Return the text of codecheck.yml, an explicit YAML document as CODECHECK requires."""
    text = yaml.safe_dump(codecheck(), sort_keys=False, allow_unicode=True, width=1000)
    return f"%YAML 1.1\n---\n{text}{FOR_THE_CHECKER}"


# --- RO-Crate -------------------------------------------------------------------------------------


def crate(records):
    """Return the RO-Crate: paper, code, notebooks, claims with verdicts, and runs by tier."""
    found, citation = ROCrate(), read_citation()
    root = found.root_dataset

    def entity(key, kind, **properties):
        return found.add(ContextEntity(found, key, {"@type": kind, **properties}))

    def people(authors, kind):
        names = map(name_of, authors)
        return [entity(f"#{name.replace(' ', '-')}", kind, name=name) for name in names]

    [paper] = citation["references"]
    article = entity(paper["url"], "ScholarlyArticle", name=paper["title"])
    article["author"] = people(paper["authors"], "Person")
    article["datePublished"] = str(paper["year"])
    images = entity(CIFAR10, "CreativeWork", name="CIFAR-10", identifier=CIFAR10_FINGERPRINT)
    article["description"] = "The paper whose claims the book checks."
    images["description"] = "Not part of the crate; the identifier is its SHA-256 (data/README.md)."
    book = yaml.safe_load((REPOSITORY / "_config.yml").read_text("utf-8"))
    root["name"], root["description"] = citation["title"], citation["message"]
    root["version"], root["citation"] = citation["version"], article
    root["author"] = people(citation["authors"], "Organization")
    # the library would enter the time of writing; before a release, only the year is known
    root.properties()["datePublished"] = str(citation.get("date-released") or book["copyright"])
    if licence := citation.get("license"):
        root["license"] = entity(f"https://spdx.org/licenses/{licence}", "CreativeWork")
    for folder, (name, about) in FOLDERS.items():
        properties = {"name": name, "description": about}
        found.add_dataset(dest_path=folder, properties=properties)
    for path in sorted((REPOSITORY / "notebooks").glob("*.ipynb")):
        _add_file(found, f"notebooks/{path.name}", _title(path), "application/x-ipynb+json")
    _add_file(found, "codecheck.yml", "Manifest for CODECHECK", "application/yaml")
    _add_claims(found, entity)
    _add_runs(found, entity, records, images)
    return found


def _add_file(found, path, name, kind):
    size = (REPOSITORY / path).stat().st_size
    properties = {"name": name, "encodingFormat": kind, "contentSize": str(size)}
    return found.add_file(dest_path=path, properties=properties)


def _title(path):
    """Return the title of a chapter."""
    return nbformat.read(path, as_version=4).cells[0].source.splitlines()[0].removeprefix("# ")


def _add_claims(found, entity):
    file = _add_file(found, "data/claims.json", "Claims and verdicts", "application/json")
    verdicts = check.read_recorded()
    claims = []
    for claim in check.all_claims():
        words = "; ".join(f"{where}: {word}" for where, word in verdicts[claim.name].items())
        given = {"name": claim.name, "text": claim.text, "description": f"{claim.rule} ({words})"}
        claims.append(entity(f"#claim-{claim.name}", "Claim", **given))
    file["mentions"] = claims


def _add_runs(found, entity, records, images):
    """Add the records of each tier as a collection of folders."""
    tiers = {}
    for record in records:
        folder = f"data/runs/{record.name}"
        about = f"{what_ran(record)}; {command_of(record)}"
        properties = {"name": record.name, "description": about}
        run = found.add_dataset(dest_path=folder, properties=properties)
        run["isBasedOn"] = images
        run["hasPart"] = [
            _add_file(found, path, f"{record.name}: {Path(path).name}", KINDS[Path(path).suffix])
            for path in files_of(record)
        ]
        tiers.setdefault(record.tier, []).append(run)
    for tier, runs in tiers.items():
        about = {"name": f"{len(runs)} runs, {tier} tier"}
        about["description"] = f"Models trained alike, on {TIERS[tier].dataset}."
        collection = entity(f"#tier-{tier}", "Collection", **about)
        collection["hasPart"] = runs


def crate_text(records):
    """Return the text of ro-crate-metadata.json, in an order that depends only on its content."""
    content = crate(records).metadata.generate()
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main(folder: Path = REPOSITORY) -> None:
    write_file(folder / "codecheck.yml", codecheck_text().encode())
    print("codecheck.yml: written")


if __name__ == "__main__":
    main()
