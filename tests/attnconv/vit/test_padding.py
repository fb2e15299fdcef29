"""Tests of windows that contain padding, which are left out and named."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from attnconv.vit.capture import read_attention

DIM, HEADS, WINDOW = 8, 2, 3


def attend(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1) @ v


class Linear(nn.Module):
    """Windows `(N, T, C)` whose queries, keys and values come from one linear layer."""

    def __init__(self):
        super().__init__()
        self.num_heads = HEADS
        self.qkv = nn.Linear(DIM, 3 * DIM)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return attend(q, k, v).transpose(1, 2).flatten(2)


class Cascaded(nn.Module):
    """One head after the other, each with its part of the channels, as in EfficientViT."""

    def __init__(self):
        super().__init__()
        self.window_size = WINDOW
        self.qkv = nn.ModuleList(nn.Conv2d(DIM // HEADS, 12, 1) for _ in range(HEADS))
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        x = x.mT.unflatten(-1, (WINDOW, WINDOW))
        out, outputs = 0, []
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
        x = x.unflatten(2, (-1, WINDOW)).unflatten(1, (-1, WINDOW)).transpose(2, 3)
        return self.attention(x.flatten(3, 4).flatten(0, 2))


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
        self.embed, self.layer, self.other = nn.Conv2d(3, 7, 4, 4), Linear(), Linear()
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
        ("swin_tiny_patch4_window7_224", (64, 64), (9, 9, 4, 4, 1, 1), (4, 4, 1, 1, 1, 1)),
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
    notes = [note for note in reading.skipped if "which contain padding" in note]
    assert [note.split()[:3] for note in notes] == [
        [f"{every - free}", "of", f"{every}"]
        for every, free in zip(windows, kept, strict=True)
        if every > free
    ]


def test_padding_of_heads_one_after_the_other_in_timm():
    timm = pytest.importorskip("timm")
    reading = read_attention(timm.create_model("efficientvit_m0"), torch.randn(1, 3, 160, 160))
    assert [tuple(layer.maps.shape) for layer in reading.layers] == [(1, 1, 7, 7, 7, 7)] * 4
    assert reading.skipped[0].startswith("3 of 4 windows of stages.0.blocks.0.mixer.m.attn")
    assert reading.skipped[0].endswith("which contain padding (up to 40 of 49 keys)")
    assert all("attends to padding in each of its 1 windows" in n for n in reading.skipped[1:])
