#!/usr/bin/env bash
# Subject: an image that is smaller than image_size, in ViT of vit-pytorch and ViTransformerWrapper of x-transformers.
# On: vit-pytorch 1.26.14, x-transformers 2.31.10, torch 2.15.0.
# Most expect: an error, or the positions of a corner or of an interpolated grid. The README of vit-pytorch says that
#   for rectangular images image_size is the maximum of the width and height.
# Observed: both accept it and give its patches the first embeddings of the large grid in raster order. The 4 x 4
#   patches of a small image, and the 8 x 4 of a rectangular one, get the positions of the upper half or less of an
#   8 x 8 grid: two patches above each other get those of different columns. In SimpleViT it is an error.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet vit-pytorch==1.26.14 x-transformers==2.31.10 torch==2.15.0 numpy
cat > "$folder/observe.py" <<'PYTHON'
import torch
from vit_pytorch import SimpleViT, ViT
from x_transformers import Encoder, ViTransformerWrapper

PATCH, GRID, DIM = 8, 8, 16
SIZES = {"image_size": GRID * PATCH, "patch_size": PATCH, "num_classes": 3}
OTHERS = {"dim": DIM, "depth": 1, "heads": 2, "mlp_dim": DIM}


def set_positions(table, first):
    """Store the row and the column of each patch of the grid in its embedding."""
    rows, columns = torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="ij")
    with torch.no_grad():
        table.zero_()
        table[..., first:, 0], table[..., first:, 1] = rows.flatten(), columns.flatten()


def positions(network, table, embedding, encoder, first, rows, columns):
    """Return the row and the column that the patches of an image get, `(rows, columns, 2)`."""
    seen = []
    set_positions(table, first)
    hooks = [
        embedding.register_forward_hook(lambda module, given, output: torch.zeros_like(output)),
        encoder.register_forward_pre_hook(lambda module, given: seen.append(given[0])),
    ]
    network.eval()(torch.rand(1, 3, rows * PATCH, columns * PATCH))
    for hook in hooks:
        hook.remove()
    return seen[0][0, first:, :2].long().unflatten(0, (rows, columns))


vit = ViT(**SIZES, **OTHERS)
wrapper = ViTransformerWrapper(**SIZES, attn_layers=Encoder(dim=DIM, depth=1, heads=2))
networks = {
    "ViT": (vit, vit.pos_embedding, vit.to_patch_embedding, vit.transformer, 1),
    "ViTransformerWrapper": (wrapper, wrapper.pos_embedding, wrapper.patch_to_embedding, wrapper.attn_layers, 0),
}
for name, parts in networks.items():
    for rows, columns in ((4, 4), (8, 4)):
        place = positions(*parts, rows, columns)
        print(f"{name}, {rows} x {columns} patches: the first of each row is at {place[:, 0].tolist()}")
        raster = torch.arange(rows * columns).unflatten(0, (rows, columns))
        assert torch.equal(place, torch.stack([raster // GRID, raster % GRID], dim=-1))
        assert place[1, 0].tolist() == [0, 4]
try:
    SimpleViT(**SIZES, **OTHERS)(torch.rand(1, 3, 4 * PATCH, 4 * PATCH))
except RuntimeError as error:
    print("SimpleViT:", error)
else:
    raise AssertionError("expected an error")
PYTHON
"$folder/venv/bin/python" "$folder/observe.py"
