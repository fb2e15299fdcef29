"""Tests of starts in the models of torchvision, transformers and vit-pytorch.

The attention is intercepted at torch's functions, independently of the package. Where a library
need not be installed, small modules with the same attributes stand in for its models as well.
"""

import copy
from collections import OrderedDict
from functools import partial

import pytest
import torch
from helpers.encodings import quadratic_attention
from helpers.models import unchanged
from torch import nn
from torch.nn import functional as F

from attnconv import init_as_convolution
from attnconv.theory.expressivity import expresses_convolution
from attnconv.vit.measure import LayerMeasure
from attnconv.vit.start import mass_on_offsets

torchvision = pytest.importorskip("torchvision")


def maps_in_forward(model, images):
    """The attention of a model's own forward pass, layer by layer, `(..., N_h, T', T')`."""
    found = []
    softmax, fused = F.softmax, F.scaled_dot_product_attention

    def record(*args, **kwargs):
        found.append(softmax(*args, **kwargs).double())
        return found[-1].to(args[0])

    def record_fused(q, k, v, attn_mask=None, *_, **__):
        scores = q @ k.mT * q.shape[-1] ** -0.5
        maps = softmax(scores if attn_mask is None else scores + attn_mask, dim=-1)
        found.append(maps.double())
        return maps @ v

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        F.softmax = record
        F.scaled_dot_product_attention = record_fused
        with torch.no_grad():
            model(images)
    finally:
        F.softmax = softmax
        F.scaled_dot_product_attention = fused
        torch.backends.mha.set_fastpath_enabled(fast)
    return found


class Sdpa(nn.Module):
    """Attention with three projections, as in transformers."""

    def __init__(self, dim, heads, names=("q_proj", "k_proj", "v_proj"), out="o_proj"):
        super().__init__()
        self.num_attention_heads = heads
        self.names = (*names, out)
        for name in self.names:
            setattr(self, name, nn.Linear(dim, dim))

    def bias(self):
        return None

    def forward(self, x, bias=None):
        *projections, out = (getattr(self, name) for name in self.names)
        q, k, v = (
            p(x).unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2) for p in projections
        )
        bias = self.bias() if bias is None else bias
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return out(y.transpose(1, 2).flatten(2)), None


def index_of(height, width):
    """The rows of a table of offsets q - k, as torchvision and transformers number them."""
    pixels = torch.cartesian_prod(torch.arange(height), torch.arange(width))
    offsets = pixels.unsqueeze(1) - pixels + torch.tensor([height - 1, width - 1])
    return offsets[..., 0] * (2 * width - 1) + offsets[..., 1]


class WindowBias(nn.Module):
    """The bias of transformers' Swin."""

    def __init__(self, heads, window):
        super().__init__()
        self.window_size = window
        offsets = (2 * window[0] - 1) * (2 * window[1] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.randn(offsets, heads))
        self.register_buffer("relative_position_index", index_of(*window), persistent=False)

    def forward(self):
        return self.relative_position_bias_table[self.relative_position_index].movedim(-1, 0)


class SwinLike(nn.Module):
    """One window of transformers' Swin, in blocks with a skip connection."""

    def __init__(self, dim=36, heads=9, window=(5, 6)):
        super().__init__()
        self.image_size = (5, 6)
        self.embed = nn.Conv2d(3, dim, 1)
        self.blocks = nn.ModuleList([SwinBlockLike(dim, heads, window) for _ in range(2)])

    def forward(self, images):
        x = self.embed(images).flatten(2).mT
        for block in self.blocks:
            x = block(x)
        return x


class SwinBlockLike(nn.Module):
    def __init__(self, dim, heads, window):
        super().__init__()
        self.layernorm_before = nn.LayerNorm(dim)
        self.attention = Sdpa(dim, heads)
        self.attention.relative_position_bias = WindowBias(heads, window)
        self.attention.bias = lambda: self.attention.relative_position_bias()

    def forward(self, x):
        return x + self.attention(self.layernorm_before(x))[0]


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """A block of transformers, whose norms and attention go by the names given."""

    def __init__(self, dim, heads, names, out):
        super().__init__()
        self.names = names
        attention, *norms = names
        setattr(self, attention, Sdpa(dim, heads, out=out))
        for norm in norms:
            setattr(self, norm, nn.LayerNorm(dim))
        self.mlp = Mlp(dim)

    def forward(self, x):
        attention, first, second = (getattr(self, name) for name in self.names)
        x = x + attention(first(x))[0]
        return x + self.mlp(second(x))


