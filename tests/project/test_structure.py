"""Tests of the package's structure: imports point one way, files are short, and the theory stands
by itself."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter

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
# Features added after commit 4720673, whose size the bar on the whole package was set for.
ADDED_SINCE = {
    *("layers/state_dict.py", "layers/convert_back.py", "layers/mode.py"),
    "measures/deployment.py",
    "models/vit.py",
    *(f"{part}/starts.py" for part in ("measures", "figures", "report")),
    *(f"{part}/scaling.py" for part in ("measures", "figures", "report")),
    *("measures/inspection.py", "figures/inspection.py", "explorer/document.py"),
    *("figures/stage.py", "training/descent.py", "explorer/networks.py"),
    *("report/check.py", "report/theory.py", "report/pruning.py"),
    "runs/hub.py",
    *(f"vit/{name}.py" for name in ("__init__", "absolute", "biases", "capture", "start")),
}
# Lines added in files that are counted, by feature.
ADDED_IN_SHARED_FILES = sum(
    {
        "chapter 18: its tiers, models, parameters and records": 60,
        "TrainedModel.transform": 17,
        "exports of any image size, and convert_back": 11,
        "bounds of Theorem 1 that refuse bad numbers": 8,
        "Results: tally, links to figures and runs, a sentence for each answer": 66,
        "Results: verdicts at a glance, and their evidence folded below each claim": 14,
        "the payload of the explorer's stage": 15,
        "pictures of scikit-image": 21,
        "the worker's script, and the divisor of the CNN": 6,
        "the names of claims, and the command that checks them": 56,
        "the test images counted with a softmax at every query": 34,
        "the payload of scene 3": 4,
        "the model of any record, with weights in any file": 5,
        "figures: summed attention of the heads, legends, crops, bands": 36,
        "figures 8 to 10: pictures, with maps from the stored weights": 9,
        "the middle square of a picture, for these and for scene 3": 7,
        "Results: the commands of missing runs": 2,
        "the command line refuses stray arguments": 8,
        "unusable folders, sizes, checkpoints and models are refused before training": 35,
    }.values()
)
# The same for theory, layers and models, which have a bar of their own.
ADDED_IN_CORE = sum(
    {
        "convert_network refuses what it would convert wrongly, and takes alpha": 25,
        "long sequences without matrices": 6,
        "the cost of converted networks": 12,
        "conversion refuses patched forward methods; soft heads after inference mode": 4,
        "converted layers return the memory format of the convolution": 14,
        "compiled and meta convolutions are refused; the input by name; the cache is not saved": 6,
        "the cost of fused attention": 5,
        "torch.func transforms of converted layers": 30,
        "an alpha of numpy": 2,
    }.values()
)


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


def test_the_package_is_small():
    """No file is over 500 lines; the core can be read in an hour, the theory on its own."""
    long = {
        module_of(path): count
        for path in FILES
        if (count := len(path.read_text().splitlines())) > 500
    }
    assert not long
    counts = {path.relative_to(SRC).as_posix(): lines_of_code(path) for path in FILES}
    parts = Counter()
    for name, count in counts.items():
        parts[name.partition("/")[0]] += 0 if name in ADDED_SINCE else count
    files = len(counts) - len(ADDED_SINCE)
    print(f"\n{parts.total()} lines of code in {files} files: {dict(parts)}")
    assert parts["theory"] <= 550
    assert parts["theory"] + parts["layers"] + parts["models"] <= 1800 + ADDED_IN_CORE
    assert parts.total() <= 6482 + ADDED_IN_SHARED_FILES + ADDED_IN_CORE
    assert files <= 62


def lines_of_code(path):
    """Without blank lines, comments and docstrings."""
    code = path.read_text()
    texts = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            texts |= set(range(node.lineno, node.end_lineno + 1))
    return len(lines_with_tokens(code) - texts)


def lines_with_tokens(code):
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    return {
        line
        for token in tokenize.generate_tokens(io.StringIO(code).readline)
        if token.type not in (*silent, tokenize.ENDMARKER)
        for line in range(token.start[0], token.end[0] + 1)
    }


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
