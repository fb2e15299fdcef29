"""Tests of ablate_attention: other computations of the same networks, and networks without loss."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

from attnconv import build_model, convert_network
from attnconv.ablation import MEAN_MAP, ONE_OFFSET, UNIFORM, ablate_attention, nearest_convolution
from attnconv.layers.attention import PositionAttention
from attnconv.layers.encodings import QuadraticEncoding
from attnconv.measures import measure_maps
from attnconv.networks import SelfAttentionNet
from attnconv.theory.grid import offset_set
from attnconv.vit.substitution import output_with, read_output

SIDE = 4  # tokens
TOKENS = [(i, j) for i in range(SIDE) for j in range(SIDE)]


class TwoLayers(nn.Module):
    """Two attention layers on a 4 x 4 grid behind a class token, each written differently."""

    def __init__(self, width=6, heads=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Conv2d(3, width, 2, stride=2)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.layers = nn.ModuleList(FusedLayer(width, heads) for _ in range(2))
        self.head = nn.Linear(width, 5)

    def forward(self, images):
        X = self.embed(images).flatten(2).mT
        X = torch.cat([self.cls_token.expand(len(X), -1, -1), X], dim=1)
        for layer in self.layers:
            X = X + layer(X)
        return self.head(X[:, 0] + X[:, 1:].mean(dim=1))


class FusedLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.num_heads = heads
        self.qkv = nn.Linear(width, 3 * width)

    def parts(self, X):
        return self.qkv(X).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, X):
        return F.scaled_dot_product_attention(*self.parts(X)).transpose(1, 2).flatten(2)


class SoftmaxLayer(FusedLayer):
    def forward(self, X):
        query, key, value = self.parts(X)
        weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(dim=-1)
        return (weights @ value).transpose(1, 2).flatten(2)


class EinsumLayer(FusedLayer):
    def forward(self, X):
        query, key, value = self.parts(X)
        weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(dim=-1)
        return torch.einsum("bhqk,bhkd->bqhd", weights, value).flatten(2)


class TorchsLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, X):
        return self.attention(X, X, X, need_weights=False)[0]


@pytest.fixture
def images():
    torch.manual_seed(0)
    return torch.randn(7, 3, 2 * SIDE, 2 * SIDE)


@pytest.fixture
def network(images):
    torch.manual_seed(1)
    network = TwoLayers().eval()
    with torch.no_grad():
        for layer in network.layers:
            layer.qkv.weight.mul_(3)
    return network


def softmax(scores):
    shifted = [math.exp(score - max(scores)) for score in scores]
    return [each / sum(shifted) for each in shifted]


def weights_by_loops(layer, X):
    """The weights `[image][head][query][key]` of a layer as plain numbers."""
    query, key, _ = layer.parts(X).tolist()
    scale = len(query[0][0][0]) ** -0.5
    return [
        [
            [
                softmax([scale * math.fsum(map(math.prod, zip(q, k, strict=True))) for k in K])
                for q in Q
            ]
            for Q, K in zip(of_queries, of_keys, strict=True)
        ]
        for of_queries, of_keys in zip(query, key, strict=True)
    ]


def replaced_row(mean, head, query, replacement):
    """The weights by which a query's attention to patches is replaced, by loops."""
    if replacement == UNIFORM:
        return [1 / len(TOKENS)] * len(TOKENS)
    if replacement == MEAN_MAP:
        return mean[head][query]
    reach = int(replacement[0]) // 2
    inner = range(reach, SIDE - reach)
    total = {}
    for q, (i, j) in enumerate(TOKENS):
        if i in inner and j in inner:
            for k, (m, n) in enumerate(TOKENS):
                if max(abs(m - i), abs(n - j)) <= reach:
                    total[m - i, n - j] = total.get((m - i, n - j), 0) + mean[head][q][k]
    i, j = TOKENS[query]
    row = [total.get((m - i, n - j), 0) for m, n in TOKENS]
    return [each / sum(row) for each in row]


def logits_by_loops(network, images, numbers, replacement):
    """The logits with the attention of some layers replaced; only linear maps use torch."""
    means = []
    for first in (True, False):
        X = network.embed(images).flatten(2).mT
        X = torch.cat([network.cls_token.expand(len(X), -1, -1), X], dim=1)
        for number, layer in enumerate(network.layers):
            weights = weights_by_loops(layer, X)
            if first:
                means.append(mean_of_patches(weights))
            elif number in numbers:
                weights = [
                    [
                        replaced_head(means[number], head, rows, replacement)
                        for head, rows in enumerate(image)
                    ]
                    for image in weights
                ]
            X = X + (torch.tensor(weights).to(X) @ layer.parts(X)[2]).transpose(1, 2).flatten(2)
    return network.head(X[:, 0] + X[:, 1:].mean(dim=1))


