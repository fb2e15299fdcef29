"""The explorer's JavaScript modules, run by node."""

import json
import os
import shutil
import subprocess

import pytest

from . import ROOT

FOLDER = ROOT / "src" / "companion" / "explorer" / "js"


def find_node():
    """Return the path of node. Without it, skip the test, or fail where the test must run."""
    if not (node := shutil.which("node")):
        if os.environ.get("ATTNCONV_BROWSER") == "required":
            pytest.fail("there is no node, and the continuous integration needs it")
        pytest.skip("there is no node: apt-get install nodejs")
    return node


def run_node(program, given):
    """Run a program on `given` and return its result, both as JSON; `from(name)` imports."""
    body = f"""
    import {{ readFileSync }} from "node:fs";
    const from = (name) => import(`{FOLDER.as_uri()}/${{name}}.js`);
    const given = JSON.parse(readFileSync(0));
    const answer = await (async () => {{ {program} }})();
    const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
    console.log(JSON.stringify(answer, plain));
    """
    command = [find_node(), "--input-type=module", "--eval", body]
    shell = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    assert shell.returncode == 0, shell.stderr[-3000:]
    return json.loads(shell.stdout)
