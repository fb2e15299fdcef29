"""The tables of the chapter on how vision transformers start."""

from companion.runs.select import Records
from companion.studies.starts import measures as measures
from companion.studies.starts import tables as starts


def test_without_runs_every_answer_is_not_run():
    table = starts.start_answers_table(Records([], {}))
    assert [row[1] for row in table.rows] == ["not run"] * 8
    assert table.rows[0][0].endswith("(5,000 images, 40 epochs)")
    accuracies = starts.starts_table(Records([], {}))
    assert {cell for row in accuracies.rows for cell in row[1:]} == {"not run"}


def test_answers_follow_from_accuracies(monkeypatch):
    """Each gain is far beyond the noise, and shrinks with data and with training."""
    gain = {"vit-5k": 0.3, "vit-10k": 0.2, "vit-50k": 0.1, "vit-10k-long": 0.05}

    def accuracies(extra):
        return {tier: [0.4 + extra * more, 0.401 + extra * more] for tier, more in gain.items()}

    made_up = {"vit-default": accuracies(0), "vit-convolution": accuracies(1)}
    made_up |= {"vit-random": accuracies(1), "vit-center": accuracies(0)}
    monkeypatch.setattr(measures, "accuracies_of", lambda records: made_up)
    found = measures.answers(Records([], {}))
    assert [found[f"helps, {tier}"] for tier in measures.TIERS] == ["helps"] * 4
    assert found["grid"] == "not shown to be the grid"  # random offsets are as good
    judged = measures.judge(Records([], {}))
    assert judged["helps, vit-10k"].measured == "gain +0.2000 (standard error 0.0007)"
    assert judged["lasts"].measured.startswith("gain in vit-10k minus gain in vit-10k-long +0.15")
    assert found["data"] == "grows" and found["lasts"] == "shrinks" and found["stays"] == "not run"
    made_up |= {"vit-random": accuracies(0), "vit-center": accuracies(1)}
    assert measures.answers(Records([], {}))["grid"] == "not shown to be the grid"  # nor the center
    made_up |= {"vit-random": accuracies(0.5), "vit-center": accuracies(0)}
    assert measures.answers(Records([], {}))["grid"] == "the grid"
    del made_up["vit-convolution"]["vit-50k"]
    assert measures.answers(Records([], {}))["data"] == "not run"
