"""Tests of inspect_attention: known attention maps, and other computations of each measure."""

import math

import pytest
import torch
from helpers.ways import content_probabilities
from torch import nn

from attnconv import (
    attention_probabilities,
    build_model,
    conv_to_attention,
    expresses_convolution,
    inspect_attention,
)
from attnconv.heads import mean_by_offset
from attnconv.inspection import HEADS_IN_FULL
from attnconv.measures import measure_maps
from attnconv.theory.expressivity import offset_targets
from attnconv.theory.grid import offset_set, relative_offsets


def random_maps(*shape):
    """Random attention maps `(*shape[:-2], H, W, H, W)`, float64."""
    *leading, height, width = shape
    scores = 2 * torch.randn(*leading, height, width, height * width).double()
    return scores.softmax(dim=-1).unflatten(-1, (height, width))


def nearest_kernels(maps, kernel_size=3):
    found = measure_maps(maps, kernel_size)
    return found.kernels, found.off_convolution


def tokens(height, width):
    return [(i, j) for i in range(height) for j in range(width)]


def test_a_convolution_as_attention_is_one():
    layer = conv_to_attention(nn.Conv2d(2, 2, 3, padding=1).double())
    maps = attention_probabilities(layer, 6, 7)
    (found,) = inspect_attention(maps[None]).layers
    assert found.name == "layer 1" and found.grid == (6, 7)
    assert found.heads.offsets.tolist() == offset_set((3, 3)).tolist()
    assert torch.allclose(found.heads.mass, torch.ones(9).double())
    assert found.off_convolution.max() < 1e-7 and found.residual.max() < 1e-10
    assert found.prefix_mass.tolist() == [0] * 9


def test_uniform_attention_is_a_large_convolution_but_selects_no_shift():
    (found,) = inspect_attention(torch.full((1, 4, 6, 5, 6, 5), 1 / 30)).layers
    assert torch.allclose(found.heads.mass, torch.full((4,), 1 / 30).double())
    assert found.off_convolution.max() < 1e-7
    assert torch.allclose(found.residual, torch.tensor(math.sqrt(29 / 30)).double())
    pairs = [math.dist(q, k) for q in tokens(6, 5) for k in tokens(6, 5)]
    assert torch.allclose(found.mean_distance, torch.tensor(sum(pairs) / 900).double())


def test_mean_distance_against_a_loop():
    maps = random_maps(3, 2, 4, 3)
    (found,) = inspect_attention([maps]).layers
    for head in range(2):
        total = sum(
            float(maps[image, head, *q, *k]) * math.dist(q, k)
            for image in range(3)
            for q in tokens(4, 3)
            for k in tokens(4, 3)
        )
        assert float(found.mean_distance[head]) == pytest.approx(total / (3 * 12))


@pytest.mark.parametrize(("height", "width", "kernel_size"), [(5, 4, 3), (4, 5, 2), (3, 3, 1)])
def test_the_nearest_convolution_by_least_squares(height, width, kernel_size):
    """The columns of a design matrix say which entries share an offset; no other C is nearer."""
    maps = random_maps(2, 3, height, width)
    queries = offset_targets(height, width, (kernel_size, kernel_size))[0].tolist()
    pairs = [(q, k) for q in queries for k in tokens(height, width)]
    shifts = [(k[0] - q[0], k[1] - q[1]) for q, k in pairs]
    columns = sorted(set(shifts))
    design = torch.tensor([[shift == c for c in columns] for shift in shifts]).double().repeat(2, 1)
    for head, (kernel, found) in enumerate(zip(*nearest_kernels(maps, kernel_size), strict=True)):
        A = torch.stack([image[head, *q, *k] for image in maps for q, k in pairs])
        best = torch.linalg.lstsq(design, A).solution
        distance = (A - design @ best).norm()
        assert float(found) == pytest.approx(float(distance / A.norm()))
        at_shifts = [kernel[i + height - 1, j + width - 1] for i, j in columns]
        assert torch.allclose(torch.stack(at_shifts), best)
        assert kernel.count_nonzero() == len(columns)
        for other in best + 0.05 * torch.randn(20, len(best)):
            assert (A - design @ other).norm() > distance


