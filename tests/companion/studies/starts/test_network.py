"""Tests of the vision transformers of chapter 17: they differ in the start of attention alone."""

import pytest
import torch

from attnconv.heads import mean_by_offset
from attnconv.theory.encodings import sinusoidal_encoding
from attnconv.vit.capture import attention_of
from attnconv.vit.start import kernel_offsets, mass_on_offsets
from companion.build import build_network
from companion.runs.history import from_snapshot, snapshot
from companion.runs.parameters import RunParameters
from companion.specs import FURTHER_VITS, SPECS, VITS
from companion.studies.starts.arms import (
    ALL_STARTS,
    SPREAD,
    VIT_STARTS,
    WIDE_ALPHA,
)

pytest.importorskip("timm")


def build(start):
    torch.manual_seed(0)
    return SPECS[f"vit-{start}"].build().eval()


def test_every_start_is_a_model():
    assert set(VITS) == {f"vit-{start}" for start in VIT_STARTS} <= set(SPECS)
    assert set(VITS | FURTHER_VITS) == {f"vit-{start}" for start in ALL_STARTS} <= set(SPECS)


@pytest.mark.parametrize(
    "start", ["convolution", "random", "center", "frozen", "whole", "wide", "spread-4", "alpha-8"]
)
def test_starts_share_everything_but_attention(start):
    default, other = build("default").state_dict(), build(start).state_dict()
    assert default.keys() == other.keys()
    changed = {name for name in default if not torch.equal(default[name], other[name])}
    ends = ("rel_pos.relative_position_bias_table", "attn.qkv.weight", "attn.qkv.bias")
    assert changed and all(name.endswith(ends) for name in changed)
    for name in changed:
        if "qkv" in name:  # values keep their start; of a frozen one, they alone
            kept = slice(-108, None) if start == "frozen" else slice(108, None)
            torch.testing.assert_close(default[name][kept], other[name][kept])


@pytest.mark.parametrize("start", ["rotary-convolution", "rotary-random"])
def test_rotary_starts_share_everything_but_queries_and_keys(start):
    default, other = build("rotary-default").state_dict(), build(start).state_dict()
    changed = {name for name in default if not torch.equal(default[name], other[name])}
    assert len(changed) == 12
    assert all(name.endswith(("attn.qkv.weight", "attn.qkv.bias")) for name in changed)
    assert all(torch.equal(default[name][2 * 108 :], other[name][2 * 108 :]) for name in changed)


def test_rotary_heads_attend_to_the_offsets_of_the_others():
    images = torch.randn(1, 3, 32, 32)
    grid = kernel_offsets(3, [9] * 6)
    for layer, offsets in zip(attention_of(build("rotary-convolution"), images), grid, strict=True):
        assert mass_on_offsets(layer.maps, offsets).min() > 0.6
    # the largest mass of a random head is on the whole offset next to its own, if that is inside
    centers = centers_of("random")
    for layer, of_heads in zip(
        attention_of(build("rotary-random"), images), centers.float(), strict=True
    ):
        near = of_heads.abs().amax(dim=1) < 3
        best = mean_by_offset(layer.maps[0]).flatten(1).argmax(dim=1)
        found = torch.stack([best // 15 - 7, best % 15 - 7], dim=1)
        assert ((found - of_heads).abs().amax(dim=1)[near] < 0.55).all()


def test_random_offsets_differ_between_seeds_and_spread_as_stated():
    centers = torch.cat([centers_of("random", seed) for seed in range(12)])
    assert centers.float().std() == pytest.approx(2.0, rel=0.15)
    assert not torch.equal(centers_of("random", 0), centers_of("random", 1))


@pytest.mark.parametrize("spread", [0.5, 1.0, 4.0])
def test_offsets_of_another_spread_are_the_random_ones_scaled(spread):
    random, other = centers_of("random", seed=2), centers_of(f"spread-{spread:g}", seed=2)
    torch.testing.assert_close(other, random * spread / SPREAD, atol=3e-2, rtol=1e-2)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 8.0])
def test_heads_of_another_alpha_have_the_same_offsets(alpha):
    name = f"vit-alpha-{alpha:g}"
    parameters = RunParameters.check({"model": name, "dataset": "cifar10", "tier": "vit-10k"})
    assert parameters.start_alpha == alpha
    for table, usual in zip(
        snapshot(build_network(parameters.model_dump())).values(),
        snapshot(SPECS["vit-random"].build()).values(),
        strict=True,
    ):
        relative, expected = (each.float() - each.float().amax() for each in (table, usual))
        torch.testing.assert_close(relative, expected * alpha / 2.0, atol=0.5, rtol=1e-2)


def test_all_heads_of_the_center_start_look_at_the_query():
    torch.testing.assert_close(centers_of("center"), torch.zeros(6, 9, 2), atol=1e-3, rtol=0)


def test_whole_offsets_are_the_random_ones_rounded():
    whole, random = centers_of("whole", seed=3), centers_of("random", seed=3)
    torch.testing.assert_close(whole, random.round(), atol=2e-2, rtol=0)  # half precision
    assert not torch.allclose(whole, random, atol=0.3)


def test_wide_heads_spread_as_far_as_random_offsets():
    parameters = RunParameters.check({"model": "vit-wide", "dataset": "cifar10", "tier": "vit-10k"})
    model = build_network(parameters.model_dump())
    [table, *_] = snapshot(model).values()
    axis = torch.arange(-7, 8).float()
    squares = axis[:, None].square() + axis.square()
    relative = table.float() - table.float().amax(dim=(1, 2), keepdim=True)
    expected = (-WIDE_ALPHA * squares).expand(9, -1, -1)
    torch.testing.assert_close(relative, expected, atol=1e-2, rtol=0)
    along = (-WIDE_ALPHA * torch.arange(-50, 51).double().square()).softmax(dim=0)
    variance = (along * torch.arange(-50, 51).square()).sum()
    assert variance.sqrt() == pytest.approx(2.0, rel=1e-3)  # the deviation of random offsets


