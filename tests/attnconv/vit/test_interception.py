"""Tests of the reader on attention written in many ways, against plain computations in float64."""

import pytest
import torch
from helpers.fresh import run_fresh
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnconv import inspect_attention
from attnconv.vit.capture import attention_of, read_attention

HEADS, SIDE, DIM = 2, 3, 8


class Attention(nn.Module):
    """Self-attention whose way to combine queries, keys and values is given."""

    def __init__(self, attend):
        super().__init__()
        self.num_heads = HEADS
        self.attend = attend
        self.qkv = nn.Linear(DIM, 3 * DIM)

    def split(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return [each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in (q, k, v)]

    def forward(self, x):
        out = self.attend(*self.split(x))
        return x if out is None else out


class Patches(nn.Module):
    """A vision transformer of one layer that has class and register tokens as transformers does."""

    def __init__(self, layer, prefix=0):
        super().__init__()
        self.projection = nn.Conv2d(3, DIM, 4, 4)
        self.layer = layer
        self.cls_token = nn.Parameter(torch.randn(1, min(prefix, 1), DIM))
        self.register_tokens = nn.Parameter(torch.randn(1, max(prefix - 1, 0), DIM))

    def tokens(self, images):
        x = self.projection(images).flatten(2).mT
        prefix = [each.expand(len(x), -1, -1) for each in (self.cls_token, self.register_tokens)]
        return torch.cat([*prefix, x], dim=1)

    def forward(self, images):
        return self.layer(self.tokens(images))


def scores(q, k):
    return q @ k.mT / q.shape[-1] ** 0.5


def by_softmax_module(q, k, v):
    return nn.Softmax(dim=-1)(scores(q, k)) @ v


def by_function_in_float32(q, k, v):
    return torch.matmul(F.softmax(scores(q, k), dim=-1, dtype=torch.float32).to(q.dtype), v)


def by_dropout_and_transposed_product(q, k, v):
    weights = F.dropout(scores(q, k).softmax(dim=-1), 0.0)
    return v.mT @ weights.mT


def by_softmax_over_an_earlier_axis(q, k, v):
    return scores(q, k).mT.softmax(-2).mT @ v


def by_batched_product(q, k, v):
    weights = torch.softmax(scores(q, k), -1).flatten(0, 1)
    return torch.bmm(weights, v.flatten(0, 1))


def by_3d_weights(q, k, v):
    q, k, v = (each.flatten(0, 1) for each in (q, k, v))
    return scores(q, k).softmax(dim=-1) @ v


def by_einsum(q, k, v):
    return torch.einsum("bhij,bhjd->bihd", scores(q, k).softmax(dim=-1), v)


def by_einsum_values_first(q, k, v):
    return torch.einsum("bhjd,bhij->bhid", v, scores(q, k).softmax(dim=-1))


def fused(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


WAYS = [
    by_softmax_module,
    by_function_in_float32,
    by_dropout_and_transposed_product,
    by_softmax_over_an_earlier_axis,
    by_batched_product,
    by_3d_weights,
    by_einsum,
    by_einsum_values_first,
    fused,
]


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("way", WAYS)
def test_the_maps_are_those_of_queries_and_keys(way, prefix):
    torch.manual_seed(0)
    model = Patches(Attention(way), prefix)
    images = torch.randn(2, 3, 4 * SIDE, 4 * (SIDE + 1))
    (found,) = attention_of(model, images)
    assert found.name == "layer" and found.gap < 1e-6
    q, k, _ = (each.double() for each in model.layer.split(model.tokens(images)))
    weights = scores(q, k).softmax(dim=-1)
    to_patches = weights[:, :, prefix:, prefix:].detach()
    mass = 1 - to_patches.sum(dim=-1)
    assert torch.allclose(found.prefix_mass, mass.mean(dim=(0, 2)), atol=1e-6)
    assert found.maps.shape == (2, HEADS, SIDE, SIDE + 1, SIDE, SIDE + 1)
    expected = to_patches / to_patches.sum(dim=-1, keepdim=True)
    assert torch.allclose(found.maps.flatten(4).flatten(2, 3).double(), expected, atol=1e-6)


T = SIDE * SIDE
OPTIONS = {
    "scale": ({"scale": 0.1}, lambda q, k: 0.1 * q @ k.mT),
    "causal": (
        {"is_causal": True},
        lambda q, k: scores(q, k).masked_fill(~torch.ones(T, T).tril().bool(), -torch.inf),
    ),
    "mask": (
        {"attn_mask": torch.eye(T).bool() | (torch.arange(T) < 4)},
        lambda q, k: scores(q, k).masked_fill(
            ~(torch.eye(T).bool() | (torch.arange(T) < 4)), -torch.inf
        ),
    ),
    "bias": (
        {"attn_mask": torch.arange(T) / 3 * torch.ones(T, 1)},
        lambda q, k: scores(q, k) + torch.arange(T) / 3,
    ),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_fused_attention(option):
    torch.manual_seed(0)
    options, expected = OPTIONS[option]
    model = Patches(Attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)))
    images = torch.randn(1, 3, 4 * SIDE, 4 * SIDE)
    (found,) = attention_of(model, images)
    q, k, _ = model.layer.split(model.tokens(images))
    weights = expected(q, k).softmax(dim=-1).detach()
    assert torch.allclose(found.maps.flatten(4).flatten(2, 3), weights, atol=1e-6)


def test_grouped_queries():
    torch.manual_seed(0)

    def grouped(q, k, v):
        return F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True)

    model = Patches(Attention(grouped))
    images = torch.randn(1, 3, 4 * SIDE, 4 * SIDE)
    (found,) = attention_of(model, images)
    q, k, _ = model.layer.split(model.tokens(images))
    for head in range(HEADS):
        weights = scores(q[:, head], k[:, 0]).softmax(dim=-1).detach()
        assert torch.allclose(found.maps[:, head].flatten(3).flatten(1, 2), weights, atol=1e-6)