def independent_measures(maps, kernel_size):
    """The measures from whole float64 arrays and least squares on all equations."""
    mean = maps.double().mean(dim=0)
    height, width = mean.shape[-2:]
    delta = relative_offsets(height, width)
    queries = offset_targets(height, width, (kernel_size, kernel_size))[0].T
    A = maps.double()[:, :, queries[0], queries[1]].transpose(0, 1).flatten(1)
    offsets = delta[queries[0], queries[1]].flatten(0, 2).repeat(len(maps), 1)
    number = (offsets[:, 0] + height) * 2 * width + offsets[:, 1] + width
    counts = number.bincount(minlength=4 * height * width).double()
    sums = A.new_zeros(len(A), len(counts)).index_add(1, number, A)
    C = (sums / counts.clamp(min=1))[:, number]
    return {
        "by_offset": mean_by_offset(mean),
        "mean_distance": (mean * delta.double().norm(dim=-1)).sum(dim=(3, 4)).mean(dim=(1, 2)),
        "off_convolution": (A - C).norm(dim=1) / A.norm(dim=1),
        "residual": expresses_convolution(maps, kernel_size).residual,
    }


def peaked_maps(heads, height, width, sharpness):
    """Maps that differ the more between heads the sharper they are."""
    scores = torch.randn(2, heads, height, width, height * width).double() * sharpness
    return scores.softmax(dim=-1).unflatten(-1, (height, width))


def dependent_maps():
    """The fourth head is the mean of two others, and the fifth repeats the first."""
    maps = random_maps(2, 3, 6, 5)
    return torch.cat([maps, (maps[:, :1] + maps[:, 1:2]) / 2, maps[:, :1]], dim=1)


def one_hot_maps():
    encoding = conv_to_attention(nn.Conv2d(1, 1, 3)).encoding
    return attention_probabilities(encoding, 6, 7)[None].double()


CASES = {
    "random": lambda: random_maps(3, 4, 6, 5),
    "one image": lambda: random_maps(1, 3, 4, 7),
    "nearly uniform": lambda: peaked_maps(4, 6, 6, 1e-3),
    "almost equal heads": lambda: peaked_maps(4, 6, 6, 1e-6),
    "more heads than keys": lambda: peaked_maps(20, 3, 4, 1.0),
    "dependent heads": dependent_maps,
    "one-hot": one_hot_maps,
    "nearly one-hot": lambda: 0.999 * one_hot_maps() + 0.001 / 42,
}


@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_one_pass_agrees_with_whole_arrays(case, kernel_size):
    torch.manual_seed(0)
    maps = CASES[case]()
    found = measure_maps(maps, kernel_size)
    for name, expected in independent_measures(maps, kernel_size).items():
        actual = getattr(found, name)
        tolerance = 1e-10
        if name == "off_convolution":  # the root of a difference, inexact where this is almost 0
            actual = actual.square()
            expected = expected.square()
            tolerance = 1e-13
        assert torch.allclose(actual, expected, rtol=0, atol=tolerance), name
    assert torch.equal(found.mean, maps.mean(dim=0).float())


