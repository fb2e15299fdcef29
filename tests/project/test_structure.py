"""Tests of the package's structure: imports point one way, files are short, and the theory stands
by itself."""

import ast
import re
import subprocess
import sys

import pytest
from helpers import ROOT
from helpers.alone import what_torch_needs, without_other_packages

SRC = ROOT / "src" / "attnconv"
FILES = sorted(SRC.rglob("*.py"))
# Each part may import those before it. `theory` imports nothing else of the package.
ORDER = (
    "checks",
    "theory",
    "layers",
    "vit",
    "models",
    "store",
    "data",
    "runs",
    "measures",
    "training",
    "figures",
    "report",
    "explorer",
)
NAMES = ("__init__", "__main__")


def module_of(path):
    return ".".join(("attnconv", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


def imports(path):
    """Modules of this package that a file imports, and the names it takes from each."""
    package = module_of(path).split(".")[: None if path.stem == "__init__" else -1]
    for node in ast.walk(ast.parse(path.read_text())):
        outside = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        outside += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        absolute = [name for name in outside if name.partition(".")[0] == "attnconv"]
        assert not absolute, f"{path} imports {absolute}; write it as a relative import"
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            yield (
                ".".join([*base, *([node.module] if node.module else [])]),
                [alias.name for alias in node.names],
            )


def part_of(module):
    return module.split(".")[1] if "." in module else "__init__"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_one_way(path):
    mine = part_of(module_of(path))
    if mine == "theory":
        assert {part_of(module) for module, _ in imports(path)} <= {"theory"}
    for module, names in imports(path):
        assert not [name for name in names if name.startswith("_")], (
            f"{module} keeps {names} to itself"
        )
        if mine not in NAMES and part_of(module) != mine:
            assert part_of(module) in ORDER[: ORDER.index(mine)], f"{mine} imports {module}"


def test_no_two_files_import_each_other():
    """Files, not packages: a package's own `__init__` only gathers."""
    arrows = {module_of(path): set() for path in FILES if path.stem != "__init__"}
    for path in FILES:
        for module, names in imports(path):
            targets = {module} | {f"{module}.{name}" for name in names}
            arrows.get(module_of(path), set()).update(targets & arrows.keys())
    done = set()
    while free := {
        module for module, targets in arrows.items() if module not in done and targets <= done
    }:
        done |= free
    assert done == set(arrows), f"in a circle: {sorted(set(arrows) - done)}"


def test_no_file_is_long():
    long = {
        module_of(path): count
        for path in FILES
        if (count := len(path.read_text().splitlines())) > 500
    }
    assert not long


def test_the_theory_needs_torch_alone():
    program = """
import torch, attnconv
from torch import nn
class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Conv2d(6, 6, 3, padding=1, bias=False) for _ in range(2))
        self.norm = nn.BatchNorm2d(6)
    def forward(self, x):
        return (x + self.b(self.norm(self.a(x)).relu())).relu()
ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)
network = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, padding=1), Residual(), *ends).double().eval()
x = torch.randn(2, 3, 12, 12).double()
recast = attnconv.convert_network(network)
assert (recast(x) - network(x)).abs().max() < 1e-12
assert not any(isinstance(m, nn.Conv2d) for m in recast.modules())
layer = attnconv.conv_to_attention(nn.Conv2d(2, 2, 3, padding=1).double())
maps = attnconv.attention_probabilities(layer, 6, 6)
assert attnconv.expresses_convolution(maps, kernel_size=3)[0]
assert attnconv.cost_of(attnconv.build_model("sa-quadratic", num_layers=1)).parameters
try:
    attnconv.load_dataset
except ImportError as error:
    print(error)
"""
    shell = without_other_packages(program, what_torch_needs() | {"attnconv"})
    assert shell.returncode == 0, shell.stderr[-2000:]
    assert "pip install 'attnconv[lab]'" in shell.stdout


def test_the_explorer_does_not_draw_with_matplotlib():
    program = "import attnconv.explorer.widget, sys\nassert 'matplotlib' not in sys.modules"
    shell = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shell.returncode == 0, shell.stderr[-2000:]


def test_the_tests_stand_as_the_code_does_and_none_imports_another():
    tests = ROOT / "tests"
    apart = {"helpers", "project", "rendered"}  # no part of the package
    folders = {path.parent.name for path in tests.rglob("test_*.py")}
    assert folders - apart <= {path.name for path in SRC.iterdir() if path.is_dir()}
    for path in tests.rglob("*.py"):
        found = re.search(r"^\s*(from|import) (test_\w+|conftest)", path.read_text(), re.M)
        assert not found, f"{path.name}: {found[0]}"