def band(batch, head, query, key):
    return (query - key).abs() <= 2


def tilted(score, batch, head, query, key):
    return score + 0.3 * (head + 1) * key


def a_table_of_pairs(batch, head, query, key):
    return PAIRS[query, key]


PAIRS = (torch.arange(T)[:, None] - torch.arange(T)).abs() <= 2
MASKS = {
    "none": lambda: None,
    "band": lambda: create_block_mask(band, None, None, T, T, device="cpu"),
    "table": lambda: create_block_mask(a_table_of_pairs, 2, HEADS, T, T, device="cpu"),
}


@pytest.mark.parametrize("shared", [1, HEADS], ids=["shared keys", "own keys"])
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
@pytest.mark.parametrize("kind", MASKS)
def test_flex_attention(kind, inside, shared):
    """The mask is built in the forward pass, or before."""
    torch.manual_seed(0)
    mask = None if inside else MASKS[kind]()

    def flex(q, k, v):
        k, v = k[:, :shared], v[:, :shared]
        own = MASKS[kind]() if inside else mask
        return flex_attention(q, k, v, tilted, own, enable_gqa=shared < HEADS)

    model = Patches(Attention(flex))
    images = torch.randn(2, 3, 4 * SIDE, 4 * SIDE)
    (found,) = attention_of(model, images)
    assert found.gap < 1e-6
    q, k, _ = model.layer.split(model.tokens(images))
    token = torch.arange(T)
    expected = scores(q, k[:, :shared]) + 0.3 * (torch.arange(HEADS) + 1)[:, None, None] * token
    if kind != "none":
        expected = expected.masked_fill((token[:, None] - token).abs() > 2, -torch.inf)
    weights = expected.softmax(dim=-1).detach()
    assert torch.allclose(found.maps.flatten(4).flatten(2, 3), weights, atol=1e-6)


FLEX_FIRST = """
import torch
from torch import nn
from attnconv.vit.capture import attention_of
from attnconv.vit.substitution import read_output
# at the top

class Flex(nn.Module):
    num_heads = 1

    def forward(self, x):
        # in the forward pass
        x = x.flatten(2).mT[:, None]
        return flex_attention(x, x, x)

model, images = nn.Sequential(nn.Conv2d(3, 8, 4, 4), Flex()), torch.randn(1, 3, 8, 8)
# read
print(found.maps.shape)
"""