def test_float32_maps_are_measured_in_float64():
    maps = random_maps(2, 4, 6, 5).float()
    found = measure_maps(maps, 3)
    expected = measure_maps(maps.double(), 3)
    for name in ("by_offset", "mean_distance", "off_convolution", "kernels", "residual"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


def test_off_convolution_sees_the_image():
    """A head that attends to one offset on each image, but not to the same one, is half off."""
    encoding = conv_to_attention(nn.Conv2d(1, 1, 3)).encoding
    shifted = attention_probabilities(encoding, 7, 7).double()
    same = shifted[:, None].movedim(1, 0)
    other = shifted.flip(0)[:, None].movedim(1, 0)
    _, found = nearest_kernels(torch.cat([same, other]))
    expected = torch.full((9,), math.sqrt(0.5)).double()
    expected[4] = 0  # the centre is its own mirror image
    assert torch.allclose(found, expected, atol=1e-7)


def test_one_mixture_of_heads_serves_all_images():
    maps = random_maps(3, 4, 4, 5)
    queries, targets = offset_targets(4, 5, (3, 3))
    equations = []
    wanted = []
    for image in maps:
        for (i, j), target in zip(queries.tolist(), targets, strict=True):
            equations.append(image[:, i, j].flatten(1).T)
            wanted.append(target.T)
    A, E = torch.cat(equations), torch.cat(wanted)
    errors = E - A @ torch.linalg.inv(A.T @ A) @ A.T @ E
    expected = errors.unflatten(0, (-1, 20)).norm(dim=1).amax(dim=0).reshape(3, 3)
    assert torch.allclose(expresses_convolution(maps, 3).residual, expected)
    assert torch.allclose(inspect_attention([maps]).layers[0].residual, expected)
    repeated = maps[:1].expand(3, -1, -1, -1, -1, -1)
    once = expresses_convolution(maps[0], 3).residual
    assert torch.allclose(expresses_convolution(repeated, 3).residual, once)


def test_maps_of_several_layers_and_sizes():
    maps = random_maps(3, 2, 4, 5, 5)  # (L, B, N_h, H, W, H, W)
    report = inspect_attention(maps, layers=[2, -3])
    assert [layer.name for layer in report.layers] == ["layer 3", "layer 1"]
    assert torch.allclose(report.layers[0].maps, maps[2].mean(dim=0).float())
    of_one_image = inspect_attention(maps[:, 0]).layers
    assert torch.allclose(of_one_image[1].off_convolution, nearest_kernels(maps[1, :1])[1])
    report = inspect_attention([random_maps(2, 4, 6), random_maps(2, 3, 5, 5)])
    assert [layer.grid for layer in report.layers] == [(4, 6), (5, 5)]


def test_networks_of_ours():
    torch.manual_seed(0)
    model = build_model("sa-quadratic", num_layers=2)
    found = inspect_attention(model).layers
    assert [layer.grid for layer in found] == [(16, 16)] * 2
    maps = attention_probabilities(model.attentions[1], 16, 16)
    assert torch.equal(found[1].maps, maps.detach())
    assert inspect_attention(model, torch.zeros(2, 3, 12, 16)).layers[0].grid == (6, 8)
    small = {"num_layers": 1, "hidden": 16, "image_size": 12}
    assert inspect_attention(build_model("sa-learned", **small)).layers[0].grid == (6, 6)
    model = build_model("sa-learned-content", **small).eval()
    images = torch.randn(3, 3, 12, 12)
    with pytest.raises(ValueError, match="SelfAttentionNet depends on the image, but images is"):
        inspect_attention(model)
    (maps,) = content_probabilities(model, images)
    (layer,) = inspect_attention(model, images).layers
    assert torch.allclose(layer.maps, maps.mean(dim=0)) and layer.residual.min() > 0.5


def test_a_vision_transformer():
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=80, depth=2)
    with pytest.raises(ValueError, match="VisionTransformer depends on the image"):
        inspect_attention(model)
    report = inspect_attention(model, torch.randn(2, 3, 80, 80))
    assert [layer.name for layer in report.layers] == ["blocks.0.attn", "blocks.1.attn"]
    for layer in report.layers:
        assert layer.grid == (5, 5) and layer.maps.shape[0] == 3
        assert (layer.prefix_mass - 1 / 26).abs().max() < 0.02, "untrained: nearly uniform"
        assert layer.off_convolution.max() < 0.5


def test_the_table_lists_heads_or_layers():
    maps = random_maps(2, 3, 5, 5)
    report = inspect_attention(maps)
    header, *lines = str(report).splitlines()
    assert len(lines) == 6 and len(set(map(len, [header, *lines]))) == 1
    layer = report.layers[1]
    cells = lines[4].split()
    offset = "({:+d}, {:+d})".format(*layer.heads.offsets[1].tolist())
    assert lines[4].startswith("layer 2") and offset in lines[4]
    for values in (layer.heads.mass, layer.mean_distance, layer.off_convolution):
        assert f"{float(values[1]):.2f}" in cells
    assert cells[-1] == f"{float(layer.residual.max()):.2f}"
    by_layer = report.table(by_head=False).splitlines()
    assert len(by_layer) == 3 and f"{float(layer.heads.mass.min()):.2f}-" in by_layer[2]
    page = report._repr_html_()
    assert page.count("<tr>") == 7 and f"<td>{offset}</td>" in page
    many = inspect_attention(random_maps(1, HEADS_IN_FULL + 1, 3, 3))
    assert len(str(many).splitlines()) == 2
    assert (
        "&lt;b&gt;"
        in type(report)(3, (type(layer)("<b>", *list(vars(layer).values())[1:]),))._repr_html_()
    )


