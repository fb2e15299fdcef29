import torch

from attnconv.records.provenance import provenance


def test_a_library_that_was_preloaded_is_named_without_its_folder(monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert "preloaded" not in provenance(torch.device("cpu"), 1)["hardware"]
    monkeypatch.setenv("LD_PRELOAD", "data/cache/mkl-on-amd.so")
    assert provenance(torch.device("cpu"), 1)["hardware"]["preloaded"] == "mkl-on-amd.so"
