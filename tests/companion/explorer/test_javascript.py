"""The explorer's JavaScript without a browser: its modules' own tests, and what they are joined
to."""

import re
import shutil
import subprocess

import pytest
from helpers import ROOT
from helpers.javascript import FOLDER, find_node

from companion.explorer import MODULES, WORKER_MODULES, script


@pytest.fixture(scope="module")
def node():
    return find_node()


def test_the_modules_own_tests(node):
    files = (ROOT / "tests" / "explorer").glob("*.mjs")
    shell = subprocess.run([node, "--test", *map(str, files)], capture_output=True, text=True)
    assert shell.returncode == 0, shell.stdout[-3000:]


@pytest.mark.parametrize("host", ["page", "widget", "worker"])
def test_joined_they_are_one_script(node, host, tmp_path):
    (tmp_path / "joined.mjs").write_text(script(host))
    shell = subprocess.run(
        [node, "--check", str(tmp_path / "joined.mjs")], capture_output=True, text=True
    )
    assert shell.returncode == 0, shell.stderr
    assert '.js"' not in script(host), "a page has no other file"


def test_each_module_imports_those_before_it_and_is_short():
    files = {path.stem for path in FOLDER.glob("*.js")}
    assert files == {*MODULES, *WORKER_MODULES, "page", "widget", "worker"}
    for modules in (MODULES, WORKER_MODULES):
        for number, name in enumerate(modules):
            text = (FOLDER / f"{name}.js").read_text()
            assert set(re.findall(r'from "\./([\w-]+)\.js"', text)) <= set(modules[:number]), name
            assert len(text.splitlines()) <= 350, name


def test_prettiers_layout():
    if not (prettier := shutil.which("prettier")):
        pytest.skip("there is no prettier: npm install --global prettier@3")
    shell = subprocess.run(
        [prettier, "--check", *map(str, FOLDER.glob("*.js"))],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert shell.returncode == 0, shell.stdout + shell.stderr
