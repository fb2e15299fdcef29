"""Tests of windows that contain padding or join opposite edges of the image: left out and named."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnconv.vit.capture import read_attention

DIM, HEADS, WINDOW, SHIFT = 8, 2, 3, 2


def attend(q, k, v, mask=0.0):
    return (q @ k.mT / q.shape[-1] ** 0.5 + mask).softmax(dim=-1) @ v


class Linear(nn.Module):
    """Windows `(N, T, C)` whose queries, keys and values come from one linear layer."""

    def __init__(self):
        super().__init__()
        self.num_heads = HEADS
        self.qkv = nn.Linear(DIM, 3 * DIM)

    def forward(self, x, mask=0.0):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return attend(q, k, v, mask).transpose(1, 2).flatten(2)


class Cascaded(nn.Module):
    """One head after the other, each with its part of the channels, as in EfficientViT."""

    def __init__(self):
        super().__init__()
        self.window_size = WINDOW
        self.qkv = nn.ModuleList(nn.Conv2d(DIM // HEADS, 12, 1) for _ in range(HEADS))
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        x = x.mT.unflatten(-1, (WINDOW, WINDOW))
        out = 0
        outputs = []
        for part, qkv in zip(x.chunk(HEADS, dim=1), self.qkv, strict=True):
            out = part if isinstance(out, int) else out + part
            q, k, v = qkv(out).split(4, dim=1)
            q = self.depthwise(q)
            q, k, v = (each.flatten(2).mT for each in (q, k, v))
            out = attend(q, k, v).mT.unflatten(-1, (WINDOW, WINDOW))
            outputs.append(out)
        return torch.cat(outputs, dim=1).flatten(2).mT


class Torchs(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(DIM, HEADS, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Windows(nn.Module):
    """Attention in windows of 3 x 3 tokens, with padding at the lower and right border."""

    def __init__(self, attention):
        super().__init__()
        self.window_size = WINDOW
        self.embed = nn.Conv2d(3, DIM, 2, 2)
        self.norm = nn.LayerNorm(DIM)
        self.attention = attention

    def forward(self, images):
        x = self.norm(self.embed(images).permute(0, 2, 3, 1))
        height, width = x.shape[1:3]
        x = F.pad(x, (0, 0, 0, -width % WINDOW, 0, -height % WINDOW))
        return self.attention(windows(x))


@pytest.mark.parametrize(("attention", "layers"), [(Linear, 1), (Cascaded, HEADS), (Torchs, 1)])
def test_padding_is_followed_to_the_queries(attention, layers):
    """5 x 7 tokens in 2 x 3 windows: one window is full in each of the first two columns."""
    torch.manual_seed(0)
    model = Windows(attention())
    reading = read_attention(model, torch.randn(2, 3, 10, 14))
    assert [len(layer.maps) for layer in reading.layers] == [2 * 2] * layers
    (note,) = reading.skipped
    assert note.startswith("8 of 12 windows of attention")
    assert note.endswith("which contain padding (up to 7 of 9 keys)")
    alone = read_attention(model, torch.randn(2, 3, 12, 18))
    assert alone.skipped == () and len(alone.layers[0].maps) == 12


class MoreChannels(nn.Module):
    """It pads channels, and scores in order to shift them, but no token."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 7, 4, 4)
        self.layer = Linear()
        self.other = Linear()
        self.other.qkv = nn.Linear(9, 24)

    def forward(self, images):
        x = self.embed(images).flatten(2).mT
        shifted = F.pad(x @ x.mT, (1, 0)).flatten(1)[:, 9:].unflatten(1, (9, 9))  # 9 tokens
        return self.layer(F.pad(x, (1, 0))) + self.other(shifted)


def test_padding_of_channels_and_scores_is_no_padding_of_tokens():
    reading = read_attention(MoreChannels(), torch.randn(1, 3, 12, 12))
    assert reading.skipped == () and [len(layer.maps) for layer in reading.layers] == [1, 1]


