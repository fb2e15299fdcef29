import json

import pytest
import torch
from helpers import ROOT

from companion.runs.record import LARGEST_RECORD, find_runs, load_run, provenance, write_run
from companion.runs.record import METRICS as COLUMNS
from companion.store import DamagedFile
from companion.tables import records_table

INFO = {
    "status": "finished",
    "parameters": {"model": "sa-quadratic", "epochs": 2},
    "dataset": {"name": "digits", "fingerprint": "0" * 64, "train_images": 10, "test_images": 5},
    "parameter_count": 3,
    "wall_seconds": 1.5,
    "images_per_second": 20.0,
    "times_resumed": 0,
    "git_commit": None,
    "versions": {"torch": "2"},
    "hardware": {"device": "some processor"},
}
METRICS = [
    dict(zip(COLUMNS, values, strict=True))
    for values in ((1, 0.1, 2.3, 0.1, 1 / 3, 0.8, 0.7), (2, 0.0, 1.9, 0.2, 2.1, 0.6, 1.5))
]
ATTENTION = {"epochs": torch.tensor([0, 2]), "layer1.centers": torch.randn(2, 9, 2)}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "sa-quadratic--digits--seed0"
    write_run(folder, INFO, METRICS, ATTENTION)
    return folder


def test_a_record_is_read_as_it_was_written(folder):
    record = load_run(folder)
    assert record.metrics == METRICS, "to the last bit"
    info = record.info
    assert (info.final_test_accuracy, info.best_test_accuracy, info.epochs_done) == (0.6, 0.8, 2)
    assert torch.equal(record.attention["layer1.centers"], ATTENTION["layer1.centers"])
    files = {"attention.safetensors", "metrics.csv", "run.json"}
    assert {path.name for path in folder.iterdir()} == files
    records, problems = find_runs(folder.parent)
    assert [found.folder.name for found in records] == [folder.name] and not problems
    row = "| sa-quadratic--digits--seed0 | 2 of 2 | 0.6000 (0.8000) | 20 |"
    assert row in records_table(records, "runs").markdown()


def test_a_partial_record(tmp_path):
    folder = tmp_path / "sa-quadratic--digits--seed0"
    write_run(folder, INFO | {"status": "running"}, [])
    record = load_run(folder)
    assert record.info.final_test_accuracy is None
    assert record.attention == {} and record.metrics == []
    assert "| 0 of 2, running | - | 20 |" in records_table([record], "runs").markdown()


def test_damaged_records_say_what_is_wrong(folder):
    def expect(message, error=DamagedFile):
        with pytest.raises(error, match=message):
            load_run(folder)

    metrics, info, attention = (
        folder / name for name in ("metrics.csv", "run.json", "attention.safetensors")
    )
    content = metrics.read_bytes()
    metrics.write_bytes(content.replace(b"0.6", b"0.9"))
    expect("metrics.csv does not match run.json; restore it from git, or repeat the run")
    metrics.unlink()
    expect(r"incomplete or damaged \(.*No such file.*metrics.csv")
    records, problems = find_runs(folder.parent)
    assert not records and len(problems) == 1
    metrics.write_bytes(content)
    whole = info.read_bytes()
    info.write_text(json.dumps(json.loads(whole) | {"epochs_done": "many"}))
    expect("run.json is damaged: epochs_done Input should be a valid integer")
    info.write_text("{")
    expect("run.json is damaged")
    info.write_bytes(whole)
    attention.write_bytes(b"")
    expect("attention.safetensors is damaged.*; restore it from git")
    attention.unlink()
    expect(r"\(No such file.*attention.safetensors\); restore it from git")
    info.unlink()
    expect("there is no run record in .*seed0", FileNotFoundError)


def test_every_damage_to_run_json_is_found(folder):
    """Each byte changed, each piece left out, and values that would be read as if nothing had
    happened."""
    path = folder / "run.json"
    whole = path.read_bytes()
    length = len(whole)
    damaged = [whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :] for n in range(length)]
    damaged += [whole[:n] + whole[n + cut :] for cut in (1, 7, 40) for n in range(0, length, 5)]
    damaged += [whole[:n] for n in range(0, length, 5)]
    changes = ((b'"epochs": 2', b'"epochs": 3'), (b"0" * 64, b"1" * 64), (b"1.5", b"2.5"))
    damaged += [whole.replace(*change) for change in changes]
    for content in damaged:
        assert content != whole
        path.write_bytes(content)
        with pytest.raises(DamagedFile, match=r"run\.json"):
            load_run(folder)
    path.write_bytes(whole)
    load_run(folder)


def test_a_record_of_another_version_is_refused(folder):
    """Records of version 1 had no version, no digest of their own and no tier."""
    info = json.loads((folder / "run.json").read_text())
    first = {name: value for name, value in info.items() if name not in ("version", "sha256")}
    for content, message in (
        (first, "version Field required; restore it from git, or repeat the run"),
        (info | {"version": 3}, "version Input should be 2; restore it"),
    ):
        (folder / "run.json").write_text(json.dumps(content, indent=2) + "\n")
        with pytest.raises(DamagedFile, match=message):
            load_run(folder)


@pytest.mark.parametrize("folder", ["runs", "pilot/*", "pilot-scaling/*", "pilot-vit/*"])
def test_every_committed_record_is_read(folder):
    folders = [path for path in (ROOT / "data").glob(folder) if path.is_dir()]
    assert folders
    for path in folders:
        records, problems = find_runs(path)
        assert records and not problems


def test_a_folder_that_is_not_there_is_named(tmp_path):
    text = r"there is no folder .*mistyped, expected one that holds run records"
    with pytest.raises(FileNotFoundError, match=text):
        find_runs(tmp_path / "mistyped")
    assert find_runs(tmp_path) == ([], {})


def test_a_record_too_large_for_git_is_pointed_out(folder):
    with pytest.warns(UserWarning, match="more than the 3,000,000 of a record"):
        write_run(folder, INFO, METRICS, {"x": torch.zeros(LARGEST_RECORD, dtype=torch.uint8)})


def test_libraries_that_were_preloaded_are_named_without_their_folders(monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert "preloaded" not in provenance(torch.device("cpu"), 1)["hardware"]
    one = "mkl-on-amd.so"
    for several, names in {
        f"data/cache/{one}": one,
        f"data/cache/{one}:/lib/libjemalloc.so.2": f"{one}:libjemalloc.so.2",
        f"/lib/libjemalloc.so.2 data/cache/{one}": f"libjemalloc.so.2:{one}",
    }.items():
        monkeypatch.setenv("LD_PRELOAD", several)
        assert provenance(torch.device("cpu"), 1)["hardware"]["preloaded"] == names
