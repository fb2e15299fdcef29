#!/usr/bin/env bash
# Subject: the backward pass of torch.nn.BatchNorm2d on a CPU for a single image.
# On: torch 2.15.0.
# Most expect: the gradient of the input does not depend on the order in which the gradient of the output lies in
#   memory, as with two images.
# Observed: if the layer after the normalisation puts its pixels in the order (rows, batch, columns, channels),
#   the gradient of a single image is wrong by more than its largest entry, without a message.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch

ROWS_FIRST = (2, 0, 3, 1)
for batch in (1, 2):
    torch.manual_seed(0)
    images = torch.randn(batch, 2, 64, 64, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(batch, 2, 64, 64, dtype=torch.float64)
    normalised = torch.nn.BatchNorm2d(2).double()(images)
    losses = (
        (normalised * weights).sum(),
        (normalised.permute(ROWS_FIRST).contiguous() * weights.permute(ROWS_FIRST).contiguous()).sum(),
    )
    expected, found = (torch.autograd.grad(loss, images, retain_graph=True)[0] for loss in losses)
    difference = float((found - expected).abs().max() / expected.abs().max())
    print(f"batch of {batch}: the gradients of equal losses differ by {difference:.2g} of the largest entry")
    assert difference > 0.5 if batch == 1 else difference < 1e-12
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
