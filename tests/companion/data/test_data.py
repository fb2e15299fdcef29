import hashlib
import io
import itertools
import pickle
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import skimage
import torch
import torchvision
from PIL import Image
from torchvision.transforms import functional

from attnconv import load_dataset
from companion.data import (
    CIFAR10_FINGERPRINT,
    PICTURES,
    Batches,
    Split,
    cifar10,
    layouts,
    load_photograph,
    whitened,
)
from companion.data.layouts import CIFAR10_CLASSES, LAYOUTS, find_layout
from companion.gaps import largest_gap
from companion.runs.parameters import RunParameters


def test_digits():
    digits = load_dataset("digits")
    assert digits.train_images.shape == (1437, 8, 8, 1)
    assert digits.test_images.shape == (360, 8, 8, 1)
    assert digits.train_images.dtype == torch.uint8 and digits.train_images.unique().numel() == 17
    assert digits.test_labels.bincount().tolist() == [36, 36, 35, 37, 36, 37, 36, 36, 35, 36]
    images = digits.normalise(digits.train_images)
    assert images.mean().item() == pytest.approx(0, abs=1e-5)
    assert images.std().item() == pytest.approx(1, abs=1e-5)
    train = {tuple(image.flatten().tolist()) for image in digits.train_images}
    assert not train & {tuple(image.flatten().tolist()) for image in digits.test_images}


def test_subsets_and_fingerprints():
    digits = load_dataset("digits")
    part = digits.subset(train=200, test=30)
    assert len(part.train_labels) == len(part.train_images) == 200 and len(part.test_labels) == 30
    assert torch.equal(part.train_images, digits.train_images[:200]) and part.mean == digits.mean
    again = load_dataset("digits").fingerprint
    assert digits.subset().fingerprint == digits.fingerprint == again != part.fingerprint
    labels = digits.train_labels.clone()
    labels[3] = (labels[3] + 1) % 10
    assert replace(digits, train_labels=labels).fingerprint != digits.fingerprint
    text = "train_images = 1438: expected 1 to 1437, the size of digits"
    with pytest.raises(ValueError, match=text):
        digits.subset(train=1438)
    with pytest.raises(ValueError, match="test_images = 0: expected 1 to 360"):
        digits.subset(test=0)


def test_photographs():
    assert load_photograph("china").shape == (427, 640, 3)
    small = load_photograph("flower", (61, 80))
    assert small.shape == (61, 80, 3) and small.min() >= 0 and small.max() <= 1
    white = whitened(small.double()).flatten(0, 1)
    assert torch.allclose(white.T.cov(), torch.eye(3).double())
    assert white.mean(0).abs().max() < 1e-12
    with pytest.raises(ValueError, match="expected one of china, flower, chelsea, horse"):
        load_photograph("lena")


def test_the_pictures_of_scikit_image(monkeypatch):
    chelsea, horse = (load_photograph(name) for name in PICTURES)
    assert torch.equal((255 * chelsea).round().byte(), torch.as_tensor(skimage.data.chelsea()))
    silhouette = torch.as_tensor(skimage.data.horse())
    assert torch.equal(horse, silhouette.float().unsqueeze(-1).expand(-1, -1, 3))
    assert horse[0].min() == 1, "black on white"
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(ImportError, match=r"'horse' needs scikit-image: pip install"):
        load_photograph("horse")


# --- batches --------------------------------------------------------------------------------------


def test_windows_are_torchvisions_crop_and_flip():
    digits = load_dataset("digits")
    batches = Batches(digits, digits.train_images, digits.train_labels, padding=2)
    index = torch.tensor([5, 5, 17, 1436])
    corner = torch.tensor([[0, 0], [4, 1], [2, 2], [3, 4]])
    mirrored = torch.tensor([False, True, True, False])
    images, labels = batches.windows(index, corner, mirrored)
    for n, i in enumerate(index):
        padded = functional.pad(digits.train_images[i].permute(2, 0, 1), 2)
        window = functional.crop(padded, *corner[n].tolist(), 8, 8)
        window = functional.hflip(window) if mirrored[n] else window
        assert largest_gap(images[n], digits.normalise(window.permute(1, 2, 0))) < 1e-6
        assert labels[n] == digits.train_labels[i]
    assert largest_gap(batches.plain(index)[0], digits.normalise(digits.train_images[index])) < 1e-6


