"""Tables against the records and models that they are made of."""

import html.parser
import statistics

import pytest
from helpers.synthetic import write_record

from attnconv import build_model, cost_of
from companion import tables
from companion.display import Table, commands_of
from companion.runs.record import load_run
from companion.runs.select import Records
from companion.specs import MODELS, TABLE_1, TABLE_2, TABLE_4
from companion.studies import pruning


def columns(table, name):
    """The cells of a column by the first cell of their row."""
    index = list(table.header).index(name)
    return {row[0]: row[index] for row in table.rows}


def test_table_4_without_records_says_so_and_shows_the_published():
    table = tables.table_4(Records([], {}))
    assert set(columns(table, "measured").values()) == {"not run"}
    assert columns(table, "published")["SA learned + content"] == "0.871"
    assert len(table.rows) == len(MODELS) and [row[0] for row in table.rows[:2]] == [
        "ResNet18",
        "SA quadratic",
    ]
    assert [row[0] for row in tables.table_1(Records([], {})).rows] == [
        MODELS[model].label for model in TABLE_1
    ]


def test_table_4_is_the_records(tmp_path):
    accuracies = [0.90, 0.93, 0.915]
    for seed, accuracy in enumerate(accuracies):
        write_record(tmp_path, "resnet18", accuracy, seed)
    write_record(tmp_path, "sa-learned", 0.9)
    (tmp_path / "sa-learned-content--cifar10--seed0").mkdir()
    table = tables.table_4(Records.read(tmp_path))
    measured = columns(table, "measured")
    mean, spread = statistics.mean(accuracies), statistics.stdev(accuracies)
    assert (
        measured["ResNet18"] == f"{mean:.4f} ± {spread:.4f}" and measured["SA learned"] == "0.9000"
    )
    assert columns(table, "difference")["ResNet18"] == f"{mean - 0.938:+.4f}"
    assert columns(table, "best")["ResNet18"] == f"{mean + 0.001:.4f}"
    assert columns(table, "conditions")["ResNet18"] == "3 seeds, 3 epochs"
    assert (
        measured["SA learned + content"].startswith("damaged: ")
        and measured["SA quadratic"] == "not run"
    )


def test_sizes_and_costs_are_the_models():
    table = tables.table_4(Records([], {}))
    for model in TABLE_4:
        cost = cost_of(build_model(model))
        spec = MODELS[model]
        size = columns(table, "parameters")[spec.label]
        assert (
            size.split()[0].replace(",", "") == str(cost.parameters)
            and spec.published.parameters in size
        )
        assert columns(table, "all FLOPs, G")[spec.label] == f"{cost.flops / 1e9:.3f}"


def test_the_pruned_row_has_the_size_of_the_run_that_was_made(tmp_path):
    record = write_record(tmp_path, "sa-generalized-pruned")
    removed = [[0], [], [1, 2], [], [], []]
    (tmp_path / "other").mkdir()
    other = write_record(
        tmp_path / "other",
        "sa-generalized-pruned",
        parent=record.info.parent | {"removed_heads": removed},
    )
    sizes = [
        columns(tables.table_4(Records([each], {})), "parameters")[
            MODELS["sa-generalized-pruned"].label
        ]
        for each in (record, other)
    ]
    assert sizes[0].startswith("9,686,916 ") and sizes[1].startswith(
        f"{12_087_006 - 3 * 160_006:,} "
    )
    table = pruning.pruning_table(record)
    assert (
        columns(table, "before")["heads"] == "54" and columns(table, "just after")["heads"] == "39"
    )
    assert (
        columns(table, "before")["parameters"] == "12,087,006" and "(-19.9%)" in table.rows[2][-1]
    )
    assert table.rows[0][1:] == ["0.9020", "0.4500", "0.9000"]