def mean_of_patches(weights):
    """The mean over images of the weights among patches, each row divided by its sum."""
    heads = range(len(weights[0]))
    patches = range(1, len(TOKENS) + 1)
    return [
        [
            [
                sum(image[h][q][k] / sum(image[h][q][1:]) for image in weights) / len(weights)
                for k in patches
            ]
            for q in patches
        ]
        for h in heads
    ]


def replaced_head(mean, head, rows, replacement):
    result = [rows[0]]
    for query, row in enumerate(rows[1:]):
        mass = sum(row[1:])
        other = replaced_row(mean, head, query, replacement)
        result.append([row[0], *(mass * each for each in other)])
    return result


@torch.no_grad()
@pytest.mark.parametrize("replacement", [MEAN_MAP, "1 x 1", "3 x 3", UNIFORM])
def test_two_layers_against_loops(network, images, replacement):
    network, images = network.double(), images.double()
    own = logits_by_loops(network, images, [], replacement)
    assert torch.allclose(own, network(images))
    labels = torch.arange(7) % 5
    report = ablate_attention(network, images, labels, batch_size=4)
    agreement = ablate_attention(network, images)
    assert report.unchanged == (own.argmax(dim=1) == labels).double().mean()
    for row, numbers in enumerate(([0], [1], [0, 1])):
        classes = logits_by_loops(network, images, numbers, replacement).argmax(dim=1)
        accuracy = (classes == labels).double().mean()
        assert report.of(replacement)[row] == pytest.approx(accuracy)
        kept = (classes == own.argmax(dim=1)).double().mean()
        assert agreement.of(replacement)[row] == pytest.approx(kept)


@torch.no_grad()
@pytest.mark.parametrize("kind", [FusedLayer, SoftmaxLayer, EinsumLayer, TorchsLayer])
def test_substituted_logits_against_loops(network, images, kind):
    """The logits, not only the classes, and with each way of writing a layer."""
    maps = torch.rand(2, SIDE, SIDE, SIDE, SIDE)
    maps /= maps.sum(dim=(-2, -1), keepdim=True)
    means = maps.flatten(3).flatten(1, 2).tolist()
    X = torch.cat(
        [
            network.cls_token.expand(len(images), -1, -1),
            network.embed(images).flatten(2).mT,
        ],
        dim=1,
    )
    layers = list(network.layers)
    weights = [
        [replaced_head(means, head, rows, MEAN_MAP) for head, rows in enumerate(image)]
        for image in weights_by_loops(layers[0], X)
    ]
    values = layers[0].parts(X)[2]
    X = X + (torch.tensor(weights) @ values).transpose(1, 2).flatten(2)
    X = X + layers[1](X)
    expected = network.head(X[:, 0] + X[:, 1:].mean(dim=1))
    for layer in list(network.layers):
        network.layers.append(same_layer(layer, kind))
    del network.layers[:2]
    name = "layers.0.attention" if kind is TorchsLayer else "layers.0"
    assert torch.allclose(output_with(network, images, {name: maps}), expected, atol=1e-5)
    assert not torch.allclose(network(images), expected, atol=1e-2)


def same_layer(layer, kind):
    other = kind(layer.qkv.in_features, layer.num_heads)
    if kind is not TorchsLayer:
        other.load_state_dict(layer.state_dict())
        return other
    attention = other.attention
    attention.in_proj_weight.copy_(layer.qkv.weight)
    attention.in_proj_bias.copy_(layer.qkv.bias)
    attention.out_proj.weight.copy_(torch.eye(layer.qkv.in_features))
    attention.out_proj.bias.zero_()
    return other