@pytest.mark.parametrize(
    "read",
    [
        "(found,) = attention_of(model, images)",
        "(found,) = read_output(model, images, lambda layer: layer)[1].layers",
    ],
    ids=["attention_of", "read_output"],
)
@pytest.mark.parametrize("place", ["# at the top", "# in the forward pass"])
def test_flex_attention_is_read_in_a_process_that_compiles_nothing(place, read):
    flex = "from torch.nn.attention.flex_attention import flex_attention"
    program = FLEX_FIRST.replace(place, flex).replace("# read", read)
    done = run_fresh(program)
    assert done.stdout == "torch.Size([1, 1, 2, 2, 2, 2])\n", done.stderr


BROKEN = """
import torch
from torch import nn
from attnconv.vit.capture import attention_of

class Broken(nn.Module):
    def forward(self, x):
        print("called")
        raise ValueError("it cannot run")

attention_of(Broken(), torch.randn(1, 3, 8, 8))
"""


def test_a_model_that_fails_is_run_once():
    done = run_fresh(BROKEN)
    assert done.stdout == "called\n" and "ValueError: it cannot run" in done.stderr


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention(batch_first, bias):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(DIM, HEADS, bias=bias, batch_first=batch_first)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = attention

        def forward(self, x):
            x = x if batch_first else x.transpose(0, 1)
            return self.attention(x, x, x, need_weights=False)[0]

    model = Patches(Layer(), prefix=1)
    images = torch.randn(2, 3, 4 * SIDE, 4 * SIDE)
    (found,) = attention_of(model, images)
    assert found.name == "layer.attention" and found.gap < 1e-6
    x = model.tokens(images)
    x = x if batch_first else x.transpose(0, 1)
    _, weights = attention(x, x, x, average_attn_weights=False)
    maps = weights[:, :, 1:, 1:] / weights[:, :, 1:, 1:].sum(dim=-1, keepdim=True)
    assert torch.allclose(found.maps.flatten(4).flatten(2, 3), maps, atol=1e-6)


BLOCKED = torch.arange(T).expand(T, T).T < 2  # True blocks, in nn.MultiheadAttention


class Multi(nn.Module):
    """`nn.MultiheadAttention` with a mask that blocks every key of the first two queries."""

    def __init__(self, need_weights):
        super().__init__()
        self.attention = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x):
        return self.attention(x, x, x, attn_mask=BLOCKED, need_weights=self.need_weights)[0]


def to_prefix_only(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, (torch.arange(T + 1) < 1).expand(T + 1, -1))


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            Patches(Attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, ~BLOCKED))),
            ValueError,
            "no maps for 4 of 18 queries",
        ),
        (Patches(Multi(need_weights=False)), ValueError, "no maps for 4 of 18 queries"),
        (Patches(Multi(need_weights=True)), TypeError, "its output has NaN"),
        (Patches(Attention(to_prefix_only), prefix=1), ValueError, "no maps for 18 of 18 queries"),
    ],
    ids=["fused", "multi-head, fused", "multi-head", "prefix"],
)
def test_queries_without_keys_are_named(model, error, message):
    """torch's fused attention returns 0 for a query whose keys are all blocked."""
    with pytest.raises(error, match=message):
        attention_of(model, torch.randn(1, 3, 4 * SIDE, 4 * SIDE))


def test_an_encoder_whose_fast_path_would_hide_its_maps():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 16, batch_first=True)
    model = Patches(nn.TransformerEncoder(layer, 2)).eval()
    images = torch.randn(2, 3, 4 * SIDE, 4 * SIDE)
    found = attention_of(model, images)
    assert [each.name for each in found] == [f"layer.layers.{n}.self_attn" for n in (0, 1)]
    x = model.tokens(images)
    _, weights = model.layer.layers[0].self_attn(x, x, x, average_attn_weights=False)
    assert torch.allclose(found[0].maps.flatten(4).flatten(2, 3), weights, atol=1e-6)
    assert torch.backends.mha.get_fastpath_enabled()


def differential(q, k, v):
    first, second = (scores(each, k).softmax(dim=-1) for each in (q, -q))
    return (first - 0.5 * second) @ v


def differential_in_one_softmax(q, k, v):
    weights = scores(torch.cat([q, -q], dim=1), k.repeat(1, 2, 1, 1)).softmax(dim=-1)
    return (weights[:, :HEADS] - 0.5 * weights[:, HEADS:]) @ v


