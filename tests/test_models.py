import pytest
import torch

from attnconv import build_model
from attnconv.models import MODELS, head_geometry

# From the published code, to the unit; the paper's Table 4 has them rounded.
PARAMETERS = {
    "resnet18": 11_173_962,
    "sa-quadratic": 12_086_844,
    "sa-quadratic-16": 18_806_970,
    "sa-generalized": 12_087_006,
    "sa-learned": 12_278_682,
}
SMALL = {"num_layers": 2, "hidden": 16, "intermediate": 8, "image_size": 8, "learned_dim": 4}


def test_every_model_is_in_the_table():
    assert set(MODELS) == set(PARAMETERS)


@pytest.mark.parametrize("name", list(PARAMETERS))
def test_parameter_counts(name):
    assert sum(p.numel() for p in build_model(name).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", [name for name in PARAMETERS if name != "resnet18"])
def test_a_batch_is_its_single_items(name):
    model = build_model(name, **SMALL).eval()
    images = torch.randn(3, 3, 8, 8)
    single = torch.cat([model(image[None]) for image in images])
    assert torch.allclose(model(images), single, atol=1e-5)
    assert single.shape == (3, 10)


def test_space_to_depth_keeps_the_published_order():
    model = build_model("sa-quadratic", **SMALL)
    image = torch.randn(1, 3, 8, 8)
    seen = []
    model.embedding.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model(image)
    for i in range(4):
        for j in range(4):
            patch = image[0, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]  # (C, dy, dx)
            assert torch.equal(seen[0][0, i, j], patch.permute(1, 2, 0).flatten())  # (dy, dx, rgb)


def test_head_geometry():
    model = build_model("sa-quadratic", **SMALL)
    geometry = head_geometry(model)
    assert geometry["centers"].shape == (2, 9, 2) and geometry["alpha"].shape == (2, 9)
    assert torch.equal(geometry["centers"][1], model.encodings[1].centers)


def test_unknown_names_and_overrides_are_refused():
    with pytest.raises(ValueError, match="unknown model 'resnet50', expected one of resnet18, sa-"):
        build_model("resnet50")
    with pytest.raises(ValueError, match="unknown override depth for sa-quadratic, expected some of num_heads, image_size"):
        build_model("sa-quadratic", depth=3)
    with pytest.raises(ValueError, match="sides divisible by 2"):
        build_model("sa-quadratic", **SMALL)(torch.randn(1, 3, 7, 8))
