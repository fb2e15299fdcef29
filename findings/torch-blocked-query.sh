#!/usr/bin/env bash
# Subject: torch.nn.MultiheadAttention for a query that may look at no key.
# On: torch 2.15.0.
# Most expect: one layer gives one output for one input and mask, and whether weights are returned or gradients
#   recorded makes no difference.
# Observed: the output of such a query is the output projection of zeros in some of these cases and NaN in the
#   others. It is NaN whenever weights are returned. Without weights it depends on the mask's dtype and on
#   grad mode: a boolean mask gives NaN without gradients and zeros with them, the same mask as floating-point
#   numbers gives zeros in both. scaled_dot_product_attention itself always gives zeros.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import itertools

import torch
from torch.nn import functional as F

torch.manual_seed(0)
layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
x = torch.randn(1, 4, 8)
blocked = torch.zeros(4, 4, dtype=torch.bool)
blocked[1] = True
masks = {"bool": blocked, "float": torch.zeros(4, 4).masked_fill(blocked, float("-inf"))}

seen = {}
for (name, mask), weights, grad in itertools.product(masks.items(), (True, False), (True, False)):
    with torch.set_grad_enabled(grad):
        output, _ = layer(x, x, x, attn_mask=mask, need_weights=weights)
    of_query = output[0, 1].detach()
    assert not output[0, [0, 2, 3]].isnan().any()
    if of_query.isnan().all():
        seen[name, weights, grad] = "NaN"
    else:
        assert torch.equal(of_query, layer.out_proj.bias)
        seen[name, weights, grad] = "zeros"
    print(f"{name} mask, need_weights={weights}, gradients {grad}: {seen[name, weights, grad]}")
assert all(seen[name, True, grad] == "NaN" for name in masks for grad in (True, False))
assert seen["bool", False, True] == seen["float", False, True] == seen["float", False, False] == "zeros"
assert seen["bool", False, False] == "NaN"

q = torch.randn(1, 2, 4, 4)
for mask in (~blocked, masks["float"]):
    assert (F.scaled_dot_product_attention(q, q, q, attn_mask=mask)[0, :, 1] == 0).all()
print("scaled_dot_product_attention: zeros for both masks")
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
