#!/usr/bin/env bash
# Subject: torch.repeat_interleave with a symbolic number of repeats, from torch.export to ONNX Runtime.
# On: torch 2.15.0, onnx 1.23.2, onnxscript 0.7.2, onnxruntime 1.32.0.
# Most expect: a program that torch.export accepts with free sizes, and that torch.onnx.export converts
#   without a message, runs in ONNX Runtime at those sizes.
# Observed: the exported program is right at every size. The ONNX file loads, but each run fails with
#   "invalid expand shape", even at the sizes of the example. The same rows made with unsqueeze and expand
#   are converted correctly.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import onnxruntime
import torch
from torch.export import Dim


class Repeated(torch.nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        return x.reshape(-1, 1) * torch.eye(rows).repeat_interleave(columns, dim=0)


class Expanded(torch.nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        return x.reshape(-1, 1) * torch.eye(rows).unsqueeze(1).expand(-1, columns, -1).flatten(0, 1)


def outcome(network, example, given):
    """Return the gap to the network of its export and of ONNX Runtime, or the latter's error."""
    free = ({0: Dim("rows"), 1: Dim("columns")},)
    program = torch.export.export(network, (example,), dynamic_shapes=free)
    wanted = network(given)
    gap = (program.module()(given) - wanted).abs().max().item()
    content = torch.onnx.export(program, dynamo=True, verbose=False).model_proto.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options)
    try:
        found = session.run(None, {session.get_inputs()[0].name: given.numpy()})[0]
    except Exception as error:
        return gap, type(error).__name__
    return gap, abs(found - wanted.numpy()).max().item()


example = torch.rand(4, 6)
seen = {
    (type(network).__name__, tuple(given.shape)): outcome(network, example, given)
    for network in (Repeated(), Expanded())
    for given in (example, torch.rand(5, 3))
}
for case, (exported, onnx) in seen.items():
    print(*case, "torch.export:", exported, "ONNX Runtime:", onnx)
assert all(exported == 0 for exported, _ in seen.values())
for (name, _), (_, onnx) in seen.items():
    assert onnx == ("InvalidArgument" if name == "Repeated" else 0), (name, onnx)
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
