"""Atomic file writes: a file is either complete or absent.

Files are written under a temporary name and then renamed. Tensor files contain a digest, which
is verified when they are read.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import safetensors.torch
import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor

CHECKOUT = Path(__file__).parents[2]
# the current folder if the package is not used from a checkout
REPOSITORY = CHECKOUT if (CHECKOUT / "pyproject.toml").exists() else Path.cwd()
Model = TypeVar("Model", bound=BaseModel)


class DamagedFile(ValueError):
    """The error raised when a file does not contain what was written to it."""


def user_path(path: str | Path) -> Path:
    """Return a path that a user gave, with a leading `~` replaced by the home folder."""
    # unlike Path.expanduser, this leaves the name of an unknown user, which then is not found
    return Path(os.path.expanduser(path))


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically, so that it always contains either the old or the new content.

    If an OSError occurs, for example because the disk is full, the old content remains.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's file would be readable only by its owner
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def expect_writable(folder: Path) -> None:
    """Raise OSError if no file can be written to a folder, which need not exist yet."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise OSError(f"cannot write to {folder}: expected {existing} to be a writable folder")


def remove_temporary(folder: Path) -> None:
    """Remove the temporary files left in a folder by processes that were killed while writing."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def read_json(path: Path, kind: type[Model]) -> Model:
    """Read what a JSON file says of a pydantic model; raise DamagedFile if it does not fit."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DamagedFile(f"{path} is damaged: {where} {first['msg']}") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and JSON metadata to one safetensors file, with a digest of both."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(metadata)
    header = {"metadata": text, "sha256": tensor_digest(tensors, text)}
    write_file(path, _in_one_order(safetensors.torch.save(tensors, header)))


def _in_one_order(content: bytes) -> bytes:
    """Return a safetensors file with sorted metadata, so that equal runs write identical files.

    safetensors itself writes the metadata in random order.
    """
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # keeps the tensors aligned
    return len(text).to_bytes(8, "little") + text + content[end:]


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors (on the CPU) and the metadata of a file written by `write_tensors`.

    Raises DamagedFile if the content is not what was written.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            # copied: safetensors maps the file, and verified data must not change if the file does
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if tensor_digest(tensors, header["metadata"]) != header["sha256"]:
            raise DamagedFile(f"{path} is damaged: its content does not match its digest")
        return tensors, json.loads(header["metadata"])
    except (safetensors.SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise DamagedFile(f"{path} is damaged: {error!r}") from None


def tensor_digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Return the hexadecimal SHA-256 of a text and of tensors (names, dtypes, shapes and bytes)."""
    whole = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        whole.update(f"\0{name} {value.dtype} {tuple(value.shape)}\0".encode())
        whole.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()


def by_prefix(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Group tensors by the first part of their names: `a.b.c` becomes `b.c` in the group `a`."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        head, _, rest = name.partition(".")
        parts.setdefault(head, {})[rest] = value
    return parts
