"""Run Theorem 1's construction in the attention layers of other libraries, and record the results.

Usage: python tools/libraries/run.py [NAME ...] [--environments FOLDER]

Each library has a folder in adapters/ with an adapter and pinned versions; without names, all are
run. Environments are made in a temporary folder, or kept in FOLDER for the next run. The record,
benchmarks/results/theorem-1-libraries.json, keeps the rows of libraries that are not run.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).parent
ADAPTERS = HERE / "adapters"  # not a folder of modules: these would hide the libraries
RECORD = HERE.parents[1] / "benchmarks/results/theorem-1-libraries.json"
NAMES = sorted(path.parent.name for path in ADAPTERS.glob("*/adapter.py"))


def environment(folder, name):
    """Return the Python of the environment for one library, and make it if it is missing."""
    python = folder / name / "bin/python"
    requirements = ADAPTERS / name / "requirements.txt"
    installed = folder / name / "requirements.txt"
    if not installed.exists() or installed.read_text() != requirements.read_text():
        venv.create(folder / name, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
        installed.write_text(requirements.read_text())
    return python


def rows_of(python, name, problem):
    """Run one adapter; return the versions and the rows that it printed."""
    settings = {"THEOREM_1_PROBLEM": problem, "PYTHONPATH": HERE / "shared", "OMP_NUM_THREADS": 1}
    output = subprocess.run(
        [python, ADAPTERS / name / "adapter.py"],
        env=os.environ | {key: str(value) for key, value in settings.items()},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    first, *rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {"date": datetime.date.today().isoformat(), "versions": first, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--environments", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no adapter for {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.environments or Path(temporary)
        problem = Path(temporary, "problem.npz").resolve()
        subprocess.run([sys.executable, HERE / "problem.py", problem], check=True)
        for name in arguments.names or NAMES:
            print(f"== {name}", flush=True)
            record[name] = rows_of(environment(folder.resolve(), name), name, problem)
            for row in record[name]["rows"]:
                print(f"{row['layer']}, {row['position']}: {row['gap_float32']}")
            RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
