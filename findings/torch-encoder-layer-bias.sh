#!/usr/bin/env bash
# Subject: torch.nn.TransformerEncoderLayer and TransformerEncoder with a floating-point mask that is not only 0
#   and -inf, such as a bias that grows with the distance.
# On: torch 2.15.0.
# Most expect: the mask is added to the scores, in training and in evaluation, as the documentation of nn.Transformer
#   says and as MultiheadAttention does.
# Observed: in evaluation mode without gradients, with batch_first=True and an even number of heads, every key whose
#   mask is not exactly 0 is blocked. A bias of 1 for all keys, which changes no softmax, makes all outputs NaN. In
#   training mode, with gradients or with MultiheadAttention alone, the bias is added.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
x = torch.randn(1, 6, 16)
position = torch.arange(6.0)
distance = (position - position[:, None]).abs()
masks = {
    "-distance": -distance,
    "1 for all keys": torch.ones(6, 6),
    "-inf beyond one's own position": torch.zeros(6, 6).masked_fill(distance > 0, float("-inf")),
}


def difference(module, mask):
    with_gradients = module(x, mask).detach()
    with torch.no_grad():
        without = module(x, mask)
        assert module.train()(x, mask).allclose(with_gradients, atol=1e-5)
    module.eval()
    return without, (without - with_gradients).abs().max().item()


for module in (layer, encoder):
    print(type(module).__name__)
    outputs = {}
    for name, mask in masks.items():
        outputs[name], change = difference(module, mask)
        print(f"  {name}: largest difference between no_grad and gradients {change:.3g}")
        if name == "-distance":
            assert change > 0.1
        elif name == "1 for all keys":
            assert outputs[name].isnan().all()
        else:
            assert change < 1e-5
    biased, blocked = outputs["-distance"], outputs["-inf beyond one's own position"]
    print(f"  -distance and -inf differ by {(biased - blocked).abs().max():.3g}")
    assert biased.allclose(blocked, atol=1e-5)

attention = nn.MultiheadAttention(16, 2, batch_first=True).eval()
for mask in masks.values():
    with_gradients = attention(x, x, x, attn_mask=mask)[0]
    with torch.no_grad():
        assert attention(x, x, x, attn_mask=mask)[0].allclose(with_gradients, atol=1e-5)
print("MultiheadAttention: no difference")
odd = nn.TransformerEncoderLayer(18, 3, 32, dropout=0.0, batch_first=True).eval()
x = torch.randn(1, 6, 18)
assert difference(odd, masks["-distance"])[1] < 1e-5
print("TransformerEncoderLayer with 3 heads: no difference")
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
