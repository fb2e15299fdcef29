"""Tests of vision transformers with rotary encodings started as convolutions.

The encodings' frequencies are written here from the models' definitions, so the closed form does
not use what the start reads from the model.
"""

import copy
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from packaging.version import Version
from torch import nn

from attnconv import init_as_convolution
from attnconv.theory.attention import convolution
from attnconv.theory.grid import pixels, relative_offsets
from attnconv.theory.rotary import axial_frequencies, rotary_gap, rotary_others, sum_of_cosines
from attnconv.theory.theorem1 import softness_bound
from attnconv.vit.rotary import rotary_layers
from attnconv.vit.start import kernel_offsets
from companion.gaps import largest_gap

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")
#: Options of models that older versions of timm lack, or ignore.
NEWER = ("halves", "gate", "query norm", "mrope", "NaFlex, ")


def skip_without_a_new_timm(case):
    old = Version(timm.__version__) < Version("1.0.31")
    if old and any(option in case for option in NEWER):
        pytest.skip(f"timm {timm.__version__} does not have this model")


def in_units_of_the_image(grid, dim=64):
    """DINOv3: coordinates from -1 to 1, times 2 pi."""
    return axial_frequencies(dim) * 4 * math.pi / torch.tensor(grid)


def in_patches(grid, base=100.0):
    """RoPE-ViT; with the usual base of 10,000, timm's DeepSeek, Qwen3 and NaFlex."""
    return axial_frequencies(64, base)


def as_pretrained(grid, side=16, dim=64):
    """EVA-02, the models with registers, and PE: as on the side x side tokens of pretraining."""
    return axial_frequencies(dim, 10_000.0) * side / torch.tensor(grid)


def multimodal(grid, section=(8, 12, 12), pairs=32):
    """mrope: pairs 1, 4, 7, ... turn with the row, 2, 5, 8, ... with the column, others never."""
    frequencies = torch.zeros(pairs, 2, dtype=torch.float64)
    for pair in range(pairs):
        axis = pair % 3 - 1
        if axis >= 0 and pair < 3 * section[1 + axis]:
            frequencies[pair, axis] = 10_000.0 ** (-pair / pairs)
    return frequencies