class ViTLayer(Block):
    def __init__(self, dim, heads):
        super().__init__(dim, heads, ("attention", "layernorm_before", "layernorm_after"), "o_proj")


class CLIPEncoderLayer(Block):
    def __init__(self, dim, heads):
        super().__init__(dim, heads, ("self_attn", "layer_norm1", "layer_norm2"), "out_proj")


class ViTLike(nn.Module):
    """transformers' ViT, at images that are not square."""

    def __init__(self, dim=54, heads=9):
        super().__init__()
        self.image_size = (32, 40)
        self.embeddings = nn.Module()
        self.embeddings.patch_embeddings = nn.Module()
        self.embeddings.patch_embeddings.projection = nn.Conv2d(3, dim, 4, 4)
        self.embeddings.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, dim))
        self.embeddings.position_embeddings = nn.Parameter(0.02 * torch.randn(1, 81, dim))
        self.layers = nn.ModuleList([ViTLayer(dim, heads) for _ in range(2)])
        self.layernorm = nn.LayerNorm(dim)

    def forward(self, images):
        x = self.embeddings.patch_embeddings.projection(images).flatten(2).mT
        x = torch.cat([self.embeddings.cls_token.expand(len(x), -1, -1), x], dim=1)
        x = x + self.embeddings.position_embeddings
        for layer in self.layers:
            x = layer(x)
        return self.layernorm(x)


class ClipLike(nn.Module):
    """transformers' CLIP, which normalises tokens before its first block."""

    def __init__(self, dim=54, heads=9):
        super().__init__()
        self.image_size = 32
        self.embeddings = nn.Module()
        self.embeddings.patch_embedding = nn.Conv2d(3, dim, 4, 4, bias=False)
        self.embeddings.class_embedding = nn.Parameter(torch.randn(dim))
        self.embeddings.position_embedding = nn.Embedding(65, dim)
        self.pre_layrnorm = nn.LayerNorm(dim)
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleList([CLIPEncoderLayer(dim, heads) for _ in range(2)])
        self.post_layernorm = nn.LayerNorm(dim)

    def forward(self, images):
        x = self.embeddings.patch_embedding(images).flatten(2).mT
        x = torch.cat([self.embeddings.class_embedding.expand(len(x), 1, -1), x], dim=1)
        x = self.pre_layrnorm(x + self.embeddings.position_embedding.weight)
        for layer in self.encoder.layers:
            x = layer(x)
        return self.post_layernorm(x[:, 0])


class ResidualAttentionBlock(nn.Module):
    """A block of open_clip and of OpenAI's CLIP."""

    def __init__(self, dim, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.ln_2 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        layers = {"c_fc": nn.Linear(dim, 96), "gelu": nn.GELU(), "c_proj": nn.Linear(96, dim)}
        self.mlp = nn.Sequential(OrderedDict(layers))
        self.ln_attn = nn.Identity()

    def forward(self, x):
        tokens = self.ln_1(x)
        x = x + self.ln_attn(self.attn(tokens, tokens, tokens, need_weights=False)[0])
        return x + self.mlp(self.ln_2(x))


class Pooler(nn.Module):
    """The attention pooling of open_clip's CoCa."""

    def __init__(self, dim, output):
        super().__init__()
        self.query = nn.Parameter(torch.randn(5, output))
        self.attn = nn.MultiheadAttention(output, 3, kdim=dim, vdim=dim, batch_first=True)
        self.ln_k = nn.LayerNorm(dim)

    def forward(self, x):
        x = self.ln_k(x)
        return self.attn(self.query.expand(len(x), -1, -1), x, x, need_weights=False)[0]


class OpenClipLike(nn.Module):
    """The image tower of open_clip, at images that are not square."""

    def __init__(self, dim=54, heads=9, pooled=None):
        super().__init__()
        self.image_size = (32, 40)
        self.conv1 = nn.Conv2d(3, dim, 4, 4, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(dim))
        self.positional_embedding = nn.Parameter(0.1 * torch.randn(81, dim))
        self.ln_pre = nn.LayerNorm(dim)
        self.ln_post = nn.LayerNorm(pooled or dim)
        self.transformer = nn.Module()
        blocks = [ResidualAttentionBlock(dim, heads) for _ in range(2)]
        self.transformer.resblocks = nn.ModuleList(blocks)
        self.attn_pool = Pooler(dim, pooled) if pooled else None
        self.pool_type = "tok"

    def forward(self, images):
        x = self.conv1(images).flatten(2).mT
        x = torch.cat([self.class_embedding.expand(len(x), 1, -1), x], dim=1)
        x = self.ln_pre(x + self.positional_embedding)
        for block in self.transformer.resblocks:
            x = block(x)
        return self.ln_post(x if self.attn_pool is None else self.attn_pool(x))[:, 0]


class FusedAttention(nn.Module):
    """The attention of vit-pytorch."""

    def __init__(self, dim, heads, dim_head=6):
        super().__init__()
        self.heads = heads
        self.scale = dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.Softmax(dim=-1)
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, x):
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        )
        maps = self.attend(q @ k.mT * self.scale)
        return self.to_out((maps @ v).transpose(1, 2).flatten(2))