@pytest.mark.parametrize(
    ("name", "size", "windows", "kept"),
    [
        ("swin_tiny_patch4_window7_224", (64, 64), (9, 9, 4, 4, 1, 1), (4, 1, 1, 1, 1)),
        ("swin_tiny_patch4_window7_224", (56, 84), (6, 6, 2, 2), (6, 6, 1, 1)),
        ("davit_tiny", (96, 96), (16, 4), (9, 1)),
    ],
)
def test_padding_in_timm(name, size, windows, kept):
    timm = pytest.importorskip("timm")
    depths = (2,) * (len(windows) // 2)  # two blocks a stage
    options = {"img_size": size, "depths": depths} if "swin" in name else {}
    reading = read_attention(timm.create_model(name, **options), torch.randn(1, 3, *size))
    assert tuple(len(layer.maps) for layer in reading.layers) == kept


class Shifted(Windows):
    """Windows of tokens that are shifted cyclically, before or after the padding.

    A mask separates the edges that meet in the last windows, as Swin's does.
    """

    def __init__(self, pad_first):
        super().__init__(Linear())
        self.pad_first = pad_first
        self.second = Linear()

    def forward(self, images):
        x = self.norm(self.embed(images).permute(0, 2, 3, 1))
        height, width = x.shape[1:3]
        pad = (0, 0, 0, -width % WINDOW, 0, -height % WINDOW)
        y = F.pad(x, pad) if self.pad_first else x
        y = y.roll((-SHIFT, -SHIFT), (1, 2))
        y = y if self.pad_first else F.pad(y, pad)
        padded = y.shape[1:3]
        y = self.attention(windows(y), mask_of(*padded))
        y = image(y, *padded)
        y = y if self.pad_first else y[:, :height, :width]
        y = y.roll((SHIFT, SHIFT), (1, 2))[:, :height, :width]
        return self.second((x + y).flatten(1, 2))


def windows(x):
    x = x.unflatten(2, (-1, WINDOW)).unflatten(1, (-1, WINDOW)).transpose(2, 3)
    return x.flatten(3, 4).flatten(0, 2)


def image(x, height, width):
    x = x.view(-1, height // WINDOW, width // WINDOW, WINDOW, WINDOW, DIM)
    return x.transpose(2, 3).reshape(-1, height, width, DIM)


def mask_of(height, width):
    """Return a mask `(N, 1, T, T)` between the last rows and columns and all others."""
    side = torch.zeros(1, height, width, 1)
    side[:, -SHIFT:] += 1
    side[:, :, -SHIFT:] += 2
    side = windows(side)[..., 0]
    return torch.where(side[:, None, :, None] == side[:, None, None, :], 0.0, -100.0)


def contiguous_windows(height, width, pad_first):
    """Return for each window whether it is free of padding, and whether all tokens that attend to
    one another are as far apart in the image, found by counting the image's tokens."""
    rows, columns = -height % WINDOW, -width % WINDOW
    index = torch.arange(height * width).view(1, height, width, 1)
    pad = (0, 0, 0, columns, 0, rows)
    if pad_first:
        index = F.pad(index, pad, value=-1).roll((-SHIFT, -SHIFT), (1, 2))
    else:
        index = F.pad(index.roll((-SHIFT, -SHIFT), (1, 2)), pad, value=-1)
    of_window = windows(index)[..., 0]
    allowed = mask_of(*index.shape[1:3]).expand(-1, 1, -1, -1)[:, 0] == 0
    row = of_window // width
    column = of_window % width
    local = torch.arange(WINDOW**2)
    straight = torch.stack(
        [
            (each[:, :, None] - each[:, None, :]) == (own[:, None] - own)
            for each, own in ((row, local // WINDOW), (column, local % WINDOW))
        ]
    ).all(dim=0)
    return (of_window >= 0).all(dim=1), (straight | ~allowed).all(dim=(1, 2))


@pytest.mark.parametrize("pad_first", [True, False])
@pytest.mark.parametrize("size", [(9, 12), (7, 12), (7, 10), (8, 9)])
def test_windows_that_join_opposite_edges_are_left_out(size, pad_first):
    torch.manual_seed(0)
    model = Shifted(pad_first)
    reading = read_attention(model, torch.randn(1, 3, 2 * size[0], 2 * size[1]))
    full, straight = contiguous_windows(*size, pad_first)
    assert [len(layer.maps) for layer in reading.layers] == [int((full & straight).sum()), 1]
    count = int((full & ~straight).sum())
    assert bool(count) == (not pad_first and size[0] == 7)
    unmasked = [note for note in reading.skipped if "opposite edges" in note]
    assert [note.split()[0] for note in unmasked] == [str(count)] * bool(count)


def test_every_window_joins_edges_or_is_padded():
    reading = read_attention(Shifted(False), torch.randn(1, 3, 8, 8))
    assert [len(layer.maps) for layer in reading.layers] == [1]
    assert reading.skipped == (
        "attention (Linear) joins opposite edges of the image, or attends to padding, in each of"
        " its 4 windows; larger images have others",
    )


class ClassTokenMoved(nn.Module):
    """It moves the class token from the last place to the first by a cyclic shift."""

    def __init__(self):
        super().__init__()
        self.num_prefix_tokens = 1
        self.embed = nn.Conv2d(3, DIM, 4, 4)
        self.layer = Linear()

    def forward(self, images):
        x = self.embed(images).flatten(2).mT
        return self.layer(torch.cat([x, x[:, :1]], dim=1).roll(1, 1))


def test_a_shift_of_a_sequence_joins_no_edges():
    reading = read_attention(ClassTokenMoved(), torch.randn(1, 3, 12, 12))
    assert reading.skipped == () and reading.layers[0].maps.shape[-2:] == (3, 3)


def test_padding_of_heads_one_after_the_other_in_timm():
    timm = pytest.importorskip("timm")
    try:
        reading = read_attention(timm.create_model("efficientvit_m0"), torch.randn(1, 3, 160, 160))
    except AssertionError as error:
        assert "input feature has wrong size" in str(error)
        pytest.skip(f"timm {timm.__version__} takes images of one size only")
    assert [tuple(layer.maps.shape) for layer in reading.layers] == [(1, 1, 7, 7, 7, 7)] * 4
    assert reading.skipped[0].startswith("3 of 4 windows of stages.0.blocks.0.mixer.m.attn")
    assert reading.skipped[0].endswith("which contain padding (up to 40 of 49 keys)")
    assert all("attends to padding in each of its 1 windows" in n for n in reading.skipped[1:])
