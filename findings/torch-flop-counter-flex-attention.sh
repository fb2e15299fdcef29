#!/usr/bin/env bash
# Subject: FlopCounterMode and flex_attention, for which it registers a formula.
# On: torch 2.15.0, on the CPU.
# Most expect: the counter counts flex_attention by its formula, as it does scaled_dot_product_attention.
# Observed: the call raises a RuntimeError inside the counter, whether flex_attention is compiled or not, and compiled
#   before or not: torch.compile skips all functions below a mode that sees every operation. The same calls run without
#   the counter.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import warnings

import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.flop_counter import FlopCounterMode, flop_registry

warnings.simplefilter("ignore")
q = torch.rand(1, 2, 16, 8)


def counted(function):
    """Return the FLOPs that are counted, or the error."""
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            function(q, q, q)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return counter.get_total_flops()


assert torch.ops.higher_order.flex_attention in flop_registry
fused = counted(torch.nn.functional.scaled_dot_product_attention)
print("scaled_dot_product_attention:", fused)
assert fused == 2 * 2 * 16 * 16 * (8 + 8)
compiled = torch.compile(flex_attention, backend="eager")
for name, function in {"flex_attention": flex_attention, "compiled": compiled}.items():
    for state in ("at first", "after a call without the counter"):
        seen = counted(function)
        print(f"{name}, {state}: {seen}")
        assert seen.startswith("RuntimeError: torch.compile with fullgraph=True found no compiled frames")
        function(q, q, q)
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