class FeedForwardLike(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim)
        )

    def forward(self, x):
        return self.net(x)


class TransformerLike(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(
            [nn.ModuleList([FusedAttention(dim, heads), FeedForwardLike(dim)]) for _ in range(2)]
        )

    def forward(self, x):
        for attention, mlp in self.layers:
            x = attention(x) + x
            x = mlp(x) + x
        return self.norm(x)


class ToPatches(nn.Module):
    def forward(self, images):
        return F.unfold(images, 4, stride=4).mT


class SimpleViTLike(nn.Module):
    """vit-pytorch's SimpleViT, whose position encoding is a tensor that is not registered."""

    def __init__(self, dim=54, heads=9):
        super().__init__()
        self.patch_size = (4, 4)
        self.pool = "mean"
        self.to_patch_embedding = nn.Sequential(
            ToPatches(), nn.LayerNorm(48), nn.Linear(48, dim), nn.LayerNorm(dim)
        )
        self.pos_embedding = torch.randn(64, dim)
        self.transformer = TransformerLike(dim, heads)
        self.linear_head = nn.Linear(dim, 10)

    def forward(self, images):
        x = self.to_patch_embedding(images) + self.pos_embedding
        return self.linear_head(self.transformer(x).mean(dim=1))


def swin():
    from torchvision.models.swin_transformer import SwinTransformer

    return SwinTransformer([4, 4], 36, [2, 1], [9, 3], [4, 4], num_classes=10)


def maxvit():
    from torchvision.models.maxvit import MaxVit

    return MaxVit((64, 64), 16, 4, [36, 36], [1, 1], 4, stochastic_depth_prob=0.0)


def transformers_model(name, **options):
    def build():
        library = pytest.importorskip("transformers")
        sizes = {"image_size": 64, "patch_size": 8, "hidden_size": 72, "num_hidden_layers": 2}
        sizes |= {"num_attention_heads": 9, "intermediate_size": 96}
        if name.startswith("Swin"):
            sizes = {
                "image_size": 64,
                "embed_dim": 36,
                "depths": [2],
                "num_heads": [9],
                "window_size": 4,
            }
        config = getattr(library, name.replace("Model", "Config"))
        return getattr(library, name)(config(**sizes | options))

    return build


def vit_pytorch_model(name):
    def build():
        library = pytest.importorskip("vit_pytorch")
        sizes = {"image_size": 64, "patch_size": 8, "num_classes": 10, "dim": 72, "depth": 2}
        return getattr(library, name)(**sizes, heads=9, mlp_dim=96, dim_head=8)

    return build


def open_clip_model(**options):
    def build():
        library = pytest.importorskip("open_clip.transformer")
        sizes = {"image_size": 64, "patch_size": 8, "width": 72, "layers": 2, "heads": 9}
        return library.VisionTransformer(**sizes, mlp_ratio=2, output_dim=24, **options)

    return build


#: Models with a relative position bias, and the height and width of their images.
BIASED = {
    "torchvision, Swin": (swin, (64, 64)),
    "torchvision, MaxViT": (maxvit, (64, 64)),
    "stand-in, Swin": (SwinLike, (5, 6)),
    "transformers, Swin": (transformers_model("SwinModel"), (64, 64)),
    "transformers, BEiT": (
        transformers_model("BeitModel", use_relative_position_bias=True),
        (64, 64),
    ),
    "transformers, BEiT with a shared bias": (
        transformers_model("BeitModel", use_shared_relative_position_bias=True),
        (64, 64),
    ),
}


def different_from_quadratic(report, found, alpha):
    """The largest difference between each layer's first maps and the quadratic encoding's."""
    worst = []
    for layer, maps in zip(report.layers, found[: len(report.layers)], strict=True):
        patches = layer.grid[0] * layer.grid[1]
        maps = maps.flatten(0, -4)[0]
        expected = quadratic_attention(layer.offsets, alpha, *layer.grid)
        worst.append((maps[:, -patches:, -patches:] - expected).abs().max().item())
        assert maps[:, -patches:, :-patches].sum() < 1e-5, "nothing goes to prefix tokens"
    return worst


@pytest.mark.parametrize("case", BIASED)
def test_a_relative_bias_gives_the_quadratic_encodings_attention(case):
    torch.manual_seed(0)
    build, size = BIASED[case]
    model = build().eval()
    report = init_as_convolution(model, 3, 2.0)
    found = maps_in_forward(model, torch.randn(1, 3, *size))
    assert len(found) == len(report.layers)
    assert max(different_from_quadratic(report, found, 2.0)) < 1e-6
    assert min(layer.effect for layer in report.layers) > 1e-3


PLAIN = {
    "torchvision, ViT": (
        lambda: torchvision.models.VisionTransformer(32, 4, 2, 9, 54, 108),
        (32, 32),
    ),
    "stand-in, ViT": (ViTLike, (32, 40)),
    "stand-in, CLIP": (ClipLike, (32, 32)),
    "stand-in, SimpleViT": (SimpleViTLike, (32, 32)),
    "stand-in, open_clip": (OpenClipLike, (32, 40)),
    "stand-in, open_clip with attention pooling": (partial(OpenClipLike, pooled=24), (32, 40)),
    "open_clip, ViT": (open_clip_model(), (64, 64)),
    "open_clip, CLIPA": (
        open_clip_model(no_ln_pre=True, pool_type="avg", pos_embed_type="sin_cos_2d"),
        (64, 64),
    ),
    "open_clip, CoCa": (open_clip_model(attentional_pool=True, attn_pooler_heads=3), (64, 64)),
    "open_clip, NormFormer": (open_clip_model(scale_heads=True, scale_attn_inner=True), (64, 64)),
    "vit-pytorch, ViT": (vit_pytorch_model("ViT"), (64, 64)),
    "vit-pytorch, SimpleViT": (vit_pytorch_model("SimpleViT"), (64, 64)),
} | {
    f"transformers, {name}": (transformers_model(name), (64, 64))
    for name in (
        *("ViTModel", "DeiTModel", "Dinov2Model", "Dinov2WithRegistersModel"),
        *("CLIPVisionModel", "SiglipVisionModel"),
    )
}


@pytest.mark.parametrize("case", PLAIN)
def test_a_plain_model_comes_close_to_the_quadratic_encodings_attention(case):
    torch.manual_seed(0)
    build, size = PLAIN[case]
    model = build().eval()
    images = torch.randn(2, 3, *size)
    report = init_as_convolution(model, 3, 2.0, images=images)
    found = maps_in_forward(model, images)
    assert max(different_from_quadratic(report, found, 2.0)) < 0.05
    assert all(layer.fidelity.min() > 0.6 and layer.effect > 0.01 for layer in report.layers)


def test_the_report_gives_the_fidelity_in_the_models_own_forward_pass():
    torch.manual_seed(0)
    model = ViTLike().eval()
    images = torch.randn(2, 3, 32, 40)
    report = init_as_convolution(model, 3, 2.0, images=images)
    for layer, maps in zip(report.layers, maps_in_forward(model, images), strict=True):
        maps = maps[:, :, 1:, 1:].unflatten(-1, (8, 10)).unflatten(2, (8, 10))
        for head, (row, column) in enumerate(layer.offsets.tolist()):
            mass = [
                float(maps[:, head, i, j, i + row, j + column].mean())
                for i in range(1, 7)
                for j in range(1, 9)
            ]
            assert float(layer.fidelity[head]) == pytest.approx(sum(mass) / len(mass), abs=1e-6)


def test_a_position_encoding_outside_the_state_dict_is_pointed_out_and_the_remedy_saves_it():
    torch.manual_seed(0)
    model = SimpleViTLike().eval()
    report = init_as_convolution(model)
    (note,) = report.notes
    assert "pos_embedding, which now holds the position code, is not in the state dict" in note
    other = SimpleViTLike().eval()
    for each in (model, other):
        exec(
            note.partition("first call ")[2].partition(" on both")[0],
            {"torch": torch, "model": each},
        )
    other.load_state_dict(model.state_dict())
    images = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(other(images), model(images))
    assert init_as_convolution(model).notes == ()


def test_a_failure_restores_a_position_encoding_outside_the_state_dict(monkeypatch):
    model = SimpleViTLike().eval()
    before = model.pos_embedding.clone()

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("attnconv.vit.start.read_probabilities", fail)
    with pytest.raises(MemoryError):
        init_as_convolution(model)
    assert torch.equal(model.pos_embedding, before)


def test_attention_pooling_reads_the_content_of_patches_but_no_position_code():
    torch.manual_seed(0)
    model = OpenClipLike(pooled=24).eval()
    images = torch.randn(4, 3, 32, 40)
    before = copy.deepcopy(model)
    init_as_convolution(model, images=images)
    norm = model.attn_pool.ln_k
    assert not norm.weight[-10:].any() and norm.weight[:-10].all()
    assert torch.equal(model.ln_post.weight, before.ln_post.weight)
    sizes = []
    for each in (before, model):
        each.attn_pool.ln_k.register_forward_hook(
            lambda *call: sizes.append(call[2][:, 1:, :-10].square().mean().sqrt().item())
        )
        each(images)
    assert sizes[1] == pytest.approx(sizes[0], rel=1e-4)


def changed(build, path, module):
    def build_changed():
        model = build()
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, module)
        return model

    return build_changed


