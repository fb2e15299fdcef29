"""Trained models in the folder format of the Hugging Face hub (needs the package huggingface-hub).

A folder contains a run record, the weights as `model.safetensors`, a `config.json` and a model
card, but no code and no pickle files. `make release` writes such a folder for each run with stored
weights.
"""

import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import PyTorchModelHubMixin, snapshot_download
from torch import Tensor, nn

from .record import load_run
from .weights import WEIGHTS_FILE, TrainedModel, model_of

HUB_FILE = "model.safetensors"


class HubModel(nn.Module, PyTorchModelHubMixin):
    """A trained model that `HubModel.from_pretrained` loads from a folder or from the hub.

    `network` is the `TrainedModel` in evaluation mode, with its record. It maps images
    `(B, 3, 32, 32)` to logits `(B, 10)`.
    """

    def __init__(self, network: TrainedModel):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits `(B, 10)` for images `(B, 3, 32, 32)`."""
        return self.network(images)

    def _save_pretrained(self, save_directory: Path) -> None:
        folder = self.network.record.folder
        for name in ("run.json", "metrics.csv", "attention.safetensors"):
            shutil.copyfile(folder / name, save_directory / name)
        stored = next(name for name in (WEIGHTS_FILE, HUB_FILE) if (folder / name).exists())
        shutil.copyfile(folder / stored, save_directory / HUB_FILE)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "HubModel":
        known = ("revision", "cache_dir", "force_download", "local_files_only", "token")
        folder = Path(model_id)
        if not folder.is_dir():
            folder = Path(snapshot_download(model_id, **{name: options[name] for name in known}))
        return cls(model_of(load_run(folder), HUB_FILE)).eval()
