#!/usr/bin/env bash
# Subject: a documented alias of a built-in generic, such as `tuple[int, int, int]`, with Sphinx's viewcode.
# On: sphinx 9.0.4 (7.4.7 gives the same).
# Most expect: the alias belongs to the module that defines it; every module in the list of sources has a
#   page, or a build that turns warnings into errors (-W, with -n) fails.
# Observed: viewcode takes the alias's `__module__`, which is `builtins`, and lists that module with a link
#   to builtins.html. Sphinx writes no such page, and the strict build succeeds. An alias of a `typing.Union`
#   adds the source of the standard library's `typing` to the site; a number has no such effect.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet sphinx==9.0.4
cat > "$folder/observe.py" <<'PYTHON'
import re
import subprocess
import sys
from pathlib import Path

ALIASES = {
    "built-in generic": "tuple[int, int, int]",
    "union": "typing.Union[int, str]",
    "number": "3",
}


def listed(folder, value):
    """Return the pages in the list of sources of a module with one alias, and whether each exists."""
    folder.mkdir()
    (folder / "colours.py").write_text(
        f'"""Colours."""\n\nimport typing\n\n#: A colour.\nColour = {value}\n\n\n'
        'def grey(level: int):\n    """Return a grey."""\n    return (level, level, level)\n'
    )
    (folder / "conf.py").write_text(
        'import sys\nsys.path.insert(0, ".")\n'
        'extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode"]\n'
    )
    (folder / "index.rst").write_text(
        "Colours\n=======\n\n.. automodule:: colours\n   :members:\n"
    )
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", "-b", "html", ".", "html"]
    subprocess.run(command, cwd=folder, check=True)
    sources = folder / "html" / "_modules"
    pages = re.findall(r'<li><a href="([\w/]+\.html)"', (sources / "index.html").read_text())
    return {page: (sources / page).exists() for page in pages}


seen = {kind: listed(Path(kind.split()[0]), value) for kind, value in ALIASES.items()}
for kind, pages in seen.items():
    print(f"{kind}: {pages}")
assert seen["built-in generic"] == {"builtins.html": False, "colours.html": True}
assert seen["union"] == {"colours.html": True, "typing.html": True}
assert seen["number"] == {"colours.html": True}
PYTHON
cd "$folder"
"$folder/venv/bin/python" "$folder/observe.py"
