"""Tests of structured initialisation: where its heads attend at the start."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnconv.heads import mean_by_offset
from attnconv.vit.capture import attention_of
from attnconv.vit.start import kernel_offsets
from companion.runs.select import Records
from companion.specs import SPECS
from companion.studies.starts.impulse import QUERY_KEY_NORM, impulse_factors, shift_matrix
from companion.studies.starts.published import PUBLISHED_CLAIMS, QUESTIONS, STARTS

pytest.importorskip("timm")
GRID = kernel_offsets(3, [9])[0]
SCALED = ["impulse", "impulse-attention", "absolute-scaled"]


def build(start, content=True):
    torch.manual_seed(0)
    model = SPECS[f"vit-{start}"].build().eval()
    if not content:
        nn.init.zeros_(model.patch_embed.proj.weight)
        nn.init.zeros_(model.patch_embed.proj.bias)
    return model


@pytest.fixture
def encoding():
    return torch.randn(64, 108, generator=torch.Generator().manual_seed(0))


def test_the_shift_matrix_moves_an_image():
    image = torch.arange(16.0)
    moved = (shift_matrix(torch.tensor([1, -1]), 4) @ image).view(4, 4)
    expected = F.pad(image.view(4, 4)[1:, :-1], (1, 0, 0, 1))
    assert torch.equal(moved, expected)


@pytest.mark.parametrize("offset", [(0, 0), (0, 1), (-1, 1), (2, -3)])
def test_heads_with_a_dimension_for_each_token_attend_to_their_offset(offset):
    """As in the published ViT-Tiny: width 192, and 64 dimensions for 64 tokens."""
    encoding = torch.randn(64, 192, generator=torch.Generator().manual_seed(0))
    queries, keys = impulse_factors(encoding, torch.tensor(offset), side=8, dim=64)
    P = F.layer_norm(encoding, [192])
    maps = (P @ queries.T @ keys @ P.T / 8).softmax(dim=-1)
    target = shift_matrix(torch.tensor(offset), 8)
    inside = target.any(dim=1)
    assert torch.equal(maps.argmax(dim=1)[inside], target.argmax(dim=1)[inside])
    assert (maps * target).sum(dim=1)[inside].min() > 0.95


def test_scores_are_the_part_of_the_shift_that_the_leading_directions_express(encoding):
    queries, keys = impulse_factors(encoding, torch.tensor([1, 0]), side=8, dim=12)
    P = F.layer_norm(encoding, [108]).double()
    scores = P @ queries.double().T @ keys.double() @ P.T
    leading = torch.linalg.eigh(P @ P.T).eigenvectors[:, -12:]
    projector = leading @ leading.T
    expected = projector @ shift_matrix(torch.tensor([1, 0]), 8).double() @ projector
    scale = (scores * expected).sum() / expected.square().sum()
    torch.testing.assert_close(scores, scale * expected, atol=5e-3, rtol=1e-3)
    assert queries.norm() == pytest.approx(QUERY_KEY_NORM)
    assert keys.norm() == pytest.approx(QUERY_KEY_NORM)


def test_more_dimensions_than_the_encoding_has_are_refused(encoding):
    with pytest.raises(ValueError, match="heads of 65 dimensions, expected at most 64"):
        impulse_factors(encoding, torch.tensor([0, 0]), side=8, dim=65)


@pytest.mark.parametrize("start", ["impulse", "impulse-attention"])
def test_the_maps_of_the_network_are_those_of_the_equations(start):
    model = build(start, content=False)
    [first, *_] = attention_of(model, torch.zeros(1, 3, 32, 32))
    P = F.layer_norm(model.pos_embed[0].detach(), [108])
    for head, offset in enumerate(GRID):
        queries, keys = impulse_factors(model.pos_embed[0].detach(), offset, side=8, dim=12)
        expected = (P @ queries.T @ keys @ P.T / 12**0.5).softmax(dim=-1)
        found = first.maps[0, head].reshape(64, 64)
        torch.testing.assert_close(found.float(), expected, atol=1e-4, rtol=1e-3)


def mass_at(maps, offset):
    """Mean attention on an offset, over the queries that have it inside the image: `(N_h,)`."""
    row, column = offset.long() + 7
    return mean_by_offset(maps)[:, row, column]


def test_the_largest_mean_attention_is_at_the_offset_of_the_head():
    """Among offsets of at most four tokens per axis, which a quarter of all queries have."""
    [first, *_] = attention_of(build("impulse", content=False), torch.zeros(1, 3, 32, 32))
    near = mean_by_offset(first.maps[0])[:, 3:12, 3:12].flatten(1)  # offsets from -4 to 4
    best = near.argmax(dim=1)
    found = torch.stack([best // 9 - 4, best % 9 - 4], dim=1)
    assert torch.equal(found, GRID.to(found))
    assert near.amax(dim=1).min() > 10 / 64, "far above uniform attention"


def test_without_the_scaled_encoding_content_decides_where_heads_attend():
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    masses = []
    for scale in (1, 18):
        model = build("impulse-attention")
        model.pos_embed.data.div_(scale)
        [first, *_] = attention_of(model, images)
        of_heads = [[mass_at(maps, o)[h] for h, o in enumerate(GRID)] for maps in first.maps]
        masses.append(torch.tensor(of_heads).mean(dim=0))
    scaled, unscaled = masses
    others = GRID.abs().amax(dim=1) > 0  # at zero, content attends to itself
    assert scaled[others].min() > 3 / 64 and unscaled[others].max() < 2 / 64


def test_each_start_makes_one_change_more():
    parts = {
        "positions": ("pos_embed",),
        "attention": ("attn.qkv.weight",),
        "values": ("attn.qkv.weight", "attn.proj.weight"),
    }
    for name, ends in parts.items():
        more, less = (
            build(start.removeprefix("vit-")).state_dict() for start in QUESTIONS[name].weights
        )
        changed = {key for key in more if not torch.equal(more[key], less[key])}
        assert changed and all(key.endswith(ends) for key in changed)
        for key in changed & {key for key in more if "qkv" in key}:
            kept = slice(2 * 108) if name == "values" else slice(2 * 108, None)
            assert torch.equal(more[key][kept], less[key][kept])
    torch.testing.assert_close(build("absolute-scaled").pos_embed, 18 * build("absolute").pos_embed)


def test_each_question_waits_for_three_seeds_of_all_four_starts():
    found = {start: [0.6, 0.62, 0.64] for start in STARTS}
    for claim, question in zip(PUBLISHED_CLAIMS, QUESTIONS.values(), strict=True):
        assert claim.models == STARTS
        assert [verdict.verdict for verdict in claim.judge(Records([], {}))] == ["not run"]
        assert question.judge(found).verdict == "no effect shown"
        gain, loss = question.weights
        better = found | {gain: [0.7, 0.72, 0.7399]}
        worse = found | {gain: [0.5, 0.52, 0.5399]}
        assert question.judge(better).verdict == "it helps"
        assert question.judge(worse).verdict == "it hurts"
        assert question.judge(found | {loss: [0.6, 0.62]}).verdict == "not run"
