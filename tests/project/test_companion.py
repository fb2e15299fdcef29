"""All figures and tables of the paper are in the book: a function, a cell, a caption, a text for
those who do not see it, a source; and a record that is missing or damaged gives a page that says
so."""

import inspect
import json
import re
import shutil
import sys

import nbformat
import pytest
from helpers import ROOT
from helpers.notebooks import papermill
from sphinx.application import Sphinx

from companion import figures, tables
from companion.runs.select import Records

pytestmark = pytest.mark.slow

sys.path.insert(0, str(ROOT / "book" / "ext"))
import apipages  # noqa: E402
import incode  # noqa: E402
import machinechecked  # noqa: E402

CELLS = [
    cell
    for path in (ROOT / "notebooks").glob("*.ipynb")
    for cell in nbformat.read(path, 4).cells
    if cell.cell_type == "code"
]
COMPUTED = (1, 11)  # of the formulas alone; all others show training


def cells_with(call):
    return [cell for cell in CELLS if re.search(rf"\b{re.escape(call)}\b", cell.source)]


@pytest.mark.parametrize("number", range(1, 15))
def test_each_figure(number):
    function = getattr(figures, f"figure_{number}")
    assert inspect.getdoc(function).startswith(f"Draw Figure {number}: ")
    shown = {}
    for cell in cells_with(f"figures.figure_{number}"):
        if cell.metadata["mystnb"]["figure"]["name"] == "fig-heads":
            continue  # chapter 19 draws its own run
        caption = cell.metadata["mystnb"]["figure"]["caption"]
        alt = cell.metadata["mystnb"]["image"]["alt"]
        assert (
            re.search(rf"paper.s Figure {number}\b|Figure {number} of the paper", caption)
            and "Source: " in caption
            and len(alt) > 40
        ), caption
        shown[cell.metadata["mystnb"]["figure"]["name"]] = caption
    assert ("Quick tier" if number in COMPUTED else "data and tier") in shown.pop(f"fig-{number}")
    assert shown.keys() <= {f"fig-{number}-long", f"fig-{number}-tokens"}


@pytest.mark.parametrize("number", range(1, 5))
def test_each_table(number):
    function = getattr(tables, f"table_{number}")
    assert inspect.getdoc(function).startswith(f"Return Table {number}: ")
    assert len(cells_with(f"tables.table_{number}")) == 1
    table = function(*([] if number == 3 else [Records([], {})]))
    assert (
        table.name == f"table-{number}"
        and table.caption.startswith(f"Table {number}. ")
        and "Source: " in table.caption
    )
    assert f"<figcaption>Table {number}. " in table._repr_html_() and all(
        len(row) == len(table.header) for row in table.rows
    )


def test_what_a_page_names_is_there():
    pages = [*(ROOT / "book").rglob("*.md")]
    lines = [
        line
        for page in pages
        for line in re.findall(
            r"^:::\{in-code\} (.*)\n(?::fast: (.*)\n)?:test: (.*)\n"
            r"(?::proof: (.*)\n)?(?::chapter: (.*)\n)?:::$",
            page.read_text(),
            re.M,
        )
    ]
    assert len(lines) == sum(page.read_text().count("{in-code}") for page in pages) > 10
    for functions, fast, tests, proofs, chapter in lines:
        assert all(incode.find_object(name) for name in [*functions.split(), *fast.split()])
        assert not chapter or (ROOT / "notebooks" / f"{chapter}.ipynb").exists()
        assert all(name.startswith("theory.") for name in functions.split()), functions
        assert all(name.startswith("layers.") for name in fast.split()), fast
        assert all(incode.find_test(name) for name in tests.split())
        assert all(machinechecked.find_theorem(name) for name in proofs.split())
    for find, name in (
        (incode.find_object, "theory.grid.nothing"),
        (incode.find_test, "test_grid.py::test_nothing"),
        (machinechecked.find_theorem, "theorem_of_nothing"),
        (apipages.modules_in, "nothing"),
    ):
        with pytest.raises(
            ValueError, match=f"a page names .*{name}, .*(has no .*nothing|does not exist)"
        ):
            find(name)


