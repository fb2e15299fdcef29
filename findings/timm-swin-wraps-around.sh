#!/usr/bin/env bash
# Subject: shifted windows of Swin in timm when windows do not fill the map.
# On: timm 1.0.31, torchvision 0.29.2, torch 2.15.0.
# Most expect: no token attends across the border of the image, for which the mask of shifted windows is made; with
#   identical weights, torchvision computes the same.
# Observed: timm shifts the map and then pads it, but its mask is made for a map that was padded before. In a map of
#   16 x 16 with windows of 7, tokens of the first row attend to the last six rows. torchvision pads first, and there
#   they attend to the first three rows. If windows fill the map, or are not shifted, outputs are equal.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet timm==1.0.31 torchvision==0.29.2 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from timm.models.swin_transformer import SwinTransformerBlock as OfTimm
from torchvision.models.swin_transformer import SwinTransformerBlock as OfTorchvision

WINDOW, CHANNELS, HEADS = 7, 16, 2
NAMES = {"mlp.0": "mlp.fc1", "mlp.3": "mlp.fc2"}


def blocks(size, shift):
    """Return a block of each library, with identical weights."""
    one = OfTorchvision(CHANNELS, HEADS, [WINDOW, WINDOW], [shift, shift])
    other = OfTimm(CHANNELS, (size, size), HEADS, window_size=WINDOW, shift_size=shift)
    state = other.state_dict()
    for name, value in one.state_dict().items():
        start = name.rsplit(".", 1)[0]
        name = name.replace(start, NAMES.get(start, start))
        if name in state:  # all but an index, which timm does not store
            state[name] = value
    other.load_state_dict(state)
    return one.eval(), other.eval()


def attended(block, size):
    """Return the rows of the tokens that change a token in the first row."""
    x = torch.randn(1, size, size, CHANNELS, requires_grad=True)
    block(x)[0, 0, size // 2].norm().backward()
    return x.grad[0].abs().amax(dim=(1, 2)) > 0


torch.manual_seed(0)
for size, shift in ((14, 3), (16, 0), (16, 3)):
    one, other = blocks(size, shift)
    x = torch.randn(1, size, size, CHANNELS)
    with torch.no_grad():
        gap = (one(x) - other(x)).abs().max().item()
    print(f"{size} x {size} tokens, shift {shift}: outputs differ by up to {gap:.2g}")
    assert (gap > 0.1) == ((size, shift) == (16, 3)) and (gap > 0.1 or gap < 1e-5)

of = {
    name: attended(block, size).nonzero().flatten().tolist()
    for name, block in (("torchvision", one), ("timm", other))
}
print("rows that a token of the first row attends to:", of)
assert of == {"torchvision": [0, 1, 2], "timm": [0, 10, 11, 12, 13, 14, 15]}
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