def differential_fused(q, k, v):
    return fused(q, k, v) - 0.5 * fused(-q, k, v)


MIXTURE = torch.tensor([[0.9, 0.3], [-0.2, 1.0]])


def talking_heads(q, k, v):
    weights = scores(q, k).softmax(dim=-1)
    mixed = F.linear(weights.permute(0, 2, 3, 1), MIXTURE)
    return mixed.permute(0, 3, 1, 2) @ v


def talking_heads_by_einsum(q, k, v):
    weights = torch.einsum("bhij,gh->bgij", scores(q, k).softmax(dim=-1), MIXTURE)
    return weights @ v


def changed_in_place(q, k, v):
    return scores(q, k).softmax(dim=-1).mul_(2) @ v


def multiplied_twice(q, k, v):
    weights = scores(q, k).softmax(dim=-1)
    return weights @ v + weights @ v.flip(-1)


def dropped_out(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (differential, "differential attention"),
        (differential_in_one_softmax, "differential attention"),
        (differential_fused, "differential attention"),
        (talking_heads, "talking heads"),
        (talking_heads_by_einsum, "talking heads"),
        (changed_in_place, "do not sum to 1"),
        (multiplied_twice, "more than one set of values"),
        (dropped_out, "differ from its output by"),
    ],
)
def test_what_no_map_describes_is_refused_by_name(way, message):
    torch.manual_seed(0)
    images = torch.randn(1, 3, 4 * SIDE, 4 * SIDE)
    with pytest.raises(TypeError, match=rf"layer \(Attention\) cannot be read: .*{message}"):
        attention_of(Patches(Attention(way)), images)


def gated(q, k, v):
    """A mixture of two maps, as in ConViT."""
    content = scores(q, k).softmax(dim=-1)
    position = torch.eye(k.shape[-2]).expand(1, HEADS, -1, -1)
    return (0.25 * content + 0.75 * position) @ v


def test_a_mixture_of_maps_that_are_probabilities_is_read():
    torch.manual_seed(0)
    images = torch.randn(2, 3, 4 * SIDE, 4 * SIDE)
    ours, mixture = (Patches(Attention(way)) for way in (fused, gated))
    mixture.load_state_dict(ours.state_dict())
    (content,), (found,) = (attention_of(model, images) for model in (ours, mixture))
    position = torch.eye(T).unflatten(1, (SIDE, SIDE)).unflatten(0, (SIDE, SIDE))
    assert torch.allclose(found.maps, 0.25 * content.maps + 0.75 * position, atol=1e-6)


def pooling(q, k, v):
    return fused(q[:, :, :1], k, v)


def between_channels(q, k, v):
    return (scores(q.mT, k.mT).softmax(dim=-1) @ v.mT).mT


def without_softmax(q, k, v):
    return None


def as_many_windows_as_heads(q, k, v):
    q, k, v = (each[:, None].expand(-1, HEADS, -1, -1, -1) for each in (q, k, v))
    return (scores(q, k).softmax(dim=-1) @ v)[:, 0]


class TwoLayers(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first = Attention(first)
        self.second = Attention(second)

    def forward(self, x):
        self.first(x)
        return self.second(x)


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        (pooling, "has 1 queries for 9 keys"),
        (between_channels, "which are not among its tokens"),
        (without_softmax, "formed no attention weights"),
        (as_many_windows_as_heads, "whose axis of heads is unknown"),
    ],
)
def test_other_attention_is_skipped_and_named(way, reason):
    images = torch.randn(1, 3, 4 * SIDE, 4 * SIDE)
    reading = read_attention(Patches(TwoLayers(way, fused)), images)
    assert [layer.name for layer in reading.layers] == ["layer.second"]
    (note,) = reading.skipped
    assert note.startswith("layer.first (Attention) ") and reason in note
    assert note in str(inspect_attention(Patches(TwoLayers(way, fused)), images))
    with pytest.raises(TypeError, match=rf"no attention that can be read \(.*{reason}"):
        attention_of(Patches(Attention(way)), images)


