"""Assemble a release: wheel, book, records, weights, model folders, descriptions and checksums.

`make release` writes _build/release/. Equal inputs give equal bytes: archives are sorted, and the
files in them have no time stamps. Nothing is uploaded. A licence is named only if CITATION.cff has
one.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import metadata
from huggingface_hub import EvalResult, ModelCardData

from companion.runs.hub import HubModel
from companion.runs.select import Records, command_of
from companion.runs.weights import WEIGHTS_FILE, model_of
from companion.specs import SPECS
from companion.store import REPOSITORY

NO_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can hold
PDF = Path("_build/pdf/attnconv.pdf")
CARD = """\
# {label}, {tier} tier

{ran}. The network and its training are described in the executable book *{title}*, a companion of
[*{paper}*]({url}). The file holds float16 weights; the model computes in float32.

```python
from companion.runs.hub import HubModel

model = HubModel.from_pretrained("{name}")  # this folder, or its name on the hub
logits = model(model.network.transform(picture).unsqueeze(0))
```

- Input: images of shape (batch, 3, 32, 32); `transform` makes one from a picture of any size.
- Classes: the ten of CIFAR-10, in alphabetical order.
- Repeat the training: `{command}`
- Limitations: a small network for studying attention, not for recognising things in practice.
- Licence: {licence}
"""


def write_zip(path, files):
    """Write a zip archive of `files`, which maps the names in it to paths.

    The bytes depend only on the names and the contents of the files.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, NO_TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, Path(files[name]).read_bytes())


def build_wheel(out):
    """Build the wheel from a copy, so that no build files are left in the repository."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    with tempfile.TemporaryDirectory() as copy:
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(REPOSITORY / name, copy)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(REPOSITORY / "src", Path(copy) / "src", ignore=ignored)
        environment = os.environ | {"SOURCE_DATE_EPOCH": "315532800"}  # 1980
        words = [*command, "--wheel-dir", str(out), copy]
        subprocess.run(words, check=True, env=environment)


def zenodo():
    """Return the content of .zenodo.json, from CITATION.cff and the description of the package."""
    citation = metadata.read_citation()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    [paper] = citation["references"]
    found = {
        "title": citation["title"],
        "upload_type": citation["type"],
        "description": f"{project['description']}. {citation['message']}",
        "creators": [{"name": metadata.name_of(author)} for author in citation["authors"]],
        "version": citation["version"],
        "related_identifiers": [
            {"identifier": paper["url"], "scheme": "url", "relation": "isSupplementTo"}
        ],
    }
    # if an open record names no licence, Zenodo chooses one
    licence = citation.get("license")
    return found | ({"license": licence} if licence else {"access_right": "closed"})


def model_card(record):
    """Return the README.md of a model folder, with the results in the hub's model-index format."""
    citation, spec = metadata.read_citation(), SPECS[record.info.parameters["model"]]
    licence, [paper] = citation.get("license"), citation["references"]
    result = EvalResult(
        task_type="image-classification",
        dataset_type="cifar10",
        dataset_name="CIFAR-10",
        dataset_split="test",
        metric_type="accuracy",
        metric_name="test accuracy after the last epoch",
        metric_value=record.accuracy,
    )
    data = ModelCardData(
        model_name=record.name,
        license=licence and licence.lower(),
        library_name="attnconv",
        pipeline_tag="image-classification",
        datasets=["cifar10"],
        metrics=["accuracy"],
        eval_results=[result],
    )
    text = CARD.format(
        label=spec.label,
        tier=record.tier,
        ran=metadata.what_ran(record),
        title=citation["title"],
        paper=paper["title"],
        url=paper["url"],
        name=record.name,
        command=command_of(record),
        licence=licence or "none yet; choosing one is up to the owner of the repository.",
    )
    return f"---\n{data.to_yaml()}\n---\n\n{text}"


def write_model(out, record):
    """Write the folder of one model."""
    folder = out / record.name
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(model_card(record))
    info = record.info
    config = {"model": info.parameters["model"], "parameter_count": info.parameter_count}
    config |= {"dataset": info.dataset, "parameters": info.parameters, "format": info.version}
    HubModel(model_of(record)).save_pretrained(folder, config=config)


def write_checksums(out):
    """Write SHA256SUMS in the format that `sha256sum --check` reads."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out).as_posix()}\n"
        for path in files
    ]
    (out / "SHA256SUMS").write_text("".join(lines))


def release(out, html, pdf, records):
    """Write everything to the folder `out` and return a list of what is missing."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    missing = []
    build_wheel(out)
    if (html / "index.html").exists():
        pages = [path for path in html.rglob("*") if path.is_file() and path.name != ".inputs"]
        write_zip(out / "book.zip", {path.relative_to(html).as_posix(): path for path in pages})
    else:
        missing.append(f"the book ({html}/index.html is missing; make book)")
    if pdf.exists():
        shutil.copyfile(pdf, out / pdf.name)
    else:
        missing.append(f"the PDF ({pdf} is missing; make pdf)")
    names = [name for record in records for name in metadata.files_of(record)]
    weights = {name for name in names if name.endswith(WEIGHTS_FILE)}
    rest = ("data/claims.json", "data/README.md", "CITATION.cff", "codecheck.yml")
    write_zip(out / "records.zip", {n: REPOSITORY / n for n in {*names, *rest} - weights})
    write_zip(out / "weights.zip", {name: REPOSITORY / name for name in weights})
    for record in records:
        if (record.folder / WEIGHTS_FILE).exists():
            write_model(out / "models", record)
    (out / "ro-crate-metadata.json").write_text(metadata.crate_text(records))
    (out / ".zenodo.json").write_text(json.dumps(zenodo(), indent=1, ensure_ascii=False) + "\n")
    write_checksums(out)
    return missing


def main():
    out = REPOSITORY / "_build" / "release"
    missing = release(out, REPOSITORY / "_build/html", REPOSITORY / PDF, Records.read().found)
    for path in sorted(out.iterdir()):
        count = len(list(path.iterdir())) if path.is_dir() else 0
        size = f"{count} folders" if count else f"{path.stat().st_size / 1e6:.1f} MB"
        print(f"  {path.name:40} {size}")
    for each in missing:
        print(f"  not included: {each}")


if __name__ == "__main__":
    main()