@pytest.mark.parametrize("start", ["default", "convolution", "whole", "random", "center", "wide"])
def test_mimetic_values_change_values_and_projections_alone(start):
    plain, other = build(start).state_dict(), build(f"{start}-mimetic-values").state_dict()
    changed = {name for name in plain if not torch.equal(plain[name], other[name])}
    assert len(changed) == 12
    assert all(name.endswith(("attn.qkv.weight", "attn.proj.weight")) for name in changed)
    for number in range(6):
        qkv = f"blocks.{number}.attn.qkv.weight"
        assert torch.equal(plain[qkv][: 2 * 108], other[qkv][: 2 * 108])
        product = other[qkv][-108:].T @ other[f"blocks.{number}.attn.proj.weight"].T
        assert product.diagonal().mean() == pytest.approx(-0.4, abs=0.03)


def centers_of(start, seed=0):
    """The centres of all heads, from the slopes of the scores: -a (d - c)^2 at d = 1 and -1."""
    tables = snapshot(SPECS[f"vit-{start}"].build(seed=seed))
    table = torch.stack([value.float() for value in tables.values()])  # (L, N_h, 15, 15)
    middle = table.shape[-1] // 2
    down = table[..., middle + 1, middle] - table[..., middle - 1, middle]
    right = table[..., middle, middle + 1] - table[..., middle, middle - 1]
    return torch.stack([down, right], dim=-1) / (4 * 2.0)  # alpha = 2


def test_frozen_attention_has_no_gradient_and_the_others_have():
    images = torch.randn(2, 3, 32, 32)
    for start in ("frozen", "convolution"):
        model = build(start)
        model(images).square().sum().backward()
        attention = model.blocks[0].attn
        gradient = attention.qkv.weight.grad
        trained = attention.rel_pos.relative_position_bias_table.requires_grad
        assert trained == (start == "convolution")
        assert bool(gradient[: 2 * 108].any()) == trained
        assert gradient[2 * 108 :].abs().max() > 0


def test_snapshots_give_the_attention_of_the_model():
    model = build("convolution")
    images = torch.randn(1, 3, 32, 32)
    for layer, found in enumerate(attention_of(model, images), start=1):
        encoding = from_snapshot({"table": snapshot(model)[f"layer{layer}.table"]})
        scores = encoding.position_scores(8, 8)
        expected = scores.flatten(-2).softmax(dim=-1).view(scores.shape)
        torch.testing.assert_close(found.maps[0], expected, atol=1e-3, rtol=0)  # half precision
    offsets = torch.tensor([[0, 0], [-1, 0], [0, -1], [0, 1], [1, 0]])
    assert mass_on_offsets(expected[:5], offsets).min() > 0.6


def test_mimetic_products_are_those_of_the_paper():
    torch.manual_seed(0)
    model = SPECS["vit-mimetic"].build(hidden=108)
    attention = model.blocks[0].attn
    query, key, value = attention.qkv.weight.detach().unflatten(0, (3, -1))
    product = value.T @ attention.proj.weight.detach().T
    # 0.4 Z - 0.4 I for values, 0.7 Z + 0.7 I for queries and keys
    assert product.diagonal().mean() == pytest.approx(-0.4, abs=0.02)
    rest = product - product.diagonal().mean() * torch.eye(108)
    assert rest.std() == pytest.approx(0.4 / 108**0.5, rel=0.05)
    # of rank 12, the best approximation: its singular values are the largest of a full matrix
    head = query[:12].T @ key[:12]
    assert torch.linalg.matrix_rank(head) == 12
    Z = torch.randn(108, 108) / 108**0.5
    like = torch.linalg.svdvals(0.7 * Z + 0.7 * torch.eye(108))[:12]
    torch.testing.assert_close(torch.linalg.svdvals(head)[:12], like, rtol=0.1, atol=0)
    assert head.diagonal().mean() > 0.12
    positions = sinusoidal_encoding(8, 8, dim=108).flatten(0, 1)
    torch.testing.assert_close(model.pos_embed[0].detach(), positions)


def test_the_engine_builds_it_from_parameters():
    parameters = RunParameters.check(
        {"model": "vit-convolution", "dataset": "cifar10", "tier": "vit-5k"}
    )
    assert (parameters.train_images, parameters.epochs) == (5_000, 40)
    assert build_network(parameters.model_dump())(torch.randn(1, 3, 32, 32)).shape == (1, 10)


@pytest.mark.parametrize("values", [{}, {"dataset": "cifar10", "tier": "small"}])
def test_other_tiers_are_refused(values):
    with pytest.raises(ValueError, match="vit-convolution"):
        RunParameters.check({"model": "vit-convolution", **values})


def test_one_networks_weights_are_kept():
    kept = [
        parameters.name
        for model in VITS
        for tier in ("vit-5k", "vit-10k", "vit-50k", "vit-10k-long")
        for seed in (0, 1)
        if (
            parameters := RunParameters.check(
                {"model": model, "dataset": "cifar10", "tier": tier, "seed": seed}
            )
        ).keeps_weights
    ]
    assert kept == ["vit-convolution--cifar10-vit-10k--seed0"]