REFUSED = {
    "registers of unknown place": (
        changed(SimpleViTLike, "register_tokens", nn.Parameter(torch.randn(4, 54))),
        "the place of register_tokens among the tokens is unknown",
    ),
    "a norm behind attention": (
        changed(OpenClipLike, "transformer.resblocks.1.ln_attn", nn.LayerNorm(54)),
        "transformer.resblocks.1.ln_attn: it would write to the position code",
    ),
    "two poolings": (
        changed(OpenClipLike, "attn_pool_contrastive", Pooler(54, 24)),
        "attn_pool_contrastive: it would read the position code",
    ),
    "normalised queries": (
        changed(OpenClipLike, "transformer.resblocks.0.attn.ln_q", nn.LayerNorm(6)),
        r"resblocks.0.attn \(MultiheadAttention\): it normalises queries and keys",
    ),
    "no bias": (
        lambda: nn.Sequential(Sdpa(36, 9)),
        r"cannot start 0 \(Sdpa\): no relative position bias is added to its scores",
    ),
    "sigmoid": (
        lambda: torchvision.models.swin_transformer.SwinTransformer(
            [4, 4],
            36,
            [2],
            [9],
            [4, 4],
            block=torchvision.models.swin_transformer.SwinTransformerBlockV2,
        ),
        r"features.1.0.attn \(ShiftedWindowAttentionV2\): its bias passes through a sigmoid",
    ),
    "convolutions": (torchvision.models.resnet18, "ResNet has no attention layer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_states_its_reason(case):
    build, message = REFUSED[case]
    model = build()
    with unchanged(model), pytest.raises(TypeError, match=message):
        init_as_convolution(model)


def test_a_part_of_unknown_effect_is_refused():
    """As in DeepViT, which mixes the maps of heads with a further parameter."""
    model = SimpleViTLike()
    model.transformer.layers[1][0].reattn_weights = nn.Parameter(torch.eye(9))
    with pytest.raises(TypeError, match=r"layers.1.0 \(FusedAttention\): it has reattn_weights"):
        init_as_convolution(model)


def test_fidelity_and_residual_are_those_of_the_definitions():
    """Against Lemma 3's own least squares and a direct average, on two images."""
    torch.manual_seed(0)
    offsets = torch.tensor([[0, 0], [-1, 0], [0, 1], [1, 1]])
    maps = (3 * torch.randn(2, 4, 30, 30, dtype=torch.float64)).softmax(dim=-1)
    measure = LayerMeasure((5, 6), offsets, 3)
    for image in maps:
        measure.add(image)
    fidelity, residual = measure.result()
    grids = maps.unflatten(-1, (5, 6)).unflatten(2, (5, 6))
    expected = expresses_convolution(grids, 3).residual.max()
    assert residual == pytest.approx(float(expected), rel=1e-9)
    torch.testing.assert_close(fidelity, mass_on_offsets(grids, offsets))
