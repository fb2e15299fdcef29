"""Imports point one way, files are short, and `attnconv` stands by itself."""

import ast
import re
import sys

import pytest
from helpers import ROOT
from helpers.alone import what_torch_needs, without_other_packages
from helpers.fresh import run_fresh

SRC = ROOT / "src"
PACKAGES = ("attnconv", "companion")
FILES = [path for package in PACKAGES for path in sorted((SRC / package).rglob("*.py"))]
#: The files of `attnconv` that hand over to the laboratory.
ENTRY_POINTS = {"attnconv", "attnconv.__main__", "attnconv.figures"}


def module_of(path):
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def imports(path):
    """Yield each module that a file imports, in absolute form, and the names it takes from it."""
    package = module_of(path).split(".")[: None if path.stem == "__init__" else -1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            own = module.split(".")[0] == package[0]
            assert own == bool(node.level) or module.split(".")[0] not in PACKAGES, (
                f"{path} imports {module}; relative imports are for the file's own package"
            )
            yield module, [alias.name for alias in node.names]


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_one_way(path):
    """The theory stands by itself, `attnconv` needs torch alone and does not know the laboratory,
    and in the laboratory nothing but the explorer's own files knows the explorer."""
    mine = module_of(path)
    for module, names in imports(path):
        top = module.partition(".")[0]
        if top in PACKAGES:
            assert not [name for name in names if name.startswith("_")], (
                f"{module} keeps {names} to itself"
            )
        if mine.startswith("attnconv.theory"):
            assert not module.startswith("attnconv.") or module.startswith("attnconv.theory")
        if mine.startswith("attnconv") and mine not in ENTRY_POINTS:
            known = sys.stdlib_module_names | {"attnconv", "torch"}
            optional = {"timm", "torchvision"}  # imported inside the functions that need them
            assert top in known or top in optional, f"{mine} imports {module}"
        if mine.startswith("companion") and not mine.startswith("companion.explorer"):
            assert not module.startswith("companion.explorer"), f"{mine} imports {module}"


def test_nothing_optional_is_imported_with_attnconv():
    program = "import attnconv, sys\nprint(sorted({n.partition('.')[0] for n in sys.modules}))"
    loaded = set(ast.literal_eval(run_fresh(program).stdout))
    assert not {"timm", "torchvision", "transformers", "vit_pytorch", "open_clip"} & loaded
    assert not {"companion", "matplotlib", "pydantic"} & loaded


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
    program = "import companion.explorer.widget, sys\nassert 'matplotlib' not in sys.modules"
    shell = run_fresh(program)
    assert shell.returncode == 0, shell.stderr[-2000:]


def test_the_tests_stand_as_the_code_does_and_none_imports_another():
    tests = ROOT / "tests"
    for package in PACKAGES:
        folders = {path.parent for path in (tests / package).rglob("test_*.py")}
        for folder in folders:
            code = SRC / folder.relative_to(tests)
            assert code.is_dir() or code.with_suffix(".py").exists(), folder
    apart = {"helpers", "project", "rendered"}  # no part of a package
    assert {path.name for path in tests.iterdir() if path.is_dir()} <= {*apart, *PACKAGES}
    for path in tests.rglob("*.py"):
        found = re.search(r"^\s*(from|import) (test_\w+|conftest)", path.read_text(), re.M)
        assert not found, f"{path.name}: {found[0]}"
