"""The tables of the chapter on how vision transformers start."""

from companion.runs.select import Records
from companion.studies.starts import tables as starts


def test_without_runs_every_answer_is_not_run():
    table = starts.start_answers_table(Records([], {}))
    assert [row[1] for row in table.rows] == ["not run"] * 8
    assert table.rows[0][0].endswith("(5,000 images, 40 epochs)")
    accuracies = starts.starts_table(Records([], {}))
    assert {cell for row in accuracies.rows for cell in row[1:]} == {"not run"}


def test_the_tables_on_rotary_encodings_wait_for_their_runs():
    nothing = Records([], {})
    answers, accuracies = starts.rotary_answers_table(nothing), starts.rotary_table(nothing)
    assert [row[1] for row in answers.rows] == ["not run"] * 2
    assert [row[1] for row in accuracies.rows] == ["not run"] * 3
