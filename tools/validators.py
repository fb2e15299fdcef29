"""Run validators from outside on the repository and its book, and record their complaints.

Usage: python tools/validators.py [NAME ...]

Needs `make book`, uv (https://docs.astral.sh/uv/), which installs the tools in environments of
their own, and for vnu also npm and Java. The validators themselves need no network. The record,
benchmarks/results/validators.json, has for each validator its version, the date, and how often it
made each complaint; `book/checklists.md` shows it. Validators that are not named keep their
entries.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from release import build_wheel

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks/results/validators.json"
HTML = ROOT / "_build/html"


class Validator(NamedTuple):
    """A tool with its pinned version.

    reads: what it validates. command: its arguments, in which {folder} is a temporary folder with
    the wheel. complaint: a pattern whose first group is the text of a complaint in the output.
    """

    version: str
    reads: str
    command: str
    complaint: str


NBFORMAT = (
    "import nbformat, pathlib\n"
    "for path in pathlib.Path('notebooks').glob('*.ipynb'):\n"
    "    nbformat.validate(nbformat.read(path, nbformat.NO_CONVERT))"
)
VALIDATORS = {
    "zizmor": Validator(
        "1.32.0", "workflows", "zizmor --offline --format=plain .github", r"^\w+\[([\w-]+)\]: "
    ),
    "cffconvert": Validator("2.0.0", "CITATION.cff", "cffconvert --validate", r"^(\w*Error.*)"),
    "twine": Validator(
        "7.0.0", "the wheel", "twine check --strict {folder}/*.whl", r"(?:WARNING|ERROR) +(.+)"
    ),
    "check-wheel-contents": Validator(
        "0.6.3", "the wheel", "check-wheel-contents {folder}", r": (W\d+: .+)"
    ),
    "nbformat": Validator("5.11.1", "notebooks", f'python -c "{NBFORMAT}"', r"^(\S*Error: .*)"),
    "vnu-jar": Validator(
        "26.9.27",
        "the book's pages",
        "npm install --silent --prefix {folder} vnu-jar@{version} && java -jar"
        " {folder}/node_modules/vnu-jar/build/dist/vnu.jar --skip-non-html --errors-only {html}",
        r": error: (.+)",
    ),
}


def command_of(name, folder, html=HTML):
    """Return the shell command that runs a validator."""
    version, _, command, _ = VALIDATORS[name]
    words = command.replace("{folder}", str(folder)).replace("{version}", version)
    words = words.replace("{html}", str(html))
    return words if name == "vnu-jar" else f"uvx --with {name}=={version} --from {name} {words}"


def complaints(name, output):
    """Return how often a validator made each complaint; names in quotation marks become ....

    Names differ between complaints of one kind, such as the identifier that a page has twice.
    """
    found = re.findall(VALIDATORS[name].complaint, output, re.M)
    return dict(Counter(re.sub("“[^”]*”", "…", text).strip() for text in found).most_common())


def validate(name, folder, html=HTML):
    """Run a validator and return its entry in the record."""
    run = subprocess.run(
        command_of(name, folder, html), shell=True, cwd=ROOT, capture_output=True, text=True
    )
    found = complaints(name, run.stdout + run.stderr)
    if run.returncode and not found:
        raise SystemExit(f"{name} failed without a complaint:\n{run.stdout}{run.stderr}")
    return {
        "version": VALIDATORS[name].version,
        "date": datetime.now(UTC).date().isoformat(),
        "reads": VALIDATORS[name].reads,
        "count": sum(found.values()),
        "complaints": found,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(VALIDATORS))
    parser.add_argument("--html", type=Path, default=HTML, help="the folder with the built pages")
    options = parser.parse_args()
    unknown = set(options.names) - set(VALIDATORS)
    if unknown:
        parser.error(f"no validator {', '.join(unknown)}; there are {', '.join(VALIDATORS)}")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        build_wheel(Path(folder))
        for name in options.names or VALIDATORS:
            record[name] = validate(name, folder, options.html)
            print(f"{name} {record[name]['version']}: {record[name]['count']} complaints")
            for text, count in record[name]["complaints"].items():
                print(f"  {count} x {text}")
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