@torch.no_grad()
def test_a_converted_cnn_loses_nothing_as_3_x_3_convolutions():
    torch.manual_seed(0)
    cnn = build_model("cnn", width=8)
    images = torch.randn(20, 3, 32, 32)
    cnn.prepare(images)
    cnn(images)  # the norms have seen images
    cnn.eval()
    network = convert_network(cnn)
    report = ablate_attention(network, images, kernel_sizes=[1, 3, 5])
    assert report.layers == tuple(n for n, m in cnn.named_modules() if isinstance(m, nn.Conv2d))
    for exact in (MEAN_MAP, "3 x 3", "5 x 5", ONE_OFFSET):
        assert report.of(exact).tolist() == [1] * 8
    assert report.of("1 x 1")[-1] < 0.9 and report.of(UNIFORM)[-1] < 0.9
    layers = read_output(network, images, lambda layer: layer)[1].layers
    maps = {layer.name: nearest_convolution(layer.maps[0], 3) for layer in layers}
    replaced = output_with(network, images, maps)
    assert torch.allclose(replaced, cnn(images), atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("alpha", [1.5, 50.0])
def test_position_only_heads_lose_nothing_as_large_convolutions(alpha):
    """Heads that see at most the pixels next to them are 3 x 3 convolutions, also at the border."""
    torch.manual_seed(0)
    layers = [
        PositionAttention(QuadraticEncoding.from_alpha(offset_set((3, 3)).float(), alpha), 8, 8)
        for _ in range(2)
    ]
    network = SelfAttentionNet(layers, 3, 5, pooling=1, hidden=8, intermediate=8, dropout=0.1)
    images = torch.randn(9, 3, 7, 7)
    network.eval()
    own, reading = read_output(network, images, lambda layer: layer)
    size = 3 if alpha == 50 else 5
    maps = {
        layer.name: nearest_convolution(layer.maps[0].double(), size) for layer in reading.layers
    }
    replaced = output_with(network, images, maps)
    assert torch.allclose(replaced, own, atol=1e-5 if alpha == 50 else 0.02)
    assert ablate_attention(network, images).of(f"{size} x {size}").tolist() == [1, 1, 1]


@torch.no_grad()
def test_uniform_attention_changes_nothing_without_queries(network, images):
    for layer in network.layers:
        layer.qkv.weight[:6] = 0
        layer.qkv.bias[:6] = 0
    report = ablate_attention(network, images)
    assert report.of(UNIFORM).tolist() == report.of(MEAN_MAP).tolist() == [1, 1, 1]
    uniform = torch.full((2, SIDE, SIDE, SIDE, SIDE), 1 / SIDE**2)
    replaced = output_with(network, images, {"layers.0": uniform, "layers.1": uniform})
    assert torch.allclose(replaced, network(images), atol=1e-6)


@torch.no_grad()
def test_prefix_tokens_of_timm_keep_their_attention():
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    size = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "num_heads": 3, "depth": 2}
    vit = timm.models.VisionTransformer(**size, num_classes=5, reg_tokens=2).eval()
    attention = vit.blocks[0].attn
    maps = torch.rand(3, 4, 4, 4, 4)
    maps /= maps.sum(dim=(-2, -1), keepdim=True)
    outputs = []
    attention.register_forward_hook(lambda *call: outputs.append((call[1][0], call[2])))
    output_with(vit, torch.randn(6, 3, 32, 32), {"blocks.0.attn": maps})
    ((X, found),) = outputs
    query, key, value = attention.qkv(X).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
    weights = (query @ key.mT / 2).softmax(dim=-1)
    mass = weights[..., 3:, 3:].sum(dim=-1, keepdim=True)
    weights[..., 3:, 3:] = mass * maps.flatten(3).flatten(1, 2)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(()), atol=1e-6)
    expected = attention.proj((weights @ value).transpose(1, 2).flatten(2))
    assert torch.allclose(found, expected, atol=1e-5)
    report = ablate_attention(vit, torch.randn(6, 3, 32, 32))
    assert report.layers == ("blocks.0.attn", "blocks.1.attn")


@torch.no_grad()
@pytest.mark.parametrize("name", ["sa-quadratic", "sa-learned-content"])
def test_own_maps_change_nothing_in_the_papers_networks(name):
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "hidden": 24, "intermediate": 8, "image_size": 8, "num_heads": 3}
    network = build_model(name, **sizes).eval()
    image = torch.randn(1, 3, 8, 8)  # its own maps are the mean maps
    own, reading = read_output(network, image, lambda layer: layer)
    replaced = output_with(network, image, {each.name: each.maps[0] for each in reading.layers})
    assert torch.allclose(own, replaced, atol=1e-6) and torch.equal(own, network(image))


class FlexLayer(FusedLayer):
    def forward(self, X):
        return flex_attention(*self.parts(X)).transpose(1, 2).flatten(2)


