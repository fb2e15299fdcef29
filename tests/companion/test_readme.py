"""The parts of the README that are made from the records."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT
from helpers.synthetic import write_record, write_records
from matplotlib.image import imread

from companion import readme
from companion.cli import main
from companion.figures import chapters
from companion.runs.select import Records
from companion.specs import MODELS, TABLE_4


def test_the_readme_equals_the_records():
    text = (ROOT / "README.md").read_text()
    assert readme.readme_part(Records.read()) in text, "run: make readme"


def test_the_readme_opens_with_claim_picture_and_table():
    text = (ROOT / "README.md").read_text()
    parts = ("An executable companion", "book/claim.png", readme.MARKS[0], "## ")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_the_readme_s_picture_is_what_the_code_draws(tmp_path):
    readme.update_picture(tmp_path / "claim.png")
    there = imread(ROOT / "book" / "claim.png")
    drawn = imread(tmp_path / "claim.png")
    assert there.shape == drawn.shape and np.abs(there - drawn).mean() < 0.001, "run: make readme"


def test_the_picture_says_rounding_of_rounding_alone(monkeypatch):
    assert "(difference: rounding)" in chapters.claim().axes[2].get_title()
    monkeypatch.setattr(
        chapters, "conv_to_attention", lambda conv: lambda image: 1.001 * conv(image)
    )
    assert "(difference: more than rounding)" in chapters.claim().axes[2].get_title()


def test_the_readme_s_table_follows_the_records(tmp_path, monkeypatch):
    path = Path(shutil.copy(ROOT / "README.md", tmp_path))
    write_records(tmp_path / "runs")
    monkeypatch.setattr(readme, "README", path)
    records = Records.read(tmp_path / "runs")
    assert readme.update_readme(records, path)
    assert not readme.update_readme(records, path), "the second time nothing changes"
    text = path.read_text()
    for model in TABLE_4:
        record = records.of(model)[0]
        epochs = record.parent["epochs"] + 3 if MODELS[model].parent else 3
        pattern = rf" [0-9.-]+ \| ([0-9.]+) \(n = 1, {epochs} epochs\) \| not run \|"
        row = re.search(rf"\| {re.escape(MODELS[model].label)} \|{pattern}", text)
        assert float(row[1]) == record.accuracy
    assert f"Paper tier: {len(MODELS)} of {len(MODELS)} models run" in text
    assert text.count(readme.MARKS[1]) == 1
    path.write_text(text.replace(readme.MARKS[1], ""))
    with pytest.raises(ValueError, match="lacks the marks"):
        readme.update_readme(records, path)


def test_the_command_writes_the_readme(tmp_path, monkeypatch, capsys):
    path = Path(shutil.copy(ROOT / "README.md", tmp_path))
    monkeypatch.setattr(readme, "README", path)
    monkeypatch.setattr(readme, "PICTURE", tmp_path / "claim.png")
    write_record(tmp_path / "runs", "resnet18", tier="small")
    assert main(["readme", "--runs", str(tmp_path / "runs")]) == 0
    assert "| not run | 0.9000 (n = 1, 3 epochs) |" in path.read_text()
    assert (tmp_path / "claim.png").exists()
    assert "written anew" in capsys.readouterr().out
