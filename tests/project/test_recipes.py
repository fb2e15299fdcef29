"""The recipes of the page *Use it on your network*, as a reader would paste them into a file."""

import re
import subprocess
import sys

import pytest

from companion.store import REPOSITORY

pytest.importorskip("timm")

PAGE = (REPOSITORY / "book" / "use.md").read_text()
RECIPES = ("Convert a CNN", "Start a vision transformer", "Inspect the attention")


def recipe(title):
    """The first cell below a heading."""
    section = PAGE[PAGE.index(f"## {title}") :]
    return re.search(r"```{code-cell} ipython3\n(.*?)```", section, re.DOTALL)[1]


@pytest.mark.slow
@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_runs_by_itself_in_an_empty_folder(title, tmp_path):
    code = recipe(title)
    assert len([line for line in code.splitlines() if line.strip()]) <= 6
    (tmp_path / "recipe.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "recipe.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and not done.stderr