class Decoder(nn.Module):
    """An image classifier with a transposed convolution and one that pads unevenly."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)
        self.down = SameConv(4, 5, 3, stride=2)

    def forward(self, images):
        return self.down(self.up(images)).mean(dim=(2, 3))


class SameConv(nn.Conv2d):
    def forward(self, x):
        return super().forward(F.pad(x, (0, 1, 0, 1)))


def hiera():
    timm = pytest.importorskip("timm")
    sizes = {"img_size": 64, "embed_dim": 16, "num_heads": 1, "stages": (1, 1, 2, 1)}
    network = timm.models.hiera.Hiera(**sizes, num_classes=5, mask_unit_size=(8, 8))
    network.head.fc.reset_parameters()
    network.blocks[3].attn.qkv.weight.data *= 20
    return network


OTHERS = {
    "flex_attention": (lambda: with_layers(FlexLayer), 8),
    "Hiera": (hiera, 64),
    "padded and transposed": (lambda: convert_network(Decoder()), 6),
}


def with_layers(layer):
    network = TwoLayers()
    network.layers = nn.ModuleList(layer(6, 2) for _ in range(2))
    return network


@torch.no_grad()
@pytest.mark.parametrize("name", OTHERS)
def test_own_maps_change_nothing_and_uniform_ones_do(name):
    build, side = OTHERS[name]
    torch.manual_seed(0)
    network = build().eval()
    image = torch.randn(1, 3, side, side)
    own, reading = read_output(network, image, lambda layer: layer)
    maps = {each.name: each.maps[0] for each in reading.layers if len(each.maps) == 1}
    assert maps
    assert torch.allclose(output_with(network, image, maps), own, atol=1e-5)
    uniform = {
        name: torch.full_like(each, 1 / each[0, 0, 0].numel()) for name, each in maps.items()
    }
    assert (output_with(network, image, uniform) - own).abs().max() > 1e-4


@pytest.mark.parametrize(("height", "width", "size"), [(5, 4, 3), (4, 6, 1), (6, 5, 5)])
def test_the_kernel_is_that_of_the_inspection(height, width, size):
    maps = torch.randn(3, height, width, height * width).double().softmax(dim=-1)
    maps = maps.unflatten(-1, (height, width))
    kernels = measure_maps(maps[None], size).kernels
    found = nearest_convolution(maps, size)
    i = height // 2
    j = width // 2
    reach = size // 2
    inside = [
        (di, dj)
        for di in range(-reach, reach + 1)
        for dj in range(-reach, reach + 1)
        if 0 <= i + di < height and 0 <= j + dj < width
    ]
    expected = torch.stack([kernels[:, height - 1 + di, width - 1 + dj] for di, dj in inside], 1)
    expected /= expected.sum(dim=1, keepdim=True)
    found = found[:, i, j]
    at = torch.stack([found[:, i + di, j + dj] for di, dj in inside], dim=1)
    assert torch.allclose(at, expected)
    assert torch.allclose(found.sum(dim=(1, 2)), torch.ones(3).double())


def test_what_cannot_be_ablated(network, images):
    with pytest.raises(ValueError, match=r"kernel_sizes has 5, expected sizes from 1 to 4"):
        ablate_attention(network, images, kernel_sizes=[5])
    with pytest.raises(ValueError, match=r"labels has the shape \(3,\), expected \(7,\)"):
        ablate_attention(network, images, torch.zeros(3))
    with pytest.raises(ValueError, match=r"images has the shape \(3, 8, 8\), expected"):
        ablate_attention(network, images[0])
    with pytest.raises(TypeError, match="Sequential has no attention that can be replaced"):
        ablate_attention(nn.Sequential(nn.Conv2d(3, 5, 8), nn.Flatten()), images)
    with pytest.raises(TypeError, match=r"the model returns \(7, 5, 1, 1\), expected logits"):
        ablate_attention(nn.Conv2d(3, 5, 8), images)


def test_the_report_prints_a_table(network, images):
    report = ablate_attention(network, images, kernel_sizes=[3])
    lines = str(report).splitlines()
    assert lines[0] == "agreement on 7 images (unchanged model: 1.0000)"
    assert " ".join(lines[1].split()) == "replaced in mean map 3 x 3 one offset uniform"
    assert [line.split("  ")[0] for line in lines[2:]] == ["layers.0", "layers.1", "all layers"]
    with pytest.raises(
        ValueError, match="got '9 x 9', expected one of mean map, 3 x 3, one offset"
    ):
        report.of("9 x 9")
