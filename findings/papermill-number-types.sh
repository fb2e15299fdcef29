#!/usr/bin/env bash
# Subject: Python values that become parameters of a notebook with papermill.
# On: papermill 2.7.0, numpy 2.4.3.
# Most expect: a number stays a number and a tuple a tuple, or else papermill refuses it.
# Observed: a value that is not a str, bool, int, float, dict, list or None is written as the text of it, without a
#   message. NumPy's float64 is a float and stays a number, but its int64, float32 and bool become strings, so a sweep
#   over np.arange or np.float32 runs notebooks with "3" and "0.5"; a tuple becomes "(3, 4)", and keys become strings.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet papermill==2.7.0 numpy==2.4.3 nbformat==5.10.4
cat > "$folder/observe.py" <<'PYTHON'
import nbformat
import numpy as np
from papermill.parameterize import parameterize_notebook

cases = {
    "np.float64": (np.float64(0.5), 0.5),
    "np.int64": (np.int64(3), "3"),
    "np.float32": (np.float32(0.5), "0.5"),
    "np.bool_": (np.bool_(False), "False"),
    "tuple": ((3, 4), "(3, 4)"),
    "dict with a number as key": ({3: 4}, {"3": 4}),
    "list of np.int64": ([np.int64(3)], ["3"]),
}
cell = nbformat.v4.new_code_cell("", metadata={"tags": ["parameters"]})
kernel = {"name": "python3", "language": "python", "display_name": "Python"}
for name, (value, wanted) in cases.items():
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": kernel})
    notebook.metadata["papermill"] = {}
    source = parameterize_notebook(notebook, {"value": value}).cells[1].source
    names = {}
    exec(source, names)
    print(f"{name} {value!r} becomes {names['value']!r}")
    assert names["value"] == wanted and type(names["value"]) is type(wanted)
assert bool(np.bool_(False)) is False and bool("False") is True
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
