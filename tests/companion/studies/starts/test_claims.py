"""The rules of chapter 17, on accuracies and shares made up for them."""

import pytest

from companion.runs.select import Records
from companion.studies.starts import claims
from companion.studies.starts.claims import START_CLAIMS, stays
from companion.studies.starts.measures import VIT_TIERS

NONE = Records([], {})
HELPS, _, _, LASTS, _ = START_CLAIMS


def test_answers_follow_from_accuracies(monkeypatch):
    """Each gain is far beyond the noise, and shrinks with data and with training."""
    gain = {"vit-5k": 0.3, "vit-10k": 0.2, "vit-50k": 0.1, "vit-10k-long": 0.05}

    def accuracies(extra):
        return {tier: [0.4 + extra * more, 0.401 + extra * more] for tier, more in gain.items()}

    made_up = {"vit-default": accuracies(0), "vit-convolution": accuracies(1)}
    made_up |= {"vit-random": accuracies(1), "vit-center": accuracies(0)}
    monkeypatch.setattr(claims.measures, "accuracies_of", lambda records: made_up)
    assert claims.answers(NONE) == {
        "start-helps": dict.fromkeys(VIT_TIERS, "helps"),
        "start-grid": {"records": "not shown to be the grid"},  # random offsets are as good
        "start-data": {"records": "grows"},
        "start-lasts": {"records": "shrinks"},
        "start-stays": {"records": "not run"},
    }
    helps, lasts = HELPS.judge(NONE)[1], LASTS.judge(NONE)[0]
    assert helps.where == "vit-10k" and helps.measured == "gain +0.2000 (standard error 0.0007)"
    assert lasts.measured.startswith("gain in vit-10k minus gain in vit-10k-long +0.15")
    made_up |= {"vit-random": accuracies(0), "vit-center": accuracies(1)}
    # nor is it shown if the centre alone is as good
    assert claims.answers(NONE)["start-grid"] == {"records": "not shown to be the grid"}
    made_up |= {"vit-random": accuracies(0.5), "vit-center": accuracies(0)}
    assert claims.answers(NONE)["start-grid"] == {"records": "the grid"}
    del made_up["vit-convolution"]["vit-50k"]
    assert claims.answers(NONE)["start-data"] == {"records": "not run"}


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ([0.75], "stay"),
        ([0.7, 0.7], "partly stay"),
        ([0.2, 0.3], "leave"),
        ([1, 0.4], "partly stay"),
    ],
)
def test_heads_stay_or_leave(shares, verdict):
    assert stays(shares).verdict == verdict