def test_a_run_pads_as_asked():
    digits = load_dataset("digits")
    for values, padding in (({}, 0), ({"augment": True}, 4), ({"augment": True, "padding": 2}, 2)):
        split = Split.of(digits, RunParameters.check(values))
        assert split.train.padding == padding and split.test.padding == 0
        assert split.train.images.shape[1:3] == (8 + 2 * padding, 8 + 2 * padding)


def test_random_windows_are_uniform_and_repeatable():
    digits = load_dataset("digits")
    batches = Batches(digits, digits.train_images, digits.train_labels, padding=4)
    corner, mirrored = batches.random_windows(20_000, torch.Generator().manual_seed(3))
    assert corner.min() == 0 and corner.max() == 8
    assert mirrored.float().mean().item() == pytest.approx(0.5, abs=0.02)
    joint = torch.bincount(corner[:, 0] * 9 + corner[:, 1], minlength=81) / 20_000
    assert (joint - 1 / 81).abs().max() < 0.004
    again = batches.random_windows(20_000, torch.Generator().manual_seed(3))
    assert torch.equal(again[0], corner) and torch.equal(again[1], mirrored)


# --- CIFAR-10: what is absent, damaged or mislabelled ---------------------------------------------


def no_network(*arguments, **options):
    raise URLError("no network")


def small_folder(root):
    """A folder with 2 training images and 1 test image of each class, of noise."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 2), ("test", 1)):
        for name in CIFAR10_CLASSES:
            folder = root / "cifar10" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(layouts, "CIFAR10_COUNTS", {"train": 20, "test": 10})
    small_folder(tmp_path)
    return tmp_path


def test_unknown_and_absent_data(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="unknown dataset 'mnist', expected digits or cifar10"):
        load_dataset("mnist")
    monkeypatch.setattr(torchvision.datasets.utils, "_urlretrieve", no_network)
    text = r"not in .*nowhere .*could not be downloaded .*name FOLDER by root or the variable"
    with pytest.raises(FileNotFoundError, match=text):
        load_dataset("cifar10", tmp_path / "nowhere")
    monkeypatch.setenv("ATTNCONV_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=tmp_path.name):
        load_dataset("cifar10")
    assert not list(tmp_path.iterdir()), "nothing is written where nothing was found"


def test_a_folder_is_checked_before_it_is_used(folder):
    def expect(message):
        with pytest.raises(ValueError, match=message):
            load_dataset("cifar10", folder)

    train = folder / "cifar10" / "train"
    picture = train / "cat" / "0.png"
    good = picture.read_bytes()
    picture.write_bytes(good[: len(good) // 2])
    expect(r"cat/0.png is not an image of 32 x 32 pixels, mode RGB \(.*\). Replace it, or")
    picture.write_bytes(b"not a picture")
    expect(r"cat/0.png is not an image of 32 x 32 pixels, mode RGB \(cannot identify")
    Image.new("RGB", (32, 31)).save(picture)
    expect(r"cat/0.png is not .* mode RGB \(32 x 31 pixels, mode RGB\)")
    Image.new("L", (32, 32)).save(picture)
    expect(r"cat/0.png is not .* mode RGB \(32 x 32 pixels, mode L\)")
    picture.unlink()
    expect(r"cifar10/train are airplane 2, automobile 2, bird 2, cat 1, .*; expected 2 each of")
    shutil.rmtree(picture.parent)
    expect(r"cifar10/train are airplane 2, automobile 2, bird 2, deer 2, .*; expected 2 each of")
    shutil.rmtree(train)
    expect(r"cifar10/train are none; expected 2 each of airplane, automobile")
    assert not (folder / "cache").exists()


def test_channel_statistics_are_checked(folder):
    text = r"have the channel means \[0\.49.* expected \[0\.49139968, 0\.48215841, 0\.44653091\]"
    with pytest.raises(ValueError, match=text):
        load_dataset("cifar10", folder)


@pytest.fixture
def made_up(monkeypatch):
    """Twenty training and ten test images of noise, in bytes as in the original: (N, 3072)."""
    monkeypatch.setattr(layouts, "CIFAR10_COUNTS", {"train": 20, "test": 10})
    rng = np.random.default_rng(0)
    return {n: rng.integers(0, 256, (n, 3072), dtype=np.uint8) for n in (20, 10)}


def labels_of(count):
    return [i % 10 for i in range(count)]


@pytest.fixture
def python_version(made_up, tmp_path, monkeypatch):
    """torchvision's own files, with made-up images; the sums are those of these files."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    contents = {"batches.meta": {"label_names": list(CIFAR10_CLASSES)}}
    for name, count in (("data_batch_1", 20), ("test_batch", 10)):
        contents[name] = {"data": made_up[count], "labels": labels_of(count)}
    sums = {}
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content))
        sums[name] = hashlib.md5((folder / name).read_bytes()).hexdigest()
    original = torchvision.datasets.CIFAR10
    monkeypatch.setattr(original, "train_list", [["data_batch_1", sums["data_batch_1"]]])
    monkeypatch.setattr(original, "test_list", [["test_batch", sums["test_batch"]]])
    about = {"filename": "batches.meta", "key": "label_names", "md5": sums["batches.meta"]}
    monkeypatch.setattr(original, "meta", about)
    return folder


