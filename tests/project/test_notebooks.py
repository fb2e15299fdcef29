"""Guards over the notebooks: what nbval cannot see, and what papermill lets pass."""

import json
import re
import subprocess
import sys

import nbformat
import pytest
import yaml
from helpers import ROOT
from helpers.notebooks import papermill
from helpers.runs import check_record

from companion.runs.record import load_run
from companion.specs import MODELS

sys.path.insert(0, str(ROOT / "benchmarks"))
from cells import executable_pages

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TRAIN = ROOT / "notebooks" / "09-train.ipynb"
TOC = (ROOT / "_toc.yml").read_text()
CHECKED = "nbval-check-output"
HIDING = {"remove-cell", "remove-input", "hide-cell", "hide-input"}
MOST_HIDDEN = 0.15  # of a chapter's lines of code
MOST_SENTENCES = 3  # of an answer
MOST_WORDS = 90
MOST_SECONDS = 20  # of a cell on an idle core
TRAINING = {"notebooks/09-train.ipynb": 30}  # the same for the chapter that trains a whole model
SLOWEST_MACHINE = 6  # times slower, on which the book is still built


def code_cells(path):
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def test_chapters_are_numbered_in_reading_order():
    """The file of the chapter on training keeps its name, which commands use."""
    paths = [ROOT / f"{name}.ipynb" for name in re.findall(r"notebooks/[\w-]+", TOC)]
    assert sorted(paths) == NOTEBOOKS
    titles = [nbformat.read(path, 4).cells[0].source for path in paths]
    numbers = [int(re.match(r"# (\d+) ", title)[1]) for title in titles]
    assert numbers == list(range(1, len(paths) + 1))
    names = {path.stem: int(path.stem[:2]) for path in paths}
    assert names.pop("09-train") == 9 and list(names.values()) == numbers[:-1]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_chapters_show_their_code(path):
    lines = {True: 0, False: 0}
    for cell in code_cells(path):
        is_hidden = bool(HIDING & set(cell.metadata.get("tags", [])))
        lines[is_hidden] += sum(bool(line.strip()) for line in cell.source.splitlines())
    share = lines[True] / sum(lines.values())
    assert share <= MOST_HIDDEN, f"{path.stem} hides {share:.0%} of its code"


def test_no_cell_is_slow():
    """The durations are those that benchmarks/cells.py stored, on every executable page."""
    stored = json.loads((ROOT / "benchmarks/results/cells-cpu-2-cores.json").read_text())["pages"]
    assert list(stored) == executable_pages()
    seconds = {page: cell["longest_cell"] for page, cell in stored.items()}
    assert not {p: s for p, s in seconds.items() if s > TRAINING.get(p, MOST_SECONDS)}
    timeout = yaml.safe_load((ROOT / "_config.yml").read_text())["execute"]["timeout"]
    assert timeout >= SLOWEST_MACHINE * max(seconds.values())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_chapters_answer_in_at_most_three_sentences(path):
    """Evidence follows in further paragraphs. A number from a cell counts as one word."""
    paragraphs = nbformat.read(path, 4).cells[0].source.split("\n\n")
    [answer] = [text for text in paragraphs if text.startswith("**Answer.**")]
    text = re.sub(r"\{[\w:]+\}`[^`]*`", "1", answer.removeprefix("**Answer.**"))
    sentences = re.findall(r"[^.!?]+(?:[.!?](?=\S)[^.!?]+)*[.!?](?=\s|$)", text)
    assert sentences and len(sentences) <= MOST_SENTENCES, sentences
    assert len(text.split()) <= MOST_WORDS


def tags(cell):
    return cell.metadata.get("tags", [])


WITH_PARAMETERS = [
    path for path in NOTEBOOKS if any("parameters" in tags(c) for c in code_cells(path))
]


def test_a_notebook_with_parameters_has_the_three_cells_that_check_them():
    """One that validates parameters or records the names before them has all three."""
    for path in NOTEBOOKS:
        sources = "".join(cell.source for cell in code_cells(path))
        parts = [
            "before = dict(globals())" in sources,
            ".from_notebook(globals(), before)" in sources,
        ]
        assert parts == [path in WITH_PARAMETERS] * 2, path.stem


