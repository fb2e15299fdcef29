"""The strict build, on a small book of its own with the project's Makefile, configuration and
extensions."""

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import nbformat
import pytest
import yaml
from helpers import ROOT

sys.path.insert(0, str(ROOT / "book" / "ext"))
import warmkernels

pytestmark = pytest.mark.slow


@pytest.fixture
def book(tmp_path):
    """A book of two pages: `book/intro.md` and a notebook that shows a number from `src/`."""
    for name in ("Makefile", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    del config["sphinx"]["config"]["redirects"]  # to pages that this book does not have
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config, sort_keys=False))
    for name in ("ext", "templates", "static", "vendor", "references.bib", "favicon.svg"):
        source = ROOT / "book" / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        (tmp_path / "book").mkdir(exist_ok=True)
        copy(source, tmp_path / "book" / name)
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: book/intro\nchapters:\n  - file: notebooks/number\n"
    )
    (tmp_path / "book" / "intro.md").write_text("# Intro\n\nSee {doc}`../notebooks/number`.\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "number.txt").write_text("first value")
    (tmp_path / "notebooks").mkdir()
    write_notebook(
        tmp_path,
        "import sys\n\nassert 'torch' in sys.modules, 'each kernel has imported it'\n"
        "from pathlib import Path\n_ = Path('../executed').open('a').write('.')\n"
        "print(Path('../src/number.txt').read_text())",
    )
    return tmp_path


def write_notebook(folder, source, name="number"):
    cells = [nbformat.v4.new_markdown_cell("# A number"), nbformat.v4.new_code_cell(source)]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    (folder / "notebooks" / f"{name}.ipynb").write_text(
        json.dumps(nbformat.v4.new_notebook(cells=cells, metadata=kernel))
    )


def build(folder):
    """`make book` in the folder with the environment that runs the tests."""
    venv = Path(sys.prefix)
    command = ["make", "--no-print-directory", "book", f"VENV={venv}", "-o", f"{venv}/.ready"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def page(folder):
    return (folder / "_build" / "html" / "notebooks" / "number.html").read_text()


def test_it_builds_and_executes_again_when_the_source_changed(book):
    first = build(book)
    assert first.returncode == 0, first.stdout[-3000:] + first.stderr[-3000:]
    assert "first value" in page(book)
    unchanged = build(book)
    assert unchanged.returncode == 0 and "nothing changed" in unchanged.stdout
    (book / "book" / "intro.md").write_text("# Another intro\n\nSee {doc}`../notebooks/number`.\n")
    other_text = build(book)
    assert other_text.returncode == 0 and "nothing changed" not in other_text.stdout
    assert (book / "executed").read_text() == "."
    (book / "src" / "number.txt").write_text("second value")
    assert build(book).returncode == 0
    assert "second value" in page(book) and (book / "executed").read_text() == ".."


WAITS = """
import time
from pathlib import Path
Path("{mine}.started").touch()
end = time.monotonic() + 60
while not Path("{other}.started").exists() and time.monotonic() < end:
    time.sleep(0.05)
assert Path("{other}.started").exists(), "alone"
_ = Path("{mine}.times").open("a").write(".")
"""
EXECUTABLE = """---
jupytext:
  text_representation: {{extension: .md, format_name: myst}}
kernelspec: {{display_name: Python 3, language: python, name: python3}}
---

# A page with code

```{{code-cell}} python
{code}
```
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core executes one notebook at a time")
def test_a_notebook_and_a_page_with_code_are_executed_side_by_side(book):
    """Each waits until the other has begun, and neither is executed again when it is rendered."""
    toc = book / "_toc.yml"
    toc.write_text(toc.read_text() + "  - file: notebooks/second\n")
    write_notebook(book, WAITS.format(mine="first", other="second"))
    code = WAITS.format(mine="second", other="first")
    (book / "notebooks" / "second.md").write_text(EXECUTABLE.format(code=code))
    run = build(book)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    times = [path.read_text() for path in (book / "notebooks").glob("*.times")]
    assert times == [".", "."]


@pytest.mark.parametrize("name", warmkernels.IMPORTED)
def test_what_kernels_have_imported_exists(name):
    """The process from which kernels are forked says nothing about a module that is missing."""
    import_module(name)


WRONG = "# Intro\n\nSee {doc}`nowhere`, {eq}`eq-99` and {cite:p}`nobody1900`.\n"


def test_it_fails_and_fails_again_unchanged_at_each_thing_that_a_page_names_wrongly(book):
    (book / "book" / "intro.md").write_text(WRONG)
    for _ in range(2):
        run = build(book)
        assert run.returncode != 0
        warnings = [line for line in (run.stdout + run.stderr).splitlines() if "WARNING" in line]
        for name in ("nowhere", "eq-99", "nobody1900"):
            assert any(name in line for line in warnings), name


def test_it_fails_and_fails_again_unchanged_at_a_cell_that_fails(book):
    write_notebook(book, "assert 1 == 2, 'a claim that is not true'")
    for _ in range(2):
        run = build(book)
        assert run.returncode != 0 and "a claim that is not true" in run.stdout + run.stderr