#: Mixed frequencies are trained, so they are read from the model, (2, depth, heads, J); this is the
#: order of their components.
X_Y, Y_X = "x before y", "y before x"
SMALL = {"depth": 2, "num_classes": 10, "init_values": 1.0}
MROPE = {"rope_type": "mrope", "rope_grid_indexing": "ij", "rope_temperature": 10_000.0}
NAFLEX = {"img_size": 112, "embed_dim": 192, "num_heads": 3}
#: A model of each kind in timm, its options, the height and width in tokens, and its frequencies.
TIMM = {
    "EVA-02": ("eva02_tiny_patch14_224", {"img_size": 98}, (7, 7), as_pretrained),
    "EVA-02, not square": (
        "eva02_tiny_patch14_224",
        {"img_size": (84, 126)},
        (6, 9),
        as_pretrained,
    ),
    "EVA-02, norm after heads": (
        "eva02_base_patch16_clip_224",
        {"img_size": 96},
        (6, 6),
        as_pretrained,
    ),
    "registers": (
        "vit_medium_patch16_rope_reg1_gap_256",
        {"img_size": 96},
        (6, 6),
        as_pretrained,
    ),
    "no biases": (
        "vit_mediumd_patch16_rope_reg1_gap_256",
        {"img_size": 96},
        (6, 6),
        as_pretrained,
    ),
    "axial": ("vit_small_patch16_rope_224", {"img_size": 112}, (7, 7), in_patches),
    "axial and absolute": ("vit_small_patch16_rope_ape_224", {"img_size": 112}, (7, 7), in_patches),
    "axial, not square": (
        "vit_small_patch16_rope_224",
        {"img_size": (80, 128)},
        (5, 8),
        in_patches,
    ),
    "axial, halves": (
        "vit_small_patch16_rope_224",
        {"img_size": 112, "rope_rotate_half": True},
        (7, 7),
        in_patches,
    ),
    "mixed": ("vit_small_patch16_rope_mixed_224", {"img_size": 112}, (7, 7), X_Y),
    "mixed, not square": (
        "vit_small_patch16_rope_mixed_224",
        {"img_size": (80, 128)},
        (5, 8),
        X_Y,
    ),
    "mixed, rows first": (
        "vit_small_patch16_rope_mixed_224",
        {"img_size": (80, 128), "rope_grid_indexing": "ij"},
        (5, 8),
        Y_X,
    ),
    "mixed and absolute": (
        "vit_small_patch16_rope_mixed_ape_224",
        {"img_size": 112},
        (7, 7),
        X_Y,
    ),
    "mrope": (
        "vit_small_patch16_rope_224",
        {"img_size": (80, 128)} | MROPE,
        (5, 8),
        multimodal,
    ),
    "mrope, other sections": (
        "vit_small_patch16_rope_224",
        {"img_size": 112, "rope_mrope_section": (16, 9, 5)} | MROPE,
        (7, 7),
        partial(multimodal, section=(16, 9, 5)),
    ),
    "PE": (
        "vit_pe_core_tiny_patch16_384",
        {"img_size": 112},
        (7, 7),
        partial(as_pretrained, side=24),
    ),
    "PE, not square": (
        "vit_pe_spatial_tiny_patch16_512",
        {"img_size": (80, 128)},
        (5, 8),
        partial(as_pretrained, side=32),
    ),
    "PE, language": (
        "vit_pe_lang_large_patch14_448",
        {"img_size": 98, "embed_dim": 192, "num_heads": 3},
        (7, 7),
        partial(as_pretrained, side=32),
    ),
    "PE, no class token": (
        "vit_pe_core_gigantic_patch14_448",
        {"img_size": 98, "embed_dim": 192, "num_heads": 2},
        (7, 7),
        partial(as_pretrained, side=32, dim=96),
    ),
    "DINOv3": ("vit_small_patch16_dinov3", {"img_size": 112}, (7, 7), in_units_of_the_image),
    "DINOv3, not square": (
        "vit_small_patch16_dinov3_qkvb",
        {"img_size": (80, 128)},
        (5, 8),
        in_units_of_the_image,
    ),
    "DINOv3, no biases": (
        "vit_7b_patch16_dinov3",
        {"img_size": 112, "embed_dim": 256, "num_heads": 2},
        (7, 7),
        partial(in_units_of_the_image, dim=128),
    ),
    "Sapiens2, neither query norm nor groups": (
        "vit_base_patch16_sapiens2",
        {"img_size": 112, "qk_norm": False, "num_kv_heads": [12, 12]},
        (7, 7),
        in_units_of_the_image,
    ),
    "LingBot": ("vit_small_patch16_lingbot", {"img_size": 112}, (7, 7), in_units_of_the_image),
    "DeepSeek": (
        "deepseek_vit_412m",
        {"img_size": 112, "embed_dim": 192, "num_heads": 3, "init_values": None},
        (8, 8),
        partial(in_patches, base=10_000.0),
    ),
    "Qwen3": (
        "qwen3_vit_88m",
        {"img_size": 112, "embed_dim": 192, "num_heads": 3, "init_values": None},
        (7, 7),
        partial(in_patches, base=10_000.0),
    ),
    "NaFlex": (
        "naflexvit_base_patch16_gap",
        NAFLEX | {"rope_type": "axial"},
        (7, 7),
        partial(in_patches, base=10_000.0),
    ),
    "NaFlex, mixed": (
        "naflexvit_base_patch16_gap",
        NAFLEX | {"rope_type": "mixed"},
        (7, 7),
        Y_X,
    ),
    "NaFlex, DINOv3": (
        "naflexvit_base_patch16_gap",
        NAFLEX | {"rope_type": "dinov3", "rope_temperature": 100.0, "rope_rotate_half": True},
        (7, 7),
        in_units_of_the_image,
    ),
    "NaFlex, DINOv3, pairs of neighbours": (
        "naflexvit_base_patch16_gap",
        NAFLEX | {"rope_type": "dinov3", "rope_temperature": 100.0},
        (7, 7),
        in_units_of_the_image,
    ),
    "NaFlex, mrope": (
        "naflexvit_base_patch16_gap",
        NAFLEX | {"rope_type": "mrope", "rope_mrope_section": (8, 12, 12)},
        (7, 7),
        multimodal,
    ),
}
#: Models that take images of any size, and state none.
OF_ANY_SIZE = ("DeepSeek", "Qwen3", *(case for case in TIMM if case.startswith("NaFlex")))