def before_the_check(path):
    """Return the names in a notebook that papermill has not yet given values, and the check."""
    cells = code_cells(path)
    [place] = [i for i, cell in enumerate(cells) if "parameters" in tags(cell)]
    namespace = {}
    for cell in cells[: place + 1]:
        exec(cell.source, namespace)
    return namespace, cells[place + 1].source


@pytest.mark.parametrize("injected", ["typo = 3", "figures = 3"])
@pytest.mark.parametrize("path", WITH_PARAMETERS, ids=lambda path: path.stem)
def test_an_unknown_parameter_stops_each_notebook_before_its_first_computation(path, injected):
    """The value is set where papermill sets it. `figures` is the name of an import."""
    namespace, check = before_the_check(path)
    exec(check, namespace.copy())  # the defaults are accepted
    exec(injected, namespace)
    with pytest.raises(ValueError, match=f"unknown parameter {injected}"):
        exec(check, namespace)


@pytest.mark.parametrize(
    ("notebook", "injected", "message"),
    [
        (
            "09-train",
            "epoch = 1",
            "unknown parameter epoch = 1. Known parameters: model, dataset, tier, seed, epochs",
        ),
        ("09-train", "model = 'sa'", "model = 'sa': expected one of resnet18, sa-quadratic"),
        (
            "08-results",
            "run = 'here'",
            "unknown parameter run = 'here'. Known parameters: runs, tier, seed",
        ),
        (
            "12-gradient-descent",
            "step = 5",
            "unknown parameter step = 5. Known parameters: kernel_size, steps",
        ),
    ],
)
def test_a_notebook_says_what_it_expects_instead_of_a_wrong_parameter(notebook, injected, message):
    namespace, check = before_the_check(ROOT / "notebooks" / f"{notebook}.ipynb")
    exec(injected, namespace)
    with pytest.raises(ValueError, match=re.escape(message)):
        exec(check, namespace)


@pytest.mark.slow
def test_papermill_stops_at_a_wrong_parameter(tmp_path):
    run = papermill(TRAIN, tmp_path / "out.ipynb", {"epochs": "ten"})
    assert run.returncode != 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", run.stderr)
    assert "ValueError: epochs = 'ten': Input should be a valid integer" in plain


FORGET = "%reset -f"


def once_for_each(path, parameters):
    """Return a notebook with the given one's cells, which wait for papermill to set parameters, and
    the same code once more for each of these parameters, in the same kernel."""
    notebook = nbformat.read(path, 4)
    place = 1 + next(i for i, cell in enumerate(code_cells(path)) if "parameters" in tags(cell))
    sources = [cell.source for cell in code_cells(path)]
    for given in parameters:
        values = "\n".join(f"{name} = {value!r}" for name, value in given.items())
        for source in (FORGET, *sources[:place], values, *sources[place:]):
            notebook.cells.append(nbformat.v4.new_code_cell(source))
    return notebook


@pytest.mark.slow
def test_papermill_trains_each_model(tmp_path):
    """Two epochs on some digits; a run record is the result."""
    small = {"epochs": 2, "batch_size": 50, "hidden": 16, "intermediate": 16}
    small |= {"train_images": 100, "test_images": 50}
    models = sorted(MODELS)
    first, *others = [small | {"model": name, "runs": str(tmp_path / name)} for name in models]
    path = tmp_path / "in.ipynb"
    output = tmp_path / "out.ipynb"
    nbformat.write(once_for_each(TRAIN, others), path)
    run = papermill(path, output, first)
    assert run.returncode == 0, run.stderr[-2000:]
    texts = [""]
    for cell in code_cells(output):
        if cell.source == FORGET:
            texts.append("")
        texts[-1] += json.dumps(cell.outputs)
    for model, text in zip(models, texts, strict=True):
        assert "epoch   2" in text and "another run" in text
        assert ("no quadratic heads" in text) == (not model.startswith("sa-quadratic"))
        check_record(load_run(tmp_path / model / f"{model}--digits--seed0"), model, epochs=2)


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
