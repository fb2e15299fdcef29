"""The explorer's JavaScript without a browser: its modules' own tests, and what they are joined
to."""

import re
import shutil
import subprocess
from pathlib import Path
from posixpath import dirname, normpath

import pytest
from helpers import ROOT
from helpers.javascript import FOLDER, find_node

from companion.explorer import modules, script

HOSTS = ("page", "widget", "worker")
FILES = sorted(FOLDER.rglob("*.js"))


@pytest.fixture(scope="module")
def node():
    return find_node()


def test_the_modules_own_tests(node):
    files = Path(__file__).parent.glob("*.mjs")
    shell = subprocess.run([node, "--test", *map(str, files)], capture_output=True, text=True)
    assert shell.returncode == 0, shell.stdout[-3000:]


@pytest.mark.parametrize("host", HOSTS)
def test_joined_they_are_one_script(node, host, tmp_path):
    (tmp_path / "joined.mjs").write_text(script(host))
    shell = subprocess.run(
        [node, "--check", str(tmp_path / "joined.mjs")], capture_output=True, text=True
    )
    assert shell.returncode == 0, shell.stderr
    assert '.js"' not in script(host), "a page has no other file"


def test_each_module_is_used_is_short_and_comes_after_those_that_it_imports():
    used = set()
    for host in HOSTS:
        before = set()
        for path, text in modules(host).items():
            imported = re.findall(r'from "(\.[^"]+)"', text)
            assert {normpath(f"{dirname(path)}/{name}") for name in imported} <= before, path
            assert len(text.splitlines()) <= 350, path
            before.add(path)
        used |= before
    assert used == {path.relative_to(FOLDER).as_posix() for path in FILES}


def test_prettiers_layout():
    if not (prettier := shutil.which("prettier")):
        pytest.skip("there is no prettier: npm install --global prettier@3")
    shell = subprocess.run(
        [prettier, "--check", *map(str, FILES)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert shell.returncode == 0, shell.stdout + shell.stderr
