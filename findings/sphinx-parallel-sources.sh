#!/usr/bin/env bash
# Subject: sphinx.ext.viewcode when pages are read by several processes.
# On: Sphinx 7.4.7.
# Most expect: `-j 2` makes the same pages as `-j 1`, only sooner.
# Observed: for a documented constant whose value is a compiled pattern, the parallel build adds a page with the whole
#   source of the standard library's module `re`, and lists it among the project's sources. The serial build does not:
#   it removes modules of which no name is shown whenever it reads the next page.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet sphinx==7.4.7
mkdir "$folder/book"
cd "$folder/book"
cat > lengths.py <<'PYTHON'
"""Lengths."""

import re

#: A number and its unit.
LENGTH = re.compile(r"(\d+) (cm|m)")


def meters(centimeters: float) -> float:
    """Return a length in meters."""
    return centimeters / 100
PYTHON
cat > conf.py <<'PYTHON'
import sys

sys.path.insert(0, ".")
extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode"]
PYTHON
printf 'Lengths\n=======\n\n.. automodule:: lengths\n   :members:\n\n.. toctree::\n\n' > index.rst
for page in one two three four five six; do
    printf '%s\n=======\n\nText.\n' "$page" > "$page.rst"
    echo "   $page" >> index.rst
done
for jobs in 1 2; do
    "$folder/venv/bin/sphinx-build" -q -W -j "$jobs" -d "$folder/trees-$jobs" . "$folder/html-$jobs"
    sources=$(cd "$folder/html-$jobs/_modules" && ls | tr '\n' ' ')
    echo "-j $jobs: sources of $sources"
done
[ "$(ls "$folder/html-1/_modules")" = "$(printf 'index.html\nlengths.html')" ]
[ "$(ls "$folder/html-2/_modules")" = "$(printf 'index.html\nlengths.html\nre.html')" ]
grep -q 'href="re.html"' "$folder/html-2/_modules/index.html"