class RotaryAttention(nn.Module):
    """Attention of transformers' DINOv3: three projections, keys without a bias."""

    def __init__(self, dim, heads):
        super().__init__()
        self.num_heads = heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(dim, dim, bias=name != "k_proj"))

    def forward(self, hidden_states, position_embeddings):
        q, k, v = (
            getattr(self, name)(hidden_states).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        cos, sin = position_embeddings
        prefix = q.shape[2] - len(cos)

        def turned(x):
            before, patches = x[:, :, :prefix], x[:, :, prefix:]
            halves = patches.chunk(2, dim=-1)
            rotated = patches * cos + torch.cat([-halves[1], halves[0]], dim=-1) * sin
            return torch.cat([before, rotated], dim=2)

        out = F.scaled_dot_product_attention(turned(q), turned(k), v)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class Angles(nn.Module):
    def forward(self, images):
        sizes = torch.tensor(images.shape[-2:]) // 8
        place = (pixels(*sizes.tolist()) + 0.5) / sizes * 2 - 1
        bands = 100.0 ** -(torch.arange(4) / 4)
        angles = (2 * math.pi * place[:, :, None] * bands).flatten(1).tile(2)
        return angles.cos(), angles.sin()


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.mlp = RotaryAttention(dim, heads), nn.Linear(dim, dim)

    def forward(self, x, position_embeddings):
        x = x + self.attention(self.norm1(x), position_embeddings=position_embeddings)
        return x + self.mlp(self.norm2(x))


class Dinov3Like(nn.Module):
    """transformers' DINOv3 with two prefix tokens."""

    def __init__(self, dim=144, heads=9):
        super().__init__()
        self.image_size = 56
        self.patches, self.prefix = nn.Conv2d(3, dim, 8, 8), nn.Parameter(torch.randn(1, 2, dim))
        self.rope_embeddings = Angles()
        self.layer = nn.ModuleList([Block(dim, heads), Block(dim, heads)])

    def forward(self, images):
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.prefix.expand(len(x), -1, -1), x], dim=1)
        for layer in self.layer:
            x = layer(x, position_embeddings=self.rope_embeddings(images))
        return x


def stand_in_frequencies(grid):
    return axial_frequencies(16) * 4 * math.pi / torch.tensor(grid)


def dinov3():
    library = pytest.importorskip("transformers")
    sizes = {"image_size": 112, "patch_size": 16, "hidden_size": 576, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 9, "intermediate_size": 96, "num_register_tokens": 4}
    return library.DINOv3ViTModel(library.DINOv3ViTConfig(**sizes, layerscale_value=1.0))


def build(case):
    """Return a model, the size of its images, its grid and its frequencies by layer."""
    torch.manual_seed(0)
    if case == "stand-in":
        return Dinov3Like().eval(), (56, 56), (7, 7), [stand_in_frequencies((7, 7))] * 2
    if case == "transformers, DINOv3":
        return dinov3().eval(), (112, 112), (7, 7), [in_units_of_the_image((7, 7))] * 2
    name, options, grid, frequencies = TIMM[case]
    if not timm.is_model(name):
        pytest.skip(f"timm {timm.__version__} does not have {name}")
    skip_without_a_new_timm(case)
    model = timm.create_model(name, pretrained=False, **SMALL | options).eval()
    size = options["img_size"]
    size = (size, size) if isinstance(size, int) else size
    if frequencies in (X_Y, Y_X):
        rows_columns = model.rope.freqs.detach().double().flip([0] if frequencies == X_Y else [])
        return model, size, grid, list(rows_columns.movedim(0, -1))
    return model, size, grid, [frequencies(grid)] * 2


CASES = [*TIMM, "stand-in", "transformers, DINOv3"]


