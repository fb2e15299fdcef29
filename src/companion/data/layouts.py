"""The layouts of files in which CIFAR-10 is found, and a reader of each; see `LAYOUTS`."""

import os
import re
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from gzip import BadGzipFile
from importlib import import_module
from io import BytesIO
from pathlib import Path, PurePath

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

#: Images `(N, 32, 32, 3)` uint8 and labels `(N,)` int64 of each split.
Splits = dict[str, tuple[np.ndarray, np.ndarray]]

CIFAR10_CLASSES = (  # in alphabetical order
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
#: The number of images in each split.
CIFAR10_COUNTS = {"train": 50_000, "test": 10_000}
HOW_TO_GET_IT = (
    "download the original with torchvision.datasets.CIFAR10(FOLDER, download=True), or put"
    " cifar-10-python.tar.gz into FOLDER, or one PNG an image into"
    " FOLDER/cifar10/{train,test}/CLASS/, and name FOLDER by root or the variable ATTNCONV_DATA"
)


def find_layout(root: Path) -> tuple[Path, Callable[[Path], Splits]] | None:
    """Return what reveals the first of the `LAYOUTS` found, and its reader; None if there is none.

    `root` is an archive or a folder, which is searched together with the folders at most two levels
    below it. What operating systems and Jupyter leave there is ignored. Raises ValueError for a
    file that is not an archive.
    """
    if root.is_file():
        if tarfile.is_tarfile(root):
            return root, read_packed
        names = " or ".join(name for name, read in LAYOUTS.items() if read is read_packed)
        raise ValueError(f"{root} is a file, expected a folder, {names}; {HOW_TO_GET_IT}")
    for pattern, read in LAYOUTS.items():
        for level in ("", "*/", "*/*/"):
            for path in sorted(root.glob(level + pattern)):
                if not any(map(_is_junk, [path, *path.relative_to(root).parents])):
                    return path, read
    return None


def _is_junk(path: Path) -> bool:
    """Return whether a file or folder was left by Jupyter or by macOS."""
    return path.name in {".ipynb_checkpoints", "__MACOSX"} or path.name.startswith("._")


def read_batches(batch: Path) -> Splits:
    """Read the Python version, given one of its files.

    The files are pickled, so torchvision verifies the MD5 of each before it is loaded. Raises
    ValueError if a file is missing or is not the original.
    """
    import torchvision

    folder = batch.parent
    # torchvision's reader for a folder of any name
    read = type("CIFAR10", (torchvision.datasets.CIFAR10,), {"base_folder": folder.name})
    try:
        parts = {split: read(folder.parent, train=split == "train") for split in CIFAR10_COUNTS}
    except RuntimeError as error:
        raise ValueError(
            f"{folder} is incomplete or damaged (a file's MD5 is not the original's). Remove it and"
            f" {HOW_TO_GET_IT}"
        ) from error
    return {split: (part.data, np.array(part.targets)) for split, part in parts.items()}


def read_binary(batch: Path) -> Splits:
    """Read the binary version, given one of its files: a label and 3 x 32 x 32 bytes an image.

    Raises ValueError if a file is missing or has another size.
    """
    splits = {}
    for split, pattern in {"train": "data_batch_[1-5].bin", "test": "test_batch.bin"}.items():
        content = b"".join(path.read_bytes() for path in sorted(batch.parent.glob(pattern)))
        size = 1 + 3 * 32 * 32
        if len(content) != CIFAR10_COUNTS[split] * size:
            raise ValueError(
                f"{batch.parent / pattern} has {len(content)} bytes, expected"
                f" {CIFAR10_COUNTS[split] * size}. Remove it and {HOW_TO_GET_IT}"
            )
        rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
        images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        splits[split] = np.ascontiguousarray(images), rows[:, 0].astype(np.int64)
    return splits


def read_packed(archive: Path) -> Splits:
    """Read either version from its archive; only the files with their names are unpacked.

    Raises ValueError if the archive or a file in it is damaged.
    """
    wanted = re.compile(r"(data_batch_[1-5]|test_batch)(\.bin)?|batches\.meta")
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(archive) as tar:
                members = [each for each in tar if wanted.fullmatch(PurePath(each.name).name)]
                tar.extractall(folder, members, filter="data")
            if found := find_layout(Path(folder)):
                return found[1](found[0])
            problem = "it has no file data_batch_1 or data_batch_1.bin"
        except (tarfile.TarError, EOFError, zlib.error, BadGzipFile, ValueError) as error:
            # without what is already said below, and the temporary folder
            first_line = str(error).partition(". Remove")[0].partition("\n")[0]
            problem = first_line.replace(f"{folder}{os.sep}", "").rstrip(":")
    raise ValueError(
        f"{archive} is damaged or is not an archive of CIFAR-10 ({problem}). Remove it and"
        f" {HOW_TO_GET_IT}"
    )


def read_pictures(of_class: Path) -> Splits:
    """Read one PNG an image from `train/CLASS/` and `test/CLASS/`, given one of these folders."""
    folder = of_class.parent.parent
    return {split: _read_folder(folder / split, n) for split, n in CIFAR10_COUNTS.items()}


def _read_folder(folder: Path, expected: int) -> tuple[np.ndarray, np.ndarray]:
    """Read images `(N, 32, 32, 3)` uint8 and labels `(N,)` int64 from `folder/<class>/*.png`.

    Raises ValueError unless there are `expected` images, with the same number in each class.
    """
    found = sorted(folder.glob("*/*.png"))
    paths = [path for path in found if not (_is_junk(path) or _is_junk(path.parent))]
    counts = Counter(path.parent.name for path in paths)
    each = expected // len(CIFAR10_CLASSES)
    if counts != dict.fromkeys(CIFAR10_CLASSES, each):
        listed = ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
        raise ValueError(
            f"the numbers of PNG images in the folders of {folder} are {listed}; expected {each}"
            f" each of {', '.join(CIFAR10_CLASSES)}. Correct it, or {HOW_TO_GET_IT}"
        )
    bar = tqdm(paths, f"reading {folder}", unit=" images", disable=None)
    images = np.stack([_read_image(path, str(path)) for path in bar])
    return images, np.arange(len(CIFAR10_CLASSES)).repeat(each)


def _read_image(file: Path | BytesIO, name: str) -> np.ndarray:
    try:
        with Image.open(file) as image:
            if (image.size, image.mode) == ((32, 32), "RGB"):
                return np.asarray(image)
            what = f"{image.width} x {image.height} pixels, mode {image.mode}"
    # PIL's errors for a truncated file or a file of another type
    except (OSError, SyntaxError) as error:
        what = str(error)
    raise ValueError(
        f"{name} is not an image of 32 x 32 pixels, mode RGB ({what}). Replace it, or"
        f" {HOW_TO_GET_IT}"
    )


def read_parquet(first: Path) -> Splits:
    """Read the Parquet files of Hugging Face, given the first one of the training images.

    Raises ImportError without pyarrow, and ValueError if a file is missing or has other content.
    """
    return {split: _read_tables(first.parent, split, n) for split, n in CIFAR10_COUNTS.items()}


def _read_tables(folder: Path, split: str, expected: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(
            f"{folder} has Parquet files, which need pyarrow; run pip install pyarrow, or"
            f" {HOW_TO_GET_IT}"
        ) from error
    rows = []
    for path in sorted(folder.glob(f"{split}-*.parquet")):
        try:
            rows += parquet.read_table(path).to_pylist()
        except (OSError, ValueError) as error:  # pyarrow's are among them
            problem = str(error).partition("\n")[0]
            raise ValueError(
                f"{path} is damaged ({problem}). Remove it and {HOW_TO_GET_IT}"
            ) from error
    if len(rows) != expected or any(not {"img", "label"} <= set(row) for row in rows):
        columns = ", ".join(sorted({name for row in rows for name in row})) or "none"
        raise ValueError(
            f"{folder / split}-*.parquet have {len(rows)} rows with the columns {columns}, expected"
            f" {expected} with img and label. Remove them and {HOW_TO_GET_IT}"
        )
    images = [
        _read_image(BytesIO(row["img"]["bytes"]), f"row {number} of {folder / split}-*.parquet")
        for number, row in enumerate(rows)
    ]
    return np.stack(images), np.array([row["label"] for row in rows], dtype=np.int64)


def refuse_kaggle(picture: Path) -> Splits:
    """Raise ValueError, because the files of Kaggle's competition have no test labels."""
    raise ValueError(
        f"{picture.parent} has the training images of Kaggle's competition, whose test images have"
        f" no labels, so no accuracy can be measured. Keep it elsewhere and {HOW_TO_GET_IT}"
    )


#: The reader of each layout, by what reveals it; the first that is found is used.
LAYOUTS: dict[str, Callable[[Path], Splits]] = {
    "data_batch_[1-5]": read_batches,  # the Python version, unpacked: cifar-10-batches-py/
    "data_batch_[1-5].bin": read_binary,  # the binary version, unpacked: cifar-10-batches-bin/
    "test/airplane": read_pictures,  # one PNG an image: cifar10/{train,test}/CLASS/
    "plain_text/train-*.parquet": read_parquet,  # Hugging Face's, with {train,test}-*.parquet
    "cifar-10-python.tar.gz": read_packed,
    "cifar-10-binary.tar.gz": read_packed,
    "train/1.png": refuse_kaggle,  # one PNG an image, without classes
}