def token_maps(grid, prefix, images=2, heads=3):
    """Maps among all tokens `(B, N_h, T, T)`, as transformers gives them."""
    tokens = prefix + grid[0] * grid[1]
    return (2 * torch.randn(images, heads, tokens, tokens)).softmax(dim=-1)


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("grid", [(4, 4), (3, 5)])
def test_maps_among_tokens(grid, prefix):
    maps = [token_maps(grid, prefix), token_maps(grid, prefix, images=1)]
    of_patches = [each[:, :, prefix:, prefix:].double() for each in maps]
    shares = [each.sum(dim=-1, keepdim=True) for each in of_patches]
    whole = [
        (each / share).unflatten(-1, grid).unflatten(2, grid)
        for each, share in zip(of_patches, shares, strict=True)
    ]
    expected = inspect_attention(whole).layers
    square = grid[0] == grid[1]
    ways = {
        "a tuple": inspect_attention(tuple(maps), grid=grid, prefix=prefix),
        "the grid only": inspect_attention(maps, grid=grid),
        "arrays": inspect_attention([each.numpy() for each in maps], grid=grid, prefix=prefix),
        "by name": inspect_attention(dict(zip("ab", maps, strict=True)), grid=grid, prefix=prefix),
    }
    if square:
        ways["the prefix only"] = inspect_attention(maps, prefix=prefix)
    for way, report in ways.items():
        names = ["a", "b"] if way == "by name" else ["layer 1", "layer 2"]
        assert [layer.name for layer in report.layers] == names
        for layer, other, share in zip(report.layers, expected, shares, strict=True):
            assert layer.grid == grid
            assert torch.allclose(layer.residual, other.residual, atol=1e-5)
            assert torch.allclose(layer.heads.mass, other.heads.mass, atol=1e-6)
            mass = 1 - share.mean(dim=(0, 2, 3))
            assert torch.allclose(layer.prefix_mass, mass, atol=1e-6)
    (single,) = inspect_attention(maps[0], grid=grid).layers
    assert torch.equal(single.residual, ways["a tuple"].layers[0].residual)


@pytest.mark.parametrize(
    ("maps", "options", "message"),
    [
        (token_maps((4, 4), 1), {}, r"layer 1 has 17 tokens, .* such as grid=\(4, 4\), prefix=1"),
        (token_maps((3, 5), 1), {"grid": (3, 6)}, "16 tokens, but grid is"),
        (token_maps((3, 5), 1), {"grid": (3, 5), "prefix": 2}, "16 tokens, but grid is"),
        (torch.randn(1, 2, 9, 9), {}, "apply the softmax first"),
        ([None, None], {}, "attn_implementation='eager'"),
        (random_maps(1, 2, 3, 3), {"prefix": 1}, "leave them out"),
        (nn.Linear(2, 2), {"grid": (2, 2)}, "whose grid is read from the model"),
    ],
)
def test_maps_among_tokens_that_do_not_fit(maps, options, message):
    with pytest.raises(ValueError, match=message):
        inspect_attention(maps, **options)


@pytest.mark.parametrize(
    ("maps", "kernel_size", "message"),
    [
        (torch.ones(4, 3, 3, 3, 5), 3, r"shape \(3, 3, 3, 5\) for a layer, expected \(heads, H"),
        (torch.ones(1, 4, 3, 5, 5, 3), 3, r"shape \(1, 4, 3, 5, 5, 3\)"),
        (torch.randn(1, 4, 5, 5, 5, 5), 3, "apply the softmax first"),
        (
            torch.full((1, 4, 5, 5, 5, 5), 1 / 25),
            7,
            r"cannot measure layer 1: kernel_size is \(7, 7\)",
        ),
        (torch.zeros(1, 0, 5, 5, 5, 5), 3, r"shape \(1, 0, 5, 5, 5, 5\)"),
    ],
)
def test_bad_input(maps, kernel_size, message):
    with pytest.raises(ValueError, match=message):
        inspect_attention(maps, kernel_size=kernel_size)
    with pytest.raises(ValueError, match="layers has 1, expected numbers from 0 to 0"):
        inspect_attention(random_maps(1, 2, 3, 3), layers=[0, 1])