def maps_in_forward(model, images):
    """The attention of a model's own forward pass, `(N_h, T', T')` by layer."""
    found, fused = [], F.scaled_dot_product_attention

    def record(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **_):
        maps = (q @ k.mT * (scale or q.shape[-1] ** -0.5)).softmax(dim=-1)
        if q.shape == k.shape:  # PE ends with attention pooling, which has one query
            found.append(maps[0])
        return maps @ v

    F.scaled_dot_product_attention = record
    try:
        with torch.no_grad():
            model(images)
    finally:
        F.scaled_dot_product_attention = fused
    return found


def closed_form(offsets, frequencies, grid, alpha):
    """The softmax of a sum of cosines, `(N_h, T, T)`, whose gap is alpha."""
    delta = relative_offsets(*grid).flatten(2, 3).flatten(0, 1)
    of_heads = frequencies if frequencies.ndim == 3 else frequencies.expand(len(offsets), -1, -1)
    return torch.stack(
        [
            (alpha / rotary_gap(own, *grid) * sum_of_cosines(delta - center, own)).softmax(dim=-1)
            for center, own in zip(offsets.double(), of_heads, strict=True)
        ]
    )


@pytest.mark.parametrize("case", CASES)
def test_the_maps_are_the_closed_form(case):
    """At all queries, among patches: prefix tokens only take a share of each row."""
    model, size, grid, frequencies = build(case)
    images = torch.randn(1, 3, *size)
    report = init_as_convolution(model, 3, 3.0, images=images if case in OF_ANY_SIZE else None)
    found = maps_in_forward(model, images)
    assert len(found) == len(report.layers) == 2
    for layer, maps, own in zip(report.layers, found, frequencies, strict=True):
        assert layer.grid == grid and layer.effect > 1e-3
        patches = maps[:, -grid[0] * grid[1] :, -grid[0] * grid[1] :]
        patches = patches / patches.sum(dim=-1, keepdim=True)
        assert largest_gap(patches, closed_form(layer.offsets, own, grid, 3.0).float()) < 1e-5
        assert layer.fidelity.min() > 0.6 and layer.fidelity.max() < 0.95


