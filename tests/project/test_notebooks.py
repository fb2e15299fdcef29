"""Guards over the notebooks: what nbval cannot see, and what papermill lets pass."""

import json
import re
import subprocess
import sys

import nbformat
import pytest
from helpers import ROOT
from helpers.runs import check_record

from companion.runs.record import load_run
from companion.specs import MODELS

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CHECKED = "nbval-check-output"
HIDING = {"remove-cell", "remove-input", "hide-cell", "hide-input"}
MOST_HIDDEN = 0.15  # of a chapter's lines of code
#: Chapters that still hide more; this list may only become shorter.
HIDE_MORE = {"01", "10", "11", "13", "14", "16"}


def code_cells(path):
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def test_the_chapters_are_there():
    numbers = [int(path.stem[:2]) for path in NOTEBOOKS]
    assert numbers[:13] == list(range(1, 14)) and len(set(numbers)) == len(numbers)
    toc = (ROOT / "_toc.yml").read_text()
    assert all(f"notebooks/{path.stem}" in toc for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_checked_cells_are_compared_and_others_are_stripped(path):
    """nbval compares nothing in a cell without an execution count, and would store pictures in the
    others."""
    checked = [cell for cell in code_cells(path) if CHECKED in cell.metadata.get("tags", [])]
    assert checked, "each chapter has a cell whose output is compared"
    for cell in checked:
        assert cell.execution_count is not None and cell.outputs, cell.source
        assert all(
            output.output_type == "stream" and output.name == "stdout" and output.text.strip()
            for output in cell.outputs
        ), cell.source
    for cell in code_cells(path):
        if cell not in checked:
            assert cell.execution_count is None and not cell.outputs, cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_chapter_conventions(path):
    text = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
    for part in (
        "**Question.**",
        "**What was shown.**",
        "**Caveats about the paper.**",
        ":::{exercise}",
        ":::{solution}",
    ):
        assert part in text, f"{path.stem} lacks {part}"
    figures = 0
    for cell in code_cells(path):
        assert sum(bool(line.strip()) for line in cell.source.splitlines()) < 20, cell.source
        if figure := cell.metadata.get("mystnb", {}).get("figure"):
            figures += 1
            assert (
                len(figure["caption"]) > 30
                and figure["name"].startswith("fig-")
                and "tier" in figure["caption"]
            )
            assert len(cell.metadata["mystnb"]["image"]["alt"]) > 10
    assert figures, "each chapter has a picture"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_chapters_show_their_code(path):
    lines = {True: 0, False: 0}
    for cell in code_cells(path):
        is_hidden = bool(HIDING & set(cell.metadata.get("tags", [])))
        lines[is_hidden] += sum(bool(line.strip()) for line in cell.source.splitlines())
    share = lines[True] / sum(lines.values())
    if path.stem[:2] in HIDE_MORE:
        assert share > MOST_HIDDEN, f"{path.stem} may be removed from HIDE_MORE"
    else:
        assert share <= MOST_HIDDEN, f"{path.stem} hides {share:.0%} of its code"


def papermill(notebook, output, *parameters):
    options = [word for name, value in parameters for word in ("-p", name, value)]
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(ROOT / "notebooks" / notebook),
        str(output),
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("notebook", "name", "value", "message"),
    [
        (
            "09-train.ipynb",
            "epoch",
            "1",
            "unknown parameter epoch = 1. Known parameters: model, dataset, tier, seed, epochs",
        ),
        ("09-train.ipynb", "epochs", "ten", "epochs = 'ten': Input should be a valid integer"),
        ("09-train.ipynb", "model", "sa", "model = 'sa': expected one of resnet18, sa-quadratic"),
        (
            "10-results.ipynb",
            "run",
            "here",
            "unknown parameter run = 'here'. Known parameters: runs, tier, seed",
        ),
        (
            "08-gradient-descent.ipynb",
            "step",
            "5",
            "unknown parameter step = 5. Known parameters: kernel_size, steps",
        ),
    ],
)
def test_papermill_stops_at_a_wrong_parameter(notebook, name, value, message, tmp_path):
    run = papermill(notebook, tmp_path / "out.ipynb", (name, value))
    assert run.returncode != 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", run.stderr)
    assert f"ValueError: {message}" in plain


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(MODELS))
def test_papermill_trains_each_model(model, tmp_path):
    """Two epochs on digits; a run record is the result."""
    output = tmp_path / "out.ipynb"
    small = [("epochs", "2"), ("batch_size", "200"), ("hidden", "16"), ("intermediate", "16")]
    run = papermill("09-train.ipynb", output, ("model", model), *small, ("runs", str(tmp_path)))
    assert run.returncode == 0, run.stderr[-2000:]
    text = json.dumps([cell.get("outputs", []) for cell in nbformat.read(output, 4).cells])
    assert "epoch   2" in text and "another run" in text
    assert ("no quadratic heads" in text) == (not model.startswith("sa-quadratic"))
    check_record(load_run(tmp_path / f"{model}--digits--seed0"), model, epochs=2)


def test_storing_outputs_leaves_a_failing_notebook_as_it_was(tmp_path):
    path = tmp_path / "broken.ipynb"
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("raise SystemError('on purpose')")]
    )
    nbformat.write(notebook, path)
    before = path.read_bytes()
    run = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "store_outputs.py"), str(path)],
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0 and "on purpose" in run.stderr
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