def test_table_2_has_each_parameter_as_printed_as_planned_and_as_used(tmp_path):
    write_record(tmp_path, "sa-quadratic")
    table = tables.table_2(Records.read(tmp_path))
    planned, used = columns(table, "recipe here"), columns(table, "sa-quadratic")
    for label, printed, _ in TABLE_2:
        same = {"cosine decay": "cosine", "layer normalization epsilon": "1e-12"}.get(
            label, printed
        )
        assert planned[label] == same, label
    assert (
        used["number of epochs"] == "3"
        and used["learning rate"] == "0.1"
        and used["momentum"] == "-"
    ), "no record has it"


def test_table_2_counts_the_heads_of_each_record(paper_records):
    table = tables.table_2(Records.read(paper_records))
    heads = {
        model: columns(table, model)["number of heads"]
        for model in list(MODELS)
        if model != "resnet18"
    }
    expected = dict.fromkeys(("sa-quadratic", "sa-generalized", "sa-learned"), "9") | {
        "sa-learned-content": "9",
        "sa-quadratic-16": "16",
        "sa-generalized-pruned": "7, 5, 8, 7, 3, 9",
    }
    assert {model: heads[model] for model in expected} == expected


def test_table_3_makes_every_encoding():
    table = tables.table_3()
    assert len(table.rows) == 8 and all(row[-1].count(" × ") for row in table.rows)
    marks = {row[0]: [cell == "yes" for cell in row[2:6]] for row in table.rows}
    assert marks["Dai et al. (2019)"] == [True, False, False, True] and marks["the paper"] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("model", [model for model in MODELS if model != "resnet18"])
def test_lemma_1_table(model, paper_records):
    record = load_run(paper_records / f"{model}--cifar10--seed0")
    table = tables.lemma_1_table(record)
    assert len(table.rows) == 6 and record.name in table.caption
    assert ("largest residual of Lemma 3" in table.header) == (model != "sa-learned-content")
    has_centers = "centre to nearest pixel, median" in table.header
    assert has_centers == (not model.startswith("sa-learned"))
    assert all("-" not in row for row in table.rows), "a column is there for all layers or none"


def test_records_table_leads_to_the_command(paper_records):
    runs = Records.read(paper_records).of(*MODELS)
    rows = tables.records_table(runs, "all").rows
    commands = commands_of(runs).lines
    assert [row[0] for row in rows] == [name for name, _ in commands] and len(rows) == len(MODELS)
    assert all(
        text.startswith(".venv/bin/python -m attnconv train --model ") for _, text in commands
    )
    assert rows[0][2] == "0.9000 (0.9010)" and rows[0][4] == "10.0" and rows[0][7] == "0123456789"


class Reader(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open = []
        self.cells = []
        self.caption = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.cells[-1] += data
        elif self.open[-1] == "figcaption":
            self.caption += data


def test_a_table_is_the_same_in_html_and_in_markdown():
    table = tables.Table(
        "t", "What <it> is. Source: here.", ["a", "b"], [["x < y", "2"], ["&", "3"]]
    )
    page = Reader(table._repr_html_())
    assert (
        not page.open
        and page.cells == ["a", "b", "x < y", "2", "&", "3"]
        and page.caption == table.caption
    )
    assert (
        repr(table)
        == "| a | b |\n| --- | --- |\n| x < y | 2 |\n| & | 3 |\n\nWhat <it> is. Source: here.\n"
    )


def test_quick_results(tmp_path):
    table = tables.quick_results([write_record(tmp_path, "sa-learned")])
    assert (
        table.rows == [["SA learned", "0.900", "3", "12", "600 s"]]
        and "an imagined GPU" in table.caption
    )


def test_columns_that_a_page_collapses_stay_below_their_row():
    header = ["claim", "verdict", "rule"]
    rows = [["a < b", "differs", "b > 0"], ["c", "-", "d"]]
    table = Table("claims", "Source: none.", header, rows, shown=2, more="rule & more")
    page = table._repr_html_()
    assert page.count('<th scope="col">') == 2 and page.count("<summary>rule &amp; more<") == 2
    assert '<span class="verdict differs">differs</span></td></tr><tr class="aside">' in page
    assert "<dl><dt>rule</dt><dd>b &gt; 0</dd></dl>" in page and "<dd>d</dd>" in page
    assert "| a < b | differs | b > 0 |" in table.markdown()