@pytest.mark.parametrize("case", ["EVA-02", "axial", "mixed", "no biases", "DINOv3", "stand-in"])
def test_the_values_are_what_they_were(case):
    """Reading a constant from the LayerNorm must not change what the heads add to the tokens."""
    model, size, *_ = build(case)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm1" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    layers = rotary_layers(model, torch.randn(1, 3, *size))
    block = (model.blocks if hasattr(model, "blocks") else model.layer)[0]
    attention = getattr(block, "attn", None) or block.attention
    tokens = torch.randn(
        1, layers[0].prefix + math.prod(layers[0].grid), block.norm1.weight.numel()
    )
    keyword = "position_embeddings" if case == "stand-in" else "rope"

    def uniform():
        """The layer's output if all scores are 0."""
        copied = copy.deepcopy(block)
        inner = getattr(copied, "attn", None) or copied.attention
        for name, parameter in inner.named_parameters():
            if name.startswith("q_"):
                parameter.data.zero_()
            if name.startswith("qkv"):
                parameter.data[: len(parameter) // 3] = 0
        embedding = embeddings[keyword]
        return inner(copied.norm1(tokens), **{keyword: embedding}).detach()

    embeddings = {}
    handle = attention.register_forward_pre_hook(
        lambda *call: embeddings.update(call[2]), with_kwargs=True
    )
    with torch.no_grad():
        model(torch.randn(1, 3, *size))
    handle.remove()
    before = uniform()
    init_as_convolution(model, images=torch.randn(1, 3, *size))
    assert largest_gap(uniform(), before) < 1e-5


def test_with_the_values_of_lemma_1_a_started_layer_is_the_convolution():
    """Nine heads with the values of a kernel, on an image of tokens, at interior queries."""
    model, size, grid, frequencies = build("stand-in")
    alpha = 12.0
    report = init_as_convolution(model, 3, alpha)
    block = model.layer[0]
    W = torch.randn(3, 3, 144, 16)
    with torch.no_grad():
        for head, (row, column) in enumerate(report.layers[0].offsets.tolist()):
            own = slice(16 * head, 16 * head + 16)
            block.attention.v_proj.weight[own] = W[row + 1, column + 1].T
        block.attention.v_proj.bias.zero_()
        block.attention.o_proj.weight.zero_()
        block.attention.o_proj.weight[:16] = torch.eye(16).repeat(1, 9)
        block.attention.o_proj.bias.zero_()
        tokens = block.norm1(torch.randn(1, 49, 144))
        angles = model.rope_embeddings(torch.empty(1, 3, *size))
        output = block.attention(tokens, position_embeddings=angles)[..., :16].view(7, 7, 16)
        expected = convolution(tokens.view(7, 7, 144), W)
    gap = (output - expected)[1:-1, 1:-1].abs().amax(dim=(0, 1))
    others = rotary_others(frequencies[0], *grid)
    bound = softness_bound(W, alpha, float(tokens.abs().max())) / 8 * 2 * others
    assert (gap <= bound + 1e-4).all()
    assert (output - expected).abs().max() > 0.5, "at the border, the layer is no convolution"


@pytest.mark.parametrize("case", ["axial", "no biases", "stand-in"])
def test_weights_survive_saving_and_training_steps(case):
    model, size, *_ = build(case)
    init_as_convolution(model)
    other = build(case)[0]
    other.load_state_dict(model.state_dict())
    images = torch.randn(1, 3, *size)
    assert torch.equal(model(images), other(images))
    model.train()(images).square().mean().backward()
    changed = [
        n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0
    ]
    assert any("q_" in n or "qkv" in n for n in changed), "queries learn"


def test_chosen_layers_and_offsets():
    model, *_ = build("axial")
    before = copy.deepcopy(model.state_dict())
    report = init_as_convolution(model, 5, 4.0, layers=[1])
    assert [layer.name for layer in report.layers] == ["blocks.1.attn"]
    assert torch.equal(report.layers[0].offsets, kernel_offsets(5, [6])[0])
    after = model.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {"blocks.1.attn.qkv.weight", "blocks.1.attn.qkv.bias"}


def test_what_a_user_should_know_is_noted():
    model, *_ = build("DINOv3")
    assert any(
        "5 prefix tokens are not rotated" in note for note in init_as_convolution(model).notes
    )
    model, *_ = build("stand-in")
    model.rope_embeddings.rescale_coords = 2.0
    assert any("training mode" in note for note in init_as_convolution(model).notes)


def test_another_size_than_the_one_checked_needs_another_start():
    """The stand-in measures in units of the image, so on more tokens its kernel is stretched."""
    model, _, grid, _ = build("stand-in")
    larger, images = (10, 10), torch.randn(1, 3, 80, 80)

    def gap(report):
        maps = maps_in_forward(model, images)[0][:, 2:, 2:]
        offsets = report.layers[0].offsets
        expected = closed_form(offsets, stand_in_frequencies(larger), larger, 3.0).float()
        return largest_gap(maps / maps.sum(dim=-1, keepdim=True), expected)

    report = init_as_convolution(model, 3, 3.0)
    assert report.layers[0].grid == grid
    assert "checked on images of 7 x 7 tokens; for another size, initialise" in report.notes[0]
    assert gap(report) > 0.1
    assert gap(init_as_convolution(model, 3, 3.0, images=images)) < 1e-5


def test_a_class_token_at_the_origin_takes_its_share():
    """The query at (0, 1) whose target is the patch at (0, 0), where coordinates begin."""
    model, size, *_ = build("axial")
    report = init_as_convolution(model, 3, 8.0)
    head = next(h for h, o in enumerate(report.layers[0].offsets.tolist()) if o == [0, -1])
    row = maps_in_forward(model, torch.randn(1, 3, *size))[0][head, 1 + 1]
    assert torch.isclose(row[0], row[1], rtol=1e-3) and row[0] > 0.49


def with_query_norm():
    return timm.create_model(
        "vit_small_patch16_rope_224", img_size=64, depth=1, qk_norm=True, init_values=1.0
    )


ONE = {"img_size": 64, "depth": 1, "init_values": 1.0}
#: The options that give queries and keys of timm's models with rotary encodings a bias.
WITH_BIAS = {"attn_type": "rope", "qkv_bias": True}


def post_norm(**options):
    name = "vit_mediumd_patch16_rope_reg1_gap_256"
    return timm.create_model(name, **ONE, use_post_norm=True, **options)


def gated(**options):
    """A layer whose gate reads its input, too."""
    small = {"embed_dim": 192, "num_heads": 3, "rope_type": "axial", "attn_gated": True}
    small |= {"attn_type": "eva", "qkv_bias": True} | options
    return timm.create_model("naflexvit_base_patch16_gap", **ONE | small)


def no_bias_after_attention(**options):
    """A LayerNorm lies between the heads and their projection, and values have no bias."""
    return timm.create_model("eva02_base_patch16_clip_224", **ONE | {"qkv_bias": False} | options)


def layout(half):
    """A model whose embedding is laid out in halves."""
    model = timm.create_model("vit_small_patch16_dinov3", **ONE)
    model.blocks[0].attn.rotate_half = half
    return model


def partly_rotated():
    """Embeddings with an entry for every second entry of a head."""
    model = Dinov3Like()
    whole = model.rope_embeddings.forward
    model.rope_embeddings.forward = lambda images: tuple(each[:, ::2] for each in whole(images))
    for block in model.layer:
        block.attention.forward = lambda x, position_embeddings: x
    return model


def cosine_attention():
    model = Dinov3Like()
    for block in model.layer:
        block.attention.logit_scale = nn.Parameter(torch.ones(9))
    return model


def no_number_of_heads():
    model = Dinov3Like()
    del model.layer[0].attention.num_heads
    return model


def shared_norm():
    """A block whose perceptron reads the LayerNorm of its attention."""
    model = Dinov3Like()
    for block in model.layer:
        block.norm2 = block.norm1
        block.forward = lambda x, position_embeddings, block=block: (
            block.attention(y := block.norm1(x), position_embeddings=position_embeddings)
            + block.mlp(y)
        )
    return model


def not_linear():
    model = Dinov3Like()
    model.rope_embeddings.forward = lambda images: (
        torch.rand(49, 8).tile(2),
        torch.rand(49, 8).tile(2),
    )
    return model


def resonant(side=7):
    """Frequencies that are multiples of 2 pi / 4, so that pixels four apart look the same."""
    model = Dinov3Like()
    place = pixels(side, side).double()
    angles = (math.pi / 2 * place[:, :, None] * torch.arange(1, 5)).flatten(1).tile(2).float()
    model.rope_embeddings.forward = lambda images: (angles.cos(), angles.sin())
    return model


def by_another_name():
    model = Dinov3Like()
    for block in model.layer:
        inner = block.attention.forward
        block.attention.forward = lambda x, angles, inner=inner: inner(x, angles)
        block.forward = lambda x, position_embeddings, block=block: block.attention(
            block.norm1(x), position_embeddings
        )
    return model


def no_attention():
    model = Dinov3Like()
    for block in model.layer:
        block.attention = nn.Identity()
        block.forward = lambda x, position_embeddings, block=block: x + block.mlp(block.norm1(x))
    return model


def grouped():
    """Six heads of keys for twelve of queries."""
    name = "vit_base_patch16_sapiens2"
    if not timm.is_model(name):
        pytest.skip(f"timm {timm.__version__} does not have {name}")
    return timm.create_model(name, img_size=64, depth=1, qk_norm=False, num_kv_heads=[6])


REFUSED = {
    "odd head dimension": (
        partial(Dinov3Like, 27),
        TypeError,
        "heads have 3 entries, expected an even",
    ),
    "odd head dimension in timm": (
        partial(timm.create_model, "vit_small_patch16_dinov3", depth=1, embed_dim=18, num_heads=2),
        TypeError,
        r"cannot start blocks.0.attn \(EvaAttention\): its heads have 9 entries, expected an even",
    ),
    "one pair": (
        partial(Dinov3Like, 18),
        TypeError,
        "have 2 entries, expected an even number of at least 4 .*; create the model with another",
    ),
    "no attention": (
        no_attention,
        TypeError,
        "Dinov3Like has no attention layer .*; expected .* EVA-02, .*; use one of these models",
    ),
    "grouped queries": (grouped, TypeError, "fewer keys than queries .*; create the model with as"),
    "query norm": (with_query_norm, TypeError, "its queries are normalised, .*; create .*=False"),
    "post-norm": (
        post_norm,
        TypeError,
        "no LayerNorm with weights and biases precedes it alone.*; create .* attn_type='rope' and",
    ),
    "shared norm": (
        shared_norm,
        TypeError,
        "no LayerNorm with weights and biases precedes it.*; create the model with a bias",
    ),
    "gate": (gated, TypeError, "have no bias, and its gate reads the LayerNorm .*; create .* bias"),
    "no bias after attention": (
        no_bias_after_attention,
        TypeError,
        "neither its values nor its output projection have a bias; create .* attn_type='rope'",
    ),
    "layout": (
        partial(layout, False),
        TypeError,
        "pairs other entries than the layer does, .*; give .* the same rotate_half",
    ),
    "not linear": (
        not_linear,
        TypeError,
        "not linear in the position on the grid of 7 x 7 tokens; use .* an axial or a mixed one",
    ),
    "part of a head": (
        partly_rotated,
        TypeError,
        r"has the shape \(49, 8\), expected .* or \(tokens, 16\); use a model that turns all",
    ),
    "scaled cosine": (
        cosine_attention,
        TypeError,
        r"scaled cosines \(logit_scale\), .*; use a model",
    ),
    "no number of heads": (
        no_number_of_heads,
        TypeError,
        "has none of the attributes num_heads, .*; expected .*; use one of these models",
    ),
    "another name": (
        by_another_name,
        TypeError,
        "no rotary encoding that reaches it as rope or .*; expected .*; use one of these models",
    ),
    "resonance": (
        resonant,
        ValueError,
        r"common period \(0, 4\) on a grid of 7 x 7 .*; choose other .* or a smaller grid",
    ),
}


def images_for(model):
    """Images for NaFlex models, which state no size."""
    return torch.randn(1, 3, 64, 64) if type(model).__name__ == "NaFlexVit" else None


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_states_its_reason_and_leaves_the_model_as_it_was(case):
    skip_without_a_new_timm(case)
    torch.manual_seed(0)
    make, error, message = REFUSED[case]
    model = make()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=message):
        init_as_convolution(model, images=images_for(model))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("model", [torchvision.models.resnet18, lambda: nn.Linear(3, 3)])
