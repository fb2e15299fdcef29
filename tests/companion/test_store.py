import errno
import os

import pytest
import torch

from companion.store import DamagedFile, read_tensors, write_file, write_tensors
from companion.training.checkpoint import Checkpoint, Checkpoints, Progress

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(7)}
TENSORS |= {"c": torch.zeros(0, 2), "d": torch.ones(3).bfloat16()}


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "new" / "x.safetensors"
    write_tensors(path, TENSORS, {"epoch": 3, "metrics": [{"x": 0.1}]})
    tensors, metadata = read_tensors(path)
    assert metadata == {"epoch": 3, "metrics": [{"x": 0.1}]} and tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        torch.testing.assert_close(tensors[name], value, atol=0, rtol=0)  # compares types, too


def test_the_same_content_gives_the_same_file(tmp_path):
    for name in map(str, range(20)):
        write_tensors(tmp_path / name, TENSORS, {"epoch": 3})
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_what_was_read_does_not_change_with_the_file(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS, {})
    tensors, _ = read_tensors(path)
    path.write_bytes(bytes(path.stat().st_size))  # in place
    assert torch.equal(tensors["a"], TENSORS["a"])


def test_every_damaged_byte_is_found(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS, {"epoch": 3})
    good = path.read_bytes()
    damaged = [good[:n] + bytes([good[n] ^ 4]) + good[n + 1 :] for n in range(len(good))]
    damaged += [good[:length] for length in range(0, len(good), 7)]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DamagedFile, match="is damaged"):
            read_tensors(path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write_file(path, b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def checkpoint(size, step=0):
    weights = {"w": torch.full((size,), float(step))}
    return Checkpoint(
        {"epochs": 1}, Progress(step=step), weights, {}, torch.zeros(1), torch.zeros(())
    )


def test_a_full_disk_loses_the_new_checkpoint_never_the_old_one(tmp_path, small_files):
    checkpoints = Checkpoints(tmp_path)
    text = r"step-000000001.*could not be written \(.*\); there is no earlier one"
    with pytest.warns(UserWarning, match=text):
        assert not checkpoints.write(checkpoint(1000, step=1))
    assert checkpoints.write(checkpoint(2, step=2))
    text = r"could not be written .*; the previous one remains: .*step-000000002"
    with pytest.warns(UserWarning, match=text):
        assert not checkpoints.write(checkpoint(1000, step=3))
    assert len(checkpoints.read().weights["w"]) == 2 and len(list(tmp_path.iterdir())) == 1


def test_two_checkpoints_are_kept_and_a_damaged_one_falls_back(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.read() is None
    for step in (9, 10, 11):
        checkpoints.write(checkpoint(2, step))
    names = [path.name for path in checkpoints.paths()]
    assert names == [f"step-0000000{step}.safetensors" for step in (11, 10)]
    newest = checkpoints.paths()[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    text = "step-000000011.safetensors is damaged.*; using the previous checkpoint instead"
    with pytest.warns(UserWarning, match=text):
        found = checkpoints.read()
    assert found.progress.step == 10 and found.weights["w"].tolist() == [10.0, 10.0]
    checkpoints.clear()
    assert checkpoints.read() is None and not list(tmp_path.iterdir())