@pytest.fixture
def binary_version(made_up, tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    train, test = (
        np.concatenate([np.array(labels_of(n), np.uint8)[:, None], made_up[n]], axis=1)
        for n in (20, 10)
    )
    for name, rows in (("data_batch_1", train[:12]), ("data_batch_2", train[12:])):
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    (folder / "test_batch.bin").write_bytes(test.tobytes())
    return folder


def pack(folder, archive):
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    return archive


def expect_the_images(made_up, root):
    """Compare each pixel with the bytes of the original: 1024 red, green and blue, row by row."""
    source, read = find_layout(root)
    splits = read(source)
    for split, count in (("train", 20), ("test", 10)):
        images, labels = splits[split]
        assert images.shape == (count, 32, 32, 3) and labels.tolist() == labels_of(count)
        assert (images.dtype, labels.dtype) == (np.uint8, np.int64)
        for n, row, column, channel in itertools.product(
            (0, 3, count - 1), (0, 7), (1, 31), range(3)
        ):
            byte = made_up[count][n, 1024 * channel + 32 * row + column]
            assert images[n, row, column, channel] == byte


@pytest.mark.parametrize("version", ["python_version", "binary_version"])
def test_the_original_is_read_from_any_level_and_from_its_archive(
    version, made_up, tmp_path, request
):
    folder = request.getfixturevalue(version)
    expect_the_images(made_up, folder)
    expect_the_images(made_up, tmp_path)
    name = "cifar-10-python.tar.gz" if version == "python_version" else "cifar-10-binary.tar.gz"
    archive = pack(folder, tmp_path / name)
    deeper = tmp_path / "a"
    shutil.move(folder, deeper / "any name")
    assert find_layout(tmp_path)[0].parent.name == "any name", "not the archive"
    expect_the_images(made_up, tmp_path)
    shutil.rmtree(deeper)
    expect_the_images(made_up, tmp_path)
    expect_the_images(made_up, archive)
    renamed = archive.rename(tmp_path / "mine.tgz")
    expect_the_images(made_up, renamed)
    assert find_layout(tmp_path) is None


def test_a_pickle_that_is_not_the_original_is_never_loaded(python_version, tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    (python_version / "test_batch").write_bytes(pickle.dumps(Trap()))
    text = r"cifar-10-batches-py is incomplete or damaged \(a file's MD5"
    with pytest.raises(ValueError, match=text):
        load_dataset("cifar10", tmp_path)
    archive = pack(python_version, tmp_path / "cifar-10-python.tar.gz")
    shutil.rmtree(python_version)
    text = r"python.tar.gz is damaged or is not an archive of CIFAR-10 \(cifar.*MD5.*\)\. Remove it"
    for root in (tmp_path, archive):
        with pytest.raises(ValueError, match=text):
            load_dataset("cifar10", root)
    assert not (tmp_path / "sprung").exists()


def test_a_damaged_or_hostile_archive(binary_version, tmp_path):
    archive = pack(binary_version, tmp_path / "cifar-10-binary.tar.gz")
    shutil.rmtree(binary_version)
    whole = archive.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    text = r"binary.tar.gz is damaged or is not an archive of CIFAR-10 \(.*\)\. Remove it"
    for content in (whole[: len(whole) // 2], b"not an archive", b""):
        archive.write_bytes(content)
        with pytest.raises(ValueError, match=text):
            load_dataset("cifar10", tmp_path)
    archive.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"is damaged|some images or labels were exchanged"):
        load_dataset("cifar10", tmp_path)
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("../../test_batch.bin", "unknown"):
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(ValueError, match=r"outside the destination\)\. Remove it"):
        load_dataset("cifar10", archive)
    archive.write_bytes(b"not an archive")
    text = r"is a file, expected a folder, cifar-10-python.tar.gz or cifar-10-binary.tar.gz; down"
    with pytest.raises(ValueError, match=text):
        load_dataset("cifar10", archive)


def test_the_binary_version_is_whole(binary_version, tmp_path):
    (binary_version / "data_batch_2.bin").unlink()
    text = r"data_batch_\[1-5\].bin has 36876 bytes, expected 61460. Remove it"
    with pytest.raises(ValueError, match=text):
        load_dataset("cifar10", tmp_path)


def test_files_of_jupyter_and_macos_are_ignored(folder):
    for split in ("train", "test"):
        (folder / "cifar10" / split / ".ipynb_checkpoints").mkdir()
        (folder / "cifar10" / split / "cat" / "._0.png").write_bytes(b"attributes")
    junk = folder / "__MACOSX" / "cifar-10-batches-bin"
    junk.mkdir(parents=True)
    (junk / "data_batch_1.bin").write_bytes(b"attributes")
    source, read = find_layout(folder)
    assert {name: len(labels) for name, (_, labels) in read(source).items()} == {
        "train": 20,
        "test": 10,
    }


class Tables:
    """A stand-in for `pyarrow.parquet`, whose files are pickled lists of rows."""

    @staticmethod
    def write(path, rows):
        path.write_bytes(pickle.dumps(rows))

    @staticmethod
    def read_table(path):
        if path.read_bytes().startswith(b"PAR1"):
            raise ValueError("not a pickled list")
        rows = pickle.loads(path.read_bytes())
        return SimpleNamespace(to_pylist=lambda: rows)


class RealTables:
    @staticmethod
    def write(path, rows):
        from pyarrow import Table, parquet

        parquet.write_table(Table.from_pylist(rows), path)


@pytest.fixture(params=["stand-in", "pyarrow"])
def tables(request, monkeypatch):
    if request.param == "pyarrow":
        pytest.importorskip("pyarrow")
        return RealTables
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", Tables)
    return Tables


def rows_of(made_up, count):
    """Rows as on the hub: the bytes of a PNG file and its name, and the label."""
    rows = []
    for pixels, label in zip(made_up[count], labels_of(count), strict=True):
        file = io.BytesIO()
        Image.fromarray(pixels.reshape(3, 32, 32).transpose(1, 2, 0)).save(file, "PNG")
        rows.append({"img": {"bytes": file.getvalue(), "path": None}, "label": label})
    return rows


def write_parquet(tables, made_up, folder):
    train, test = (rows_of(made_up, count) for count in (20, 10))
    folder.mkdir(parents=True)
    tables.write(folder / "train-00000-of-00002.parquet", train[:12])
    tables.write(folder / "train-00001-of-00002.parquet", train[12:])
    tables.write(folder / "test-00000-of-00001.parquet", test)


def test_the_parquet_files_of_hugging_face_are_read(made_up, tmp_path, tables):
    write_parquet(tables, made_up, tmp_path / "cifar10" / "plain_text")
    expect_the_images(made_up, tmp_path)
    expect_the_images(made_up, tmp_path / "cifar10")
    text = r"cifar10/plain_text/train-00000-of-00002.parquet are not CIFAR-10: some images"
    with pytest.raises(ValueError, match=text):
        load_dataset("cifar10", tmp_path)


def test_other_parquet_files_are_refused(made_up, tmp_path, tables):
    folder = tmp_path / "plain_text"
    write_parquet(tables, made_up, folder)

    def expect(message):
        with pytest.raises(ValueError, match=message + ".*[Rr]e(move|place)"):
            load_dataset("cifar10", tmp_path)

    rows = rows_of(made_up, 10)
    test = folder / "test-00000-of-00001.parquet"
    rows[3]["img"]["bytes"] = rows[3]["img"]["bytes"][:100]
    tables.write(test, rows)
    expect(r"row 3 of .*plain_text/test-\*.parquet is not an image of 32 x 32")
    tables.write(test, rows[:9])
    expect(r"test-\*.parquet have 9 rows with the columns img, label, expected 10 with img and")
    tables.write(test, [{"text": "a film", "label": 1}] * 10)
    expect(r"test-\*.parquet have 10 rows with the columns label, text, expected 10 with img")
    test.unlink()
    expect(r"test-\*.parquet have 0 rows with the columns none, expected 10")


def test_damaged_parquet_files_are_refused(made_up, tmp_path, tables):
    write_parquet(tables, made_up, tmp_path / "plain_text")
    (tmp_path / "plain_text" / "train-00001-of-00002.parquet").write_bytes(b"PAR1 and no more")
    text = r"train-00001-of-00002.parquet is damaged \(.*\)\. Remove it"
    with pytest.raises(ValueError, match=text):
        load_dataset("cifar10", tmp_path)


def test_parquet_files_ask_for_pyarrow(made_up, tmp_path, monkeypatch):
    write_parquet(Tables, made_up, tmp_path / "plain_text")
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"which need pyarrow; run pip install pyarrow, or down"):
        load_dataset("cifar10", tmp_path)


def test_kaggles_files_are_refused(tmp_path):
    (tmp_path / "kaggle" / "train").mkdir(parents=True)
    (tmp_path / "kaggle" / "train" / "1.png").touch()
    text = "kaggle/train has the training images of Kaggle's competition, whose test images have no"
    with pytest.raises(ValueError, match=text):
        load_dataset("cifar10", tmp_path)


def test_an_unknown_layout_names_what_was_expected_and_found(tmp_path, monkeypatch):
    monkeypatch.setattr(torchvision.datasets.utils, "_urlretrieve", no_network)
    (tmp_path / "train.parquet").touch()
    with pytest.raises(FileNotFoundError) as caught:
        load_dataset("cifar10", tmp_path)
    for pattern in LAYOUTS:
        assert pattern in str(caught.value)
    assert "found train.parquet." in str(caught.value)


def test_the_copy_of_an_archive_lies_beside_it(tmp_path, monkeypatch):
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.touch()
    digits = load_dataset("digits").subset(20, 10)
    monkeypatch.setattr(cifar10, "find_cifar10", lambda root: digits)
    load_dataset("cifar10", archive)
    assert (tmp_path / "cache" / "cifar10.safetensors").exists()


@pytest.mark.slow
def test_cifar10_from_a_folder_and_from_its_decoded_copy(cifar10_root, tmp_path, monkeypatch):
    """`cifar10_root` has the folder, and the copy that was made when it was decoded."""
    copy = tmp_path / "cache" / "cifar10.safetensors"
    copy.parent.mkdir()
    shutil.copyfile(cifar10_root / "cache" / copy.name, copy)
    with monkeypatch.context() as patch:
        patch.setattr(cifar10, "find_cifar10", lambda root: pytest.fail("there was a copy"))
        dataset = load_dataset("cifar10", tmp_path)
    assert dataset.train_images.shape == (50_000, 32, 32, 3)
    assert dataset.test_labels.bincount().tolist() == [1000] * 10
    assert dataset.fingerprint == CIFAR10_FINGERPRINT and dataset.classes[3] == "cat"
    picture = next((cifar10_root / "cifar10" / "test" / "cat").iterdir())
    some_cat = torch.from_numpy(np.array(Image.open(picture)))
    same = (dataset.test_images == some_cat).flatten(1).all(dim=1)
    assert dataset.test_labels[same].tolist() == [3]
    content = bytearray(copy.read_bytes())
    content[90_000_000] ^= 1
    copy.write_bytes(content)
    monkeypatch.setattr(cifar10, "find_cifar10", lambda root: dataset)
    text = "is damaged: its content does not match its digest; creating it again"
    with pytest.warns(UserWarning, match=text):
        assert load_dataset("cifar10", tmp_path).fingerprint == CIFAR10_FINGERPRINT
    copy.write_bytes(content[:1000])
    with pytest.warns(UserWarning, match="is damaged: .*; creating it again"):
        load_dataset("cifar10", tmp_path)
    again = load_dataset("cifar10", tmp_path)
    assert torch.equal(again.test_images, dataset.test_images)
    assert again.fingerprint == CIFAR10_FINGERPRINT
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


@pytest.mark.slow
def test_cifar10_in_another_order_is_the_same_and_mislabelled_it_is_refused(
    cifar10_root, tmp_path, monkeypatch
):
    dataset = load_dataset("cifar10", cifar10_root)
    splits = {}
    for split in ("train", "test"):
        images = getattr(dataset, f"{split}_images")
        labels = getattr(dataset, f"{split}_labels")
        order = torch.randperm(len(labels))
        splits[split] = (images[order].numpy(), labels[order].numpy())
    (tmp_path / "data_batch_1").touch()
    monkeypatch.setitem(LAYOUTS, "data_batch_[1-5]", lambda batch: splits)
    assert load_dataset("cifar10", tmp_path).fingerprint == CIFAR10_FINGERPRINT
    shutil.rmtree(tmp_path / "cache")
    images, labels = splits["test"]
    # cats are dogs
    splits["test"] = images, np.where(labels == 3, 5, np.where(labels == 5, 3, labels))
    with pytest.raises(ValueError, match=r"are not CIFAR-10: some images or labels were exchanged"):
        load_dataset("cifar10", tmp_path)
    assert not (tmp_path / "cache").exists()
