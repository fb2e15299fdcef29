#!/usr/bin/env bash
# Subject: the relative position biases of transformers' BeitModel for images that are not square.
# On: transformers 5.24.0, torch 2.15.0.
# Most expect: at the configured image_size=(height, width), the bias of two tokens is the table's entry of the shift
#   between them, as in timm's BEiT and as for square images, where no table is interpolated.
# Observed: the table of (2 height - 1, 2 width - 1) shifts is read as (2 width - 1, 2 height - 1) and interpolated to
#   its own size, so biases are averages of entries of other shifts.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet transformers==5.24.0 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from transformers import BeitConfig, BeitModel


@torch.no_grad()
def attention_below(height, width):
    """Return the mean attention to the token two rows below, for a table that allows no other."""
    torch.manual_seed(0)
    config = BeitConfig(
        image_size=(height, width),
        patch_size=1,
        hidden_size=16,
        intermediate_size=32,
        num_attention_heads=1,
        num_hidden_layers=1,
        use_relative_position_bias=True,
        attn_implementation="eager",
    )
    model = BeitModel(config, add_pooling_layer=False).eval()
    table = model.layers[0].relative_position_bias.relative_position_bias_table
    assert len(table) == (2 * height - 1) * (2 * width - 1) + 3
    table.fill_(-100)
    table[(height - 3) * (2 * width - 1) + width - 1] = 0  # query - key: -2 rows, 0 columns
    image = torch.randn(1, 3, height, width)
    attention = model(image, output_attentions=True).attentions[0][0, 0, 1:, 1:]
    attention = attention.view(height, width, height, width)
    pairs = [attention[y, x, y + 2, x].item() for y in range(height - 2) for x in range(width)]
    return sum(pairs) / len(pairs)


for height, width, exact in ((6, 6, True), (6, 4, False), (4, 6, False), (8, 4, False)):
    value = attention_below(height, width)
    print(f"{height} x {width} tokens: mean attention to the token two rows below {value:.3f}")
    assert value > 0.999 if exact else value < 0.5
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
