import torch

from attnconv.runs.provenance import provenance


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