def test_the_pages_of_the_code_have_every_file_that_defines_a_public_name():
    source = ROOT / "src"
    defined = {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for path in source.rglob("*.py")
        if re.search(r"^(class|def) [A-Za-z]", path.read_text(), re.M) and path.stem != "cli"
    }
    pages = "".join(page.read_text() for page in (ROOT / "book" / "api").glob("*.md"))
    parts = " ".join(re.findall(r"^:::\{api\} (.*)$", pages, re.M)).split()
    shown = [module for part in parts for module in apipages.modules_in(part)]
    assert sorted(shown) == sorted(defined)


def test_the_source_of_an_alias_is_that_of_its_module(tmp_path):
    (tmp_path / "conf.py").write_text('extensions = ["myst_parser", "apipages"]\n')
    (tmp_path / "index.md").write_text("# Code\n\n```{api} companion.data.layouts\n```\n")
    app = Sphinx(tmp_path, tmp_path, tmp_path / "html", tmp_path / "tree", "html", status=None)
    app.build()
    index = (tmp_path / "html" / "_modules" / "index.html").read_text()
    assert re.findall(r'href="([a-z/]+)\.html">[a-z.]+</a></li>', index) == [
        "companion/data/layouts"
    ]


CHAPTERS = {  # a chapter, the model whose record is damaged, those that are whole
    "09-quadratic-encoding": ("sa-quadratic", ["sa-quadratic-16"]),
    "11-learned-encodings": ("sa-learned-content", ["sa-learned"]),
}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_damaged_and_a_deleted_record_give_a_page_that_says_so(chapter, paper_records, tmp_path):
    damaged, whole = CHAPTERS[chapter]
    for model in [damaged, *whole]:
        shutil.copytree(
            paper_records / f"{model}--cifar10--seed0",
            tmp_path / "runs" / f"{model}--cifar10--seed0",
        )
    (tmp_path / "runs" / f"{damaged}--cifar10--seed0" / "attention.safetensors").write_bytes(
        b"damaged"
    )
    outputs = execute(chapter, tmp_path)
    (note,) = (text for text in outputs if "Figures and tables show the paper tier" in text)
    assert f"{damaged} on digits (Paper tier: damaged: " in note and "attention.safetensors" in note
    assert str(tmp_path) not in note and not any(
        model in note.partition(damaged)[0] for model in whole
    )
    tables_of_heads = re.findall(r'id="lemma-1-([a-z0-9-]+)"', "".join(outputs))
    expected = {
        model: f"{model}--digits-brief--seed0" if model == damaged else f"{model}--cifar10--seed0"
        for model in SHOWN
    }
    assert tables_of_heads == [
        expected[model]
        for model in SHOWN
        if model in (damaged, *whole) and model != "sa-quadratic-16"
    ]


SHOWN = ("sa-quadratic", "sa-quadratic-16", "sa-learned", "sa-learned-content")


def test_the_results_with_damaged_deleted_and_whole_records(paper_records, tmp_path):
    for model in ("resnet18", "sa-quadratic", "sa-learned"):
        shutil.copytree(
            paper_records / f"{model}--cifar10--seed0",
            tmp_path / "runs" / f"{model}--cifar10--seed0",
        )
    metrics = tmp_path / "runs" / "sa-quadratic--cifar10--seed0" / "metrics.csv"
    metrics.write_text(metrics.read_text().replace("0.9", "0.99"))
    (tmp_path / "runs" / "sa-learned--cifar10--seed0" / "run.json").unlink()
    table = next(text for text in execute("08-results", tmp_path) if 'id="table-4"' in text)
    rows = {row.split("</th>")[0]: row for row in table.split('<th scope="row">')[1:]}
    assert "<td>0.9000</td>" in rows["ResNet18"]
    assert (
        "damaged: " in rows["SA quadratic"]
        and "metrics.csv" in rows["SA quadratic"]
        and "0.99" not in rows["SA quadratic"]
    )
    assert "damaged: " in rows["SA learned"] and "run.json" in rows["SA learned"]
    assert "not run" in rows["SA learned + content"]


def execute(chapter, folder):
    """The texts of a chapter's outputs, HTML first, with the records of `folder/runs`."""
    output = folder / "out.ipynb"
    path = ROOT / "notebooks" / f"{chapter}.ipynb"
    run = papermill(path, output, {"runs": folder / "runs", "tier": "paper"})
    assert run.returncode == 0, run.stderr[-3000:]
    notebook = json.loads(output.read_text())
    found = []
    for cell in notebook["cells"]:
        for data in (output.get("data", {}) for output in cell.get("outputs", [])):
            text = data.get("text/html") or data.get("text/plain") or ""
            found.append("".join(text))
    return found
