"""The tables of the chapter on how vision transformers start."""

from companion.runs.select import Records
from companion.studies.starts import tables as starts


def test_without_runs_every_answer_is_not_run():
    table = starts.start_answers_table(Records([], {}))
    assert [row[1] for row in table.rows] == ["not run"] * 8
    assert table.rows[0][0].endswith("(5,000 images, 40 epochs)")
    accuracies = starts.starts_table(Records([], {}))
    assert {cell for row in accuracies.rows for cell in row[1:]} == {"not run"}