@pytest.mark.parametrize("noise", [torch.arange(9.0), torch.arange(9.0).flip(0)])
def test_tokens_in_another_order_have_no_grid(noise):
    """As in a masked autoencoder, which shuffles its tokens by sorting noise."""

    class Shuffled(Patches):
        def tokens(self, images):
            return super().tokens(images)[:, torch.argsort(noise, dim=0)]

    images = torch.randn(1, 3, 4 * SIDE, 4 * SIDE)
    if noise[0] == 0:  # the order is kept
        assert len(attention_of(Shuffled(Attention(fused)), images)) == 1
    else:
        with pytest.raises(TypeError, match="into another order than the image's"):
            attention_of(Shuffled(Attention(fused)), images)


def test_each_layer_is_reduced_before_the_next_one():
    reading = read_attention(
        Patches(TwoLayers(fused, by_softmax_module)),
        torch.randn(1, 3, 4 * SIDE, 4 * SIDE),
        use=lambda layer: (layer.name, float(layer.maps.sum())),
    )
    assert reading.layers == [
        ("layer.first", pytest.approx(18)),
        ("layer.second", pytest.approx(18)),
    ]


def build_torchvision(name):
    models = pytest.importorskip("torchvision").models
    if name == "vit":
        return models.VisionTransformer(32, 8, 2, 2, 16, 16)
    if name == "maxvit":
        return models.MaxVit((64, 64), 8, 4, [8], [1], 4, 0.0)
    version = {"block": models.swin_transformer.SwinTransformerBlockV2} if name == "swin_v2" else {}
    if version:
        version["downsample_layer"] = models.swin_transformer.PatchMergingV2
    return models.SwinTransformer([4, 4], 8, [2, 2], [2, 2], [4, 4], **version)


@pytest.mark.parametrize(
    ("name", "side", "shapes"),
    [
        ("vit", 32, [(2, 2, 4, 4, 4, 4)] * 2),
        ("swin", 32, [(8, 2, 4, 4, 4, 4)] * 2 + [(2, 2, 4, 4, 4, 4)] * 2),
        ("swin_v2", 32, [(8, 2, 4, 4, 4, 4)] * 2 + [(2, 2, 4, 4, 4, 4)] * 2),
        ("maxvit", 64, [(32, 2, 4, 4, 4, 4)] * 2),
    ],
)
def test_torchvision(name, side, shapes):
    torch.manual_seed(0)
    found = attention_of(build_torchvision(name), torch.randn(2, 3, side, side))
    assert [tuple(layer.maps.shape) for layer in found] == shapes
    assert max(layer.gap for layer in found) < 1e-6
    assert all((layer.prefix_mass > 0).all() == (name == "vit") for layer in found)


def test_windows_with_padding_are_left_out_and_named():
    """6 x 10 tokens are padded to 8 x 12: of the 2 x 3 windows, those at the end have padding."""
    torch.manual_seed(0)
    model = build_torchvision("swin").eval()
    images = torch.randn(2, 3, 24, 40)
    model.features = model.features[:2]  # one stage
    model.norm = nn.Identity()
    model.head = nn.Identity()
    layer = model.features[1][0].attn
    inputs = []
    layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    reading = read_attention(model, images)
    assert [len(found.maps) for found in reading.layers] == [4, 4]
    assert reading.skipped == tuple(
        f"8 of 12 windows of features.1.{n}.attn (ShiftedWindowAttention), which contain padding"
        " (up to 12 of 16 keys)"
        for n in (0, 1)
    )
    assert f"not measured: {reading.skipped[0]}" in str(inspect_attention(model, images))
    tokens = inputs[0][:, :4, :8].unflatten(2, (2, 4)).transpose(1, 2).flatten(0, 1).flatten(1, 2)
    q, k, _ = layer.qkv(tokens).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
    weights = (scores(q, k) + layer.get_relative_position_bias()).softmax(dim=-1).detach()
    maps = reading.layers[0].maps.flatten(4).flatten(2, 3)
    assert torch.allclose(maps, weights, atol=1e-6)


def test_a_layer_of_padded_windows_is_skipped():
    model = build_torchvision("swin")
    with pytest.raises(
        TypeError,
        match=r"attends to padding in each of its 1 windows \(up to 12 of 16 keys\); larger images",
    ):
        attention_of(model, torch.randn(1, 3, 8, 8))
    assert len(attention_of(model, torch.randn(1, 3, 24, 24))) == 2
    assert len(attention_of(model, torch.randn(1, 3, 32, 32))) == 4
