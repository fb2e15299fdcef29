"""A trained CNN against its attention form: counted, written, read, refused."""

import json

import pytest
import torch

from attnconv import conv_to_attention, convert_network
from attnconv.layers.conv_as_attention import ConvAsAttention
from attnconv.networks import build_model
from attnconv.theory.grid import pixels
from companion.data import Dataset
from companion.data.cifar10 import CIFAR10_CLASSES
from companion.gaps import largest_gap
from companion.runs.record import RunInfo, RunRecord
from companion.runs.weights import write_weights
from companion.store import DamagedFile
from companion.studies.conversion import (
    CONVERSION_FILE,
    SoftmaxAtEveryQuery,
    accuracy_table,
    compare,
    cost_table,
    layers_table,
    load_conversion,
    numbers,
    with_softmax_at_every_query,
)
from companion.studies.cost import Measured


@pytest.fixture
def noise():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (150, 32, 32, 3), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (150,), generator=generator)
    normalisation = {"classes": CIFAR10_CLASSES, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return Dataset("cifar10", images[:10], labels[:10], images[10:], labels[10:], **normalisation)


@pytest.fixture
def cnn(noise):
    torch.manual_seed(0)
    model = build_model("cnn", width=8)
    X = noise.normalise(noise.train_images)
    model.prepare(X)
    model(X)  # the norms have seen images
    return model.eval()


def record_in(folder):
    info = RunInfo.model_construct(parameters={"model": "cnn", "dataset": "cifar10"})
    return RunRecord(folder, info, [])


def test_the_same_network_twice(cnn, noise, tmp_path, monkeypatch):
    write_weights(tmp_path, cnn, {})
    layers = set()

    def forward(layer, x):
        layers.add(layer)
        return softmax(layer, x)

    softmax = SoftmaxAtEveryQuery.forward
    monkeypatch.setattr(SoftmaxAtEveryQuery, "forward", forward)
    found = compare(cnn, tmp_path, noise)
    assert len(layers) == sum(isinstance(each, torch.nn.Conv2d) for each in cnn.modules())
    assert found == load_conversion(record_in(tmp_path))
    for ours in (found.attention, found.softmax):
        assert ours.same_class == ours.same_class_mirrored == found.test_images == 140
        assert 0 < ours.largest_gap < 1e-4
    assert found.convolutions_left == 0
    assert found.cnn.seconds > 0 and found.attention.right == found.cnn.right

    X, recast = noise.normalise(noise.test_images), convert_network(cnn)
    with torch.no_grad():
        one, other = cnn(X), recast(X)
        both = one + cnn(X.flip(3))
    assert found.attention.largest_gap == pytest.approx(
        ((one - other).abs().max() / one.abs().max()).item(), rel=0.5
    )
    first, second = one.sort(dim=1, descending=True).values[:, :2].unbind(dim=1)
    smallest = ((first - second).min() / one.abs().max()).item()
    assert found.smallest_margin == pytest.approx(smallest, rel=1e-3)
    expected = [int((Y.argmax(dim=1) == noise.test_labels).sum()) for Y in (one, both)]
    assert [found.cnn.right, found.cnn.right_mirrored] == expected


def test_another_class_is_counted(cnn, noise, tmp_path, monkeypatch):
    write_weights(tmp_path, cnn, {})

    def other(model):
        recast = convert_network(model)
        with torch.no_grad():
            recast.classifier.weight[0] += 1e3 * recast.classifier.weight.abs().max()
        return recast

    monkeypatch.setattr("companion.studies.conversion.convert_network", other)
    found = compare(cnn, tmp_path, noise)
    for ours in (found.attention, found.softmax):
        assert ours.same_class < found.test_images and ours.largest_gap > 0.1


def test_a_model_without_convolutions_is_refused(noise, tmp_path):
    model = build_model("sa-quadratic", num_layers=1, hidden=8)
    with pytest.raises(ValueError, match="has no convolutions; expected a CNN"):
        compare(model.eval(), tmp_path, noise)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("alpha", [1.0, 30.0])
@pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2}, {"groups": 2, "bias": False}])
def test_a_softmax_at_every_query_is_the_layer(alpha, options, monkeypatch):
    """Against a loop over the queries, with scores from the distances to each head's target."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(4, 6, 3, dtype=torch.float64, **options)
    layer = conv_to_attention(conv, alpha)
    x = torch.randn(2, 4, 6, 7, dtype=torch.float64)
    expected = layer(x)
    monkeypatch.setattr(ConvAsAttention, "forward", None)  # as fast shifts, it is not asked
    found = with_softmax_at_every_query(torch.nn.Sequential(layer))(x)
    assert largest_gap(found, expected) < 1e-12
    padded = torch.nn.functional.pad(x, [options.get("padding", 0)] * 4)
    keys = pixels(*padded.shape[2:]).double()
    row, column = (layer.queries(axis, size) for axis, size in enumerate(padded.shape[2:]))
    for i, j in ((0, 0), (found.shape[2] - 1, 1)):
        targets = layer.encoding.centers + torch.tensor([row[i], column[j]])
        A = (-alpha * torch.cdist(targets, keys).square()).softmax(dim=1)
        by_hand = torch.einsum("hk,bck,hco->bo", A, padded.flatten(2), layer.value_matrices())
        by_hand = by_hand if conv.bias is None else by_hand + conv.bias
        assert largest_gap(found[:, :, i, j], by_hand) < 1e-12


def test_what_is_not_there_or_of_other_weights(cnn, noise, tmp_path):
    assert load_conversion(record_in(tmp_path)) is None
    write_weights(tmp_path, cnn, {})
    compare(cnn, tmp_path, noise)
    path, content = tmp_path / CONVERSION_FILE, (tmp_path / CONVERSION_FILE).read_text()
    path.write_text(json.dumps(json.loads(content) | {"test_images": "all"}))
    with pytest.raises(DamagedFile, match=r"conversion.json is damaged: test_images .*; repeat it"):
        load_conversion(record_in(tmp_path))
    path.write_text(content)
    torch.nn.init.ones_(cnn.classifier.weight)
    write_weights(tmp_path, cnn, {})
    with pytest.raises(DamagedFile, match=r"other weights.*python -m attnconv convert --model cnn"):
        load_conversion(record_in(tmp_path))


def test_the_table_of_layers_leaves_the_network_as_it_was(cnn):
    rows = layers_table(cnn, convert_network(cnn)).rows
    assert rows[0] == ["whitening", "4", "3 → 24", "31 × 31"]
    assert [row[1] for row in rows[1:]] == 6 * ["9"]
    assert not any(module._forward_hooks for module in cnn.modules())


def test_the_tables_and_numbers_are_those_of_the_comparison(cnn, noise, tmp_path):
    write_weights(tmp_path, cnn, {})
    found = compare(cnn, tmp_path, noise)
    right = found.cnn.right
    assert accuracy_table(found).rows[0][1] == f"{right} ({right / 140:.4f})"
    costs = {"CNN": Measured(4e6, 0.5, 12.4), "attention": Measured(4e6, 1.0, 30.6)}
    assert cost_table(costs, 2).rows[1] == ["attention", "2.0", "500.0", "31"]
    info = RunInfo.model_construct(
        wall_seconds=90, hardware={"threads": 2}, parameter_count=2500, final_test_accuracy=0.5
    )
    quoted = numbers(RunRecord(tmp_path, info, []), found, costs)
    assert quoted["cnn-minutes"] == 1.5 and quoted["cnn-recorded"] == 70
    assert quoted["cnn-accuracy"] == right / 140 and quoted["same-class"] == 140
    assert quoted["cost-here"] == 2
