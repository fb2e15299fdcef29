"""Tests of ViT-Lite-6/4: its size, its blocks, its recipe and the rule that judges it."""

import pytest
import torch

from companion.build import build_network
from companion.runs.parameters import RunParameters
from companion.runs.select import Records
from companion.specs import SPECS
from companion.studies.starts.claims import LITE, PUBLISHED_LITE, YARDSTICK

pytest.importorskip("timm")


@pytest.fixture
def parameters():
    return RunParameters.check({"model": LITE, "dataset": "cifar10", "tier": "vit-lite"})


def size_by_formula(D, inner, layers, tokens=64, patch=4, classes=10):
    embedding = (3 * patch**2 + 1) * D  # a convolution with bias
    positions = (tokens + 1) * D + D  # of the class token, too, and the class token itself
    attention = 3 * D**2 + (D + 1) * D  # queries, keys and values without bias
    perceptron = (D + 1) * inner + (inner + 1) * D
    norms = 2 * (2 * D)
    head = 2 * D + (D + 1) * classes
    return embedding + positions + layers * (attention + perceptron + norms) + head


def test_the_size_is_the_published_one(parameters):
    """3.191M in the table of the authors' code; the paper has 3.19 M."""
    found = sum(p.numel() for p in build_network(parameters.model_dump()).parameters())
    assert found == size_by_formula(256, 512, 6) == 3_190_538
    assert SPECS[LITE].published.parameters == f"{found / 1e6:.2f}M"
    assert SPECS[LITE].published.accuracy == PUBLISHED_LITE


def test_a_block_is_that_of_the_authors(parameters):
    model = build_network(parameters.model_dump()).eval()
    torch.manual_seed(0)
    x, block = torch.randn(2, 65, 256), model.blocks[0]
    torch.nn.init.normal_(block.norm2.weight)
    query, key, value = (
        (block.norm1(x) @ block.attn.qkv.weight.T).view(2, 65, 3, 4, 64).permute(2, 0, 3, 1, 4)
    )
    maps = (query @ key.transpose(-1, -2) / 8).softmax(dim=-1)
    y = block.norm2(x + block.attn.proj((maps @ value).transpose(1, 2).flatten(2)))
    expected = y + block.mlp.fc2(torch.nn.functional.gelu(block.mlp.fc1(y)))
    torch.testing.assert_close(block(x), expected, atol=1e-5, rtol=1e-4)


def test_dropout_follows_the_publication(parameters):
    model = build_network(parameters.model_dump())
    assert {block.attn.attn_drop.p for block in model.blocks} == {0.1}
    assert {block.attn.proj_drop.p for block in model.blocks} == {0.0}
    assert model.blocks[-1].drop_path1.drop_prob == pytest.approx(0.1)
    assert isinstance(model.blocks[0].drop_path1, torch.nn.Identity)
    assert model.pos_embed.std().item() == pytest.approx(0.2, rel=0.1)


def test_the_recipe_warms_up_for_ten_epochs(parameters):
    assert parameters.epochs == 200 and not parameters.keeps_weights
    rates = [parameters.learning_rate_at(epoch, 0, 391) for epoch in range(200)]
    assert rates[5] == pytest.approx(parameters.learning_rate / 2, rel=1e-3)
    assert rates.index(max(rates)) == 10 and rates[-1] < 1e-6


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.90, "reached"), (0.8993, "missed")])
def test_the_yardstick_is_judged_by_one_point(accuracy, verdict, monkeypatch):
    assert YARDSTICK.judge(Records([], {}))[0].verdict == "not run"

    class Run:
        pass

    Run.accuracy = accuracy
    monkeypatch.setattr(Records, "of", lambda self, *models: [Run()])
    assert YARDSTICK.judge(Records([], {}))[0].verdict == verdict
