"""Theorem 1 in NATTEN's neighborhood attention, on the CPU.

Expected: the layer attends to a window of 3 x 3 pixels around each query and has no positional
bias, so codes beside the content must choose the pixel; `qk_scale=1` leaves the scores as they are.
On the padded image the windows of all inner pixels are complete and the construction runs, in
float32 and bfloat16. On the image itself, windows at the border move inwards. A target outside the
image is then replaced by the nearest pixel, since equation (9) decreases with the distance: a
convolution of the image with replicated borders, not with zeros. The function `na2d` takes
additional keys that all windows contain: one with score -64 and value 0 is chosen exactly for
targets outside the image.
"""

import torch
from common import SIDE, record, versions
from in_torch import HEADS, arrays, measure, projections, set_linear
from natten import NeighborhoodAttention2D, na2d
from torch.nn import functional as F

versions("torch", "natten")


def neighborhood(dtype, padding):
    p = arrays(dtype)
    layer = NeighborhoodAttention2D(144, HEADS, kernel_size=3, qk_scale=1.0).to(dtype).eval()
    values, output = projections(dtype, 144, 16)
    set_linear(layer.qkv, torch.cat([torch.zeros(288, 144), values]))
    set_linear(layer.proj, output, p["bias"])
    query, key, _ = layer.qkv.weight.view(3, HEADS, 16, 144)
    query[:, :6, 8:13] = p["query_matrices"].mT
    key[:, :6, 8:13] = p["key_matrices"].mT
    x = torch.cat([p["tokens"], p["codes"][None], p["tokens"].new_zeros(1, 256, 131)], dim=2)
    x = x.unflatten(1, (SIDE, SIDE))
    if not padding:
        x = x[:, 1:-1, 1:-1]
    return lambda: layer(x)[..., :8].flatten(1, 2) if padding else layer(x)[..., :8]


def additional_key(dtype):
    """Run on the image without padding; each query times the additional key is -64."""
    p = arrays(dtype)
    inside = p["codes"].unflatten(0, (SIDE, SIDE))[1:-1, 1:-1]
    query = torch.einsum("yxc,hcd->yxhd", inside, p["query_matrices"])[None]
    key = torch.einsum("yxc,hcd->yxhd", inside, p["key_matrices"])[None]
    additional = torch.zeros(1, 1, HEADS, 8, dtype=dtype)
    additional[..., 2] = 0.5  # the third entry of all queries is -128
    query, key = (F.pad(x, (0, 2)) for x in (query, key))

    def run():
        value = torch.einsum("byxc,hcd->byxhd", p["image"], p["values"])
        options = {"additional_keys": additional, "additional_values": torch.zeros_like(additional)}
        heads = na2d(query, key, value, kernel_size=3, scale=1.0, **options)
        return heads.flatten(3) @ p["output"] + p["bias"]

    return run


@torch.no_grad()
def replicated_gap():
    """Return the largest difference from a convolution of the image with replicated borders."""
    p = arrays(torch.float32)
    image = F.pad(p["image"].permute(0, 3, 1, 2), (1, 1, 1, 1), mode="replicate")
    expected = F.conv2d(image, p["kernel"].permute(3, 2, 0, 1), p["bias"]).permute(0, 2, 3, 1)
    output = neighborhood(torch.float32, padding=False)()
    return ((output - expected).abs().max() / expected.abs().max()).item()


record(
    "natten.NeighborhoodAttention2D",
    "codes beside the content",
    expresses=True,
    **measure(lambda dtype: neighborhood(dtype, padding=True)),
    expected="With complete windows, the query and key matrices of the codes choose the pixel.",
    observed="As expected. On the CPU, NATTEN calls FlexAttention without compilation.",
)
record(
    "natten.NeighborhoodAttention2D",
    "codes beside the content, without padding",
    expresses=False,
    **measure(lambda dtype: neighborhood(dtype, padding=False)),
    border="windows move inwards; the nearest pixel replaces one outside the image",
    prevented_by="no token stands for a pixel outside the image",
    expected="A convolution of the image with replicated borders.",
    observed=f"As expected: the gap to that convolution is {replicated_gap():.1e} in float32.",
)
record(
    "natten.na2d with additional_keys",
    "codes beside the content, without padding",
    expresses=True,
    **measure(additional_key),
    border="an additional key with value 0 stands for the pixels outside the image",
    expected="The additional key wins against wrong pixels, not against the right one.",
    observed="As expected.",
)
