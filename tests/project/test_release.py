"""`make release`: what is published, its checksums, and the wheel with torch alone."""

import json
import subprocess
import sys
import zipfile

import pytest
import torch
import torchvision
import yaml
from helpers import ROOT
from helpers.alone import what_torch_needs, without_other_packages

sys.path.insert(0, str(ROOT / "tools"))
import metadata
import release

from companion.runs.hub import HubModel
from companion.runs.select import Records
from companion.runs.weights import WEIGHTS_FILE, load_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def records():
    """The records of three models, with and without weights."""
    small = Records.read(tier="small")
    return small.of("cnn", "sa-quadratic", "sa-learned")


@pytest.fixture(scope="module")
def published(records, tmp_path_factory):
    """Two releases from the same files, with a book of one page and, in the second, a PDF."""
    folder = tmp_path_factory.mktemp("release")
    (folder / "html" / "_static").mkdir(parents=True)
    (folder / "html" / "index.html").write_text("<p>book</p>")
    (folder / "html" / "_static" / "a.css").write_text("p {}")
    pdf = folder / "attnconv.pdf"
    missing = release.release(folder / "1", folder / "html", pdf, records)
    assert [text[:7] for text in missing] == ["the PDF"]
    pdf.write_bytes(b"%PDF")
    assert release.release(folder / "2", folder / "html", pdf, records) == []
    return folder


def test_equal_files_give_an_equal_release(published):
    first, second = (
        (published / name / "SHA256SUMS").read_text().splitlines() for name in ("1", "2")
    )
    [pdf] = set(second) - set(first)
    assert set(first) < set(second) and pdf.endswith("  attnconv.pdf")


def test_the_checksums_hold(published):
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=published / "2").returncode == 0
    listed = {line.split("  ")[1] for line in (published / "2/SHA256SUMS").read_text().splitlines()}
    there = {str(path.relative_to(published / "2")) for path in (published / "2").rglob("*.*")}
    assert {path for path in there if (published / "2" / path).is_file()} <= listed


def test_the_archives_hold_the_book_and_the_records(published, records):
    with zipfile.ZipFile(published / "2" / "book.zip") as book:
        assert book.namelist() == ["_static/a.css", "index.html"]
    folders = {f"data/runs/{record.name}" for record in records}
    stored = {str(path.relative_to(ROOT)) for name in folders for path in (ROOT / name).iterdir()}
    with (
        zipfile.ZipFile(published / "2" / "records.zip") as runs,
        zipfile.ZipFile(published / "2" / "weights.zip") as weights,
    ):
        assert stored == {n for n in runs.namelist() if "runs/" in n} | set(weights.namelist())
        assert all(name.endswith(WEIGHTS_FILE) for name in weights.namelist())
        name = weights.namelist()[0]
        assert weights.read(name) == (ROOT / name).read_bytes()


def test_the_release_describes_the_repository(published, records):
    text = (published / "2" / "ro-crate-metadata.json").read_text()
    assert text == metadata.crate_text(records) and f"data/runs/{records[0].name}/" in text


def test_a_model_folder_gives_the_model_and_its_result(published):
    folder = published / "2" / "models" / "sa-quadratic--cifar10-small--seed0"
    images = torch.randn(2, 3, 32, 32)
    model = load_model("sa-quadratic")
    with torch.no_grad():
        assert torch.equal(HubModel.from_pretrained(folder)(images), model(images))
    _, head, text = (folder / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(head)
    [index] = card["model-index"]
    [result] = index["results"]
    last = (ROOT / "data" / "runs" / folder.name / "metrics.csv").read_text().split("\n")[-2]
    assert result["metrics"][0]["value"] == float(last.split(",")[5])
    assert result["dataset"] == {"type": "cifar10", "name": "CIFAR-10", "split": "test"}
    assert ("license" in card) == ("license" in metadata.read_citation())
    assert "--model sa-quadratic" in text and not (folder.parent / "cnn--seed1").exists()
    assert json.loads((folder / "config.json").read_text())["model"] == "sa-quadratic"


def test_zenodo_gets_a_licence_only_from_the_citation_file(published, monkeypatch):
    citation = metadata.read_citation()
    stored = json.loads((published / "2" / ".zenodo.json").read_text())
    assert stored["title"] == citation["title"] and stored["creators"][0]["name"]
    assert {"upload_type", "description", "version"} <= stored.keys()
    chosen = "license" in citation
    assert ("license" in stored) == chosen and ("access_right" in stored) != chosen
    monkeypatch.setattr(metadata, "read_citation", lambda: citation | {"license": "MIT"})
    assert release.zenodo()["license"] == "MIT"


# A ResNet18 that needs torch alone, with the layers and the shapes of torchvision's.
RESNET18 = """
import sys
sys.path.insert(0, {target!r})
import attnconv, torch
from torch import nn
assert attnconv.__file__.startswith({target!r}), attnconv.__file__

class Block(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        convs = [nn.Conv2d(before, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)]
        convs += [nn.ReLU(), nn.Conv2d(channels, channels, 3, 1, 1, bias=False)]
        self.convs = nn.Sequential(*convs, nn.BatchNorm2d(channels))
        same = stride == 1 and before == channels
        short = nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
        self.short = nn.Identity() if same else nn.Sequential(*short)
    def forward(self, x):
        return (self.convs(x) + self.short(x)).relu()

def stage(before, channels, stride):
    return Block(before, channels, stride), Block(channels, channels, 1)

start = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
stages = *stage(64, 64, 1), *stage(64, 128, 2), *stage(128, 256, 2), *stage(256, 512, 2)
end = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)
network = nn.Sequential(*start, *stages, *end).eval()
converted = attnconv.convert_network(network)
with torch.no_grad():
    x = torch.randn(1, 3, 64, 64)
    gap = ((converted(x) - network(x)).abs().max() / network(x).abs().max()).item()
left = sum(isinstance(module, nn.Conv2d) for module in converted.modules())
conv = nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2)
layer, x = attnconv.conv_to_attention(conv), torch.randn(1, 4, 12, 12)
numbers = sum(p.numel() for p in network.parameters())
print(numbers, left, gap, (layer(x) - conv(x)).abs().max().item(), *sorted(sys.modules))
"""


def test_the_wheel_with_torch_alone_converts_a_resnet18(published, tmp_path):
    """Installed without dependencies; importing any package that torch does not need fails."""
    [wheel] = (published / "2").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(tmp_path), str(wheel)], check=True)
    program = RESNET18.format(target=str(tmp_path))
    run = without_other_packages(program, what_torch_needs() | {"attnconv"})
    assert run.returncode == 0, run.stderr[-2000:]
    numbers, left, gap, layer_gap, *modules = run.stdout.split()
    expected = sum(p.numel() for p in torchvision.models.resnet18().parameters())
    assert (int(numbers), int(left)) == (expected, 0)
    assert float(gap) < 1e-5 and float(layer_gap) < 1e-5
    assert not {"torchvision", "timm", "safetensors", "pydantic", "matplotlib"} & {*modules}