def test_a_model_that_is_not_rotary(model):
    with pytest.raises(
        TypeError, match=r"has no attention .*; expected .* rotary encodings \(EVA-02"
    ):
        init_as_convolution(model())


def test_a_smaller_grid_is_the_remedy_of_a_common_period():
    """Pixels four apart do not occur on 4 x 4 tokens."""
    model = resonant(4)
    report = init_as_convolution(model, 3, 6.0, images=torch.randn(1, 3, 32, 32))
    assert report.layers[0].grid == (4, 4) and report.layers[0].fidelity.min() > 0.7


#: What the refusals propose; each model is otherwise the one that is refused.
REMEDIES = {
    "even head dimension in timm": partial(
        timm.create_model, "vit_small_patch16_dinov3", **ONE, embed_dim=16, num_heads=2
    ),
    "no query norm": partial(timm.create_model, "vit_small_patch16_rope_224", **ONE, qk_norm=False),
    "post-norm with a bias": partial(post_norm, **WITH_BIAS),
    "gate with a bias": partial(gated, **WITH_BIAS),
    "bias in place of that after attention": partial(no_bias_after_attention, **WITH_BIAS),
    "the same layout": partial(layout, True),
    "axial angles of all entries, scores that are products": Dinov3Like,
}


@pytest.mark.parametrize("case", REMEDIES)
def test_the_remedy_of_a_refusal_works(case):
    skip_without_a_new_timm(case)
    torch.manual_seed(0)
    model = REMEDIES[case]()
    layers = init_as_convolution(model, 3, 6.0, images=images_for(model)).layers
    assert all(layer.fidelity.min() > 0.6 for layer in layers)


def test_bfloat16():
    model, size, *_ = build("axial")
    report = init_as_convolution(model.bfloat16(), 3, 4.0)
    expected = closed_form(report.layers[0].offsets, axial_frequencies(64), (7, 7), 4.0)
    maps = maps_in_forward(model, torch.randn(1, 3, *size).bfloat16())[0][:, 1:, 1:]
    maps = maps / maps.sum(dim=-1, keepdim=True)
    assert (maps - expected).abs().max() < 0.2 and report.layers[0].fidelity.min() > 0.8
